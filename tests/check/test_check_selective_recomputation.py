"""The checks of Selective recomputation say ✓ to right answers and ✗, with a hint, to wrong ones."""

import pytest
from verdicts import verdict

from allranks.check import selective_recomputation


@pytest.mark.parametrize(
    "answer, says",
    [
        ((178.3, 325.1), "✓"),
        ((None, None), "None"),
        ((545.3, 692.1), "tensor parallelism alone"),
        ((513.8, 660.6), "core"),
        ((1426, 1573), "all eight"),
        ((178.3, 346.0), "own part twice"),
        ((178.3, 251.7), "Two inputs"),
        ((178.3, 178.3), "come out of a gather"),
        ((1, 2), "34sbh on one of t"),
    ],
)
def test_bytes_of_a_layer_of_mt_nlg(capsys, answer, says):
    assert says in verdict(capsys, selective_recomputation.megabytes, answer)


@pytest.mark.parametrize(
    "answer, says",
    [
        (1088, "✓"),
        (None, "None"),
        (3328, "without splitting the sequence"),
        (136, "The core is divided"),
        (8704, "The rest is divided"),
        (2048, "1.88 times the bytes"),
    ],
)
def test_the_core_is_half_of_a_layer_at_34_h_over_5_a(capsys, answer, says):
    assert says in verdict(capsys, selective_recomputation.length, answer)
