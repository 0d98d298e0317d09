"""The checks of the chapter on matrix optimizers say ✓ to right answers and ✗, with a hint, to wrong ones."""

import pytest
import torch.distributed as dist
from verdicts import verdict

from allranks.check import matrix_optimizers as checks
from allranks.parallel.muon import orthonormalise


def on_columns(part, norm=True, gram=True, steps=5):
    a, b, c = 3.4445, -4.7750, 2.0315
    square = part.square().sum()
    if norm:
        dist.all_reduce(square)
    x = part / square.sqrt()
    for _ in range(steps):
        products = x @ x.T
        if gram:
            dist.all_reduce(products)
        x = a * x + (b * products + c * products @ products) @ x
    return x


def gathered(part):
    every = part.new_empty(dist.get_world_size() * part.shape[1], part.shape[0])
    dist.all_gather_single(every, part.T.contiguous())
    return orthonormalise(every.T).chunk(dist.get_world_size(), dim=1)[dist.get_rank()]


@pytest.mark.parametrize(
    "answer, said",
    [
        (on_columns, "✓ Six sums"),
        (lambda part: on_columns(part, gram=False), "only in part?"),
        (lambda part: on_columns(part, norm=False), "only in part?"),
        (orthonormalise, "without seeing the others"),
        (gathered, "sums are enough"),
        (lambda part: on_columns(part)[:, :3], "✗"),
        (None, "✗"),
    ],
)
def test_on_columns(capsys, answer, said):
    assert said in verdict(capsys, checks.on_columns, answer)


@pytest.mark.parametrize(
    "answer, said",
    [
        (1.5, "✓ 1.5"),
        (1.25, "four bytes"),
        (1.75, "more bytes"),
        (0.75, "That compares"),
        (2, "✗"),
        (None, "None"),
    ],
)
def test_bound(capsys, answer, said):
    assert said in verdict(capsys, checks.bound, answer)
