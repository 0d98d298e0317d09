"""The checks of the chapter Mesh-TensorFlow say ✓ to right answers and ✗, with a hint, to wrong ones."""

import pytest
from verdicts import verdict

from allranks.check import mesh_tensorflow

RIGHT = {
    "batch: data": (0, 2),
    "hidden: tensor": (1, 1),
    "io: tensor": (1, 1),
    "batch: data, hidden: tensor": (1, 3),
}


def test_collectives_are_predicted_as_they_are_counted(capsys):
    assert verdict(capsys, mesh_tensorflow.predicted, RIGHT).startswith("✓")
    wrong = RIGHT | {"io: tensor": (2, 1), "batch: data": (0, 1)}
    said = verdict(capsys, mesh_tensorflow.predicted, wrong)
    assert "batch: data, backward: counted 2, predicted 1, and 1 more" in said


@pytest.mark.parametrize(
    "answer, says",
    [
        ("batch: data, hidden: tensor", "✓"),
        ("hidden: data, batch: tensor", "✓"),
        (None, "None"),
        ("batch: data", "0.5 of the multiplications: at least"),
        ("batch: data, io: tensor", "589,824"),
        ("hidden: data, io: tensor", "655,360"),
        ("batch: data, hidden: data", "both cut along data"),
        ("seq: data", "no dim seq"),
        ("batch: model", "no axis model"),
    ],
)
def test_one_layout_keeps_to_the_budget(capsys, answer, says):
    assert says in verdict(capsys, mesh_tensorflow.budget, answer)


def by_einsum(x, size, einsum):
    squares = einsum("batch io, batch io -> batch", x, x)
    return einsum("batch io, batch -> batch io", x, (squares / size).rsqrt())


def of_the_block(x, size, einsum):
    return x / (x * x).mean(-1, keepdim=True).sqrt()


def without_a_sum_backward(x, size, einsum):
    squares = einsum("batch io, batch io -> batch", x, x)
    return x * (squares / size).rsqrt()[:, None]


def test_a_norm_needs_sums_in_both_directions(capsys):
    assert verdict(capsys, mesh_tensorflow.norm, by_einsum).startswith("✓")
    assert "one process's: what has" in verdict(capsys, mesh_tensorflow.norm, of_the_block)
    assert "the gradient is not" in verdict(capsys, mesh_tensorflow.norm, without_a_sum_backward)
