"""The checks of the chapter Three axes: data, tensor and pipeline."""

import pytest
import torch
import torch.distributed as dist
from verdicts import verdict

from allranks.check import three_d
from allranks.parallel.combine import groups_of
from allranks.parallel.tensor import total

SIZES = {"dp": 2, "pp": 2, "tp": 2}


def without_replica():
    return groups_of(SIZES)


def one_replica():
    return {**groups_of(SIZES), "replica": dist.new_group(range(4))}


def build():
    replicas = [dist.new_group(range(first, first + 4)) for first in (0, 4)]
    return {**groups_of(SIZES), "replica": replicas[dist.get_rank() // 4]}


def fastest_first():
    return dict(zip(("tp", "pp", "dp", "replica"), build().values(), strict=True))


@pytest.mark.parametrize(
    "answer, said",
    [
        (build, "✓ All eight ranks have four groups"),
        (without_replica, "✗ Rank 0 has no group 'replica'"),
        (one_replica, "✗ Group 'replica' of rank 4 has ranks [0, 1, 2, 3]; expected [4, 5, 6, 7]"),
        (fastest_first, "✗ Group 'dp' of rank 0 has ranks [0, 1]; expected [0, 4]"),
        (lambda: None, "✗ The function returns nothing yet"),
    ],
)
def test_groups(capsys, answer, said):
    assert said in verdict(capsys, three_d.build, answer)


def clip(gradients, groups, limit, axes=("tp", "pp", "dp"), count=2):
    squares = sum(t.pow(2).sum() / (1 if is_cut else count) for t, is_cut in gradients)
    for axis in axes:
        squares = total(squares, groups[axis])
    norm = squares.sqrt()
    for t, _ in gradients:
        t.mul_(min(1.0, limit / norm))
    return norm


@pytest.mark.parametrize(
    "answer, said",
    [
        (clip, "✓ Norm and gradients equal one process's on"),
        (lambda *its: clip(*its, axes=("tp", "pp")), "✗ Rank 0 finds a norm of"),
        (lambda *its: clip(*its, count=1), "✗ Rank 0 finds a norm of"),
        (lambda gradients, groups, limit: clip(gradients, groups, 1e9), "✗ The norm is right, but"),
        (lambda *its: None, "✗ The function returns nothing yet"),
        (lambda *its: torch.zeros(2).item(), "✗ "),
    ],
)
def test_clipping(capsys, answer, said):
    assert said in verdict(capsys, three_d.clip, answer)
