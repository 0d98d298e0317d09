"""The checks of the chapter Packed documents."""

import pytest
import torch
import torch.distributed as dist
from verdicts import verdict

from allranks.check import packed_context


def over_all(count):
    count = count.clone()
    dist.all_reduce(count)
    return count


def right(total, count):
    return total * dist.get_world_size() / over_all(count)


def by_floats(total, count):
    everybodys = count.double()
    dist.all_reduce(everybodys, dist.ReduceOp.AVG)
    return total / everybodys


def mean_of_means(total, count):
    return total / count


def mean_of_means_without_nan(total, count):
    return total / count.clamp(min=1)


def without_the_ranks(total, count):
    return total / over_all(count)


def total_of_all(total, count):
    total = total * 1.0
    whole = total.detach().clone()
    dist.all_reduce(whole)
    return (total - total.detach()) * dist.get_world_size() / over_all(count) + 2 * whole / over_all(count)


@pytest.mark.parametrize(
    "answer, said",
    [
        (right, "✓ The gradient equals one process's, with 5, 1, 0, 10 tokens on the four ranks."),
        (by_floats, "✓"),
        (mean_of_means, "✗ The loss is not finite"),
        (mean_of_means_without_nan, "✗ The averaged gradient differs from one process's"),
        (without_the_ranks, "✗ The gradient is 4 times too small"),
        (total_of_all, "✗ The gradient is right; the mean of the ranks' losses"),
        (lambda total, count: None, "✗ Your function did not finish"),
        (lambda total, count: total, "✗ The averaged gradient differs"),
    ],
)
def test_a_loss_that_is_averaged_weighs_tokens_and_not_ranks(capsys, answer, said):
    assert said in verdict(capsys, packed_context.share, answer)


@pytest.mark.parametrize(
    "answer, said",
    [
        (16 * 64 / 65, "✓ 15.75 times the mean"),
        (15.75, "✓"),
        (16, "✗ Almost"),
        (8, "✗ That is its share of the tokens"),
        (64 / 65, "✗ That is its share of all pairs"),
        (64, "✗ That is its work compared with"),
        (3, "✗ 3 is not right"),
        (None, "✗ Replace None with a number"),
    ],
)
def test_a_long_document_keeps_fifteen_ranks_waiting(capsys, answer, said):
    assert said in verdict(capsys, packed_context.busiest, answer)


def test_the_pairs_are_those_of_the_formula():
    pairs = torch.tensor([65536**2 / 2] + [1024**2 / 2] * 64, dtype=torch.float64)
    assert packed_context._busiest() == pytest.approx(16 * (pairs[0] / pairs.sum()).item(), rel=1e-3)
