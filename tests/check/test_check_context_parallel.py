"""The checks of context parallelism say ✓ to right answers and ✗, with a hint, to wrong ones."""

import pytest
import torch
import torch.distributed as dist
from verdicts import verdict

from allranks.check import context_parallel


def zigzag(sequence, ranks):
    part = sequence // (2 * ranks)
    pieces = [range(first, first + part) for first in range(0, sequence, part)]
    return [[*pieces[rank], *pieces[-1 - rank]] for rank in range(ranks)]


def contiguous(sequence, ranks):
    part = sequence // ranks
    return [range(rank * part, (rank + 1) * part) for rank in range(ranks)]


@pytest.mark.parametrize(
    "answer, says",
    [
        (zigzag, "✓"),
        (contiguous, "times the mean"),
        (lambda sequence, ranks: [range(rank, sequence, ranks) for rank in range(ranks)], "nearly equal"),
        (lambda sequence, ranks: [range(sequence)] * ranks, "exactly once"),
        (lambda sequence, ranks: contiguous(sequence, ranks)[:1], "one for each rank"),
        (lambda sequence, ranks: [range(sequence)] + [[]] * (ranks - 1), "tokens; expected"),
        (lambda sequence, ranks: None, "cannot be checked"),
    ],
)
def test_equal_work_for_every_rank(capsys, answer, says):
    assert says in verdict(capsys, context_parallel.split, answer)


def by_sums(out, lse):
    largest = lse.clone()
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    weight = (lse - largest).exp()
    sums = torch.cat([out * weight, weight], -1)
    dist.all_reduce(sums)
    return sums[..., :-1] / sums[..., -1:]


def without_the_largest(out, lse):
    sums = torch.cat([out * lse.exp(), lse.exp()], -1)
    dist.all_reduce(sums)
    return sums[..., :-1] / sums[..., -1:]


def by_all(out, lse):
    outs, lses = ([torch.empty_like(t) for _ in range(4)] for t in (out, lse))
    dist.all_gather(outs, out)
    dist.all_gather(lses, lse)
    weights = torch.stack(lses).softmax(0)
    return (weights * torch.stack(outs)).sum(0)


def mean(out, lse):
    out = out.clone()
    dist.all_reduce(out, dist.ReduceOp.AVG)
    return out


@pytest.mark.parametrize(
    "answer, says",
    [(by_sums, "✓"), (by_all, "one by one"), (without_the_largest, "nan"), (mean, "exp(lse)")],
)
def test_partial_softmaxes_are_combined_by_their_sums(capsys, answer, says):
    assert says in verdict(capsys, context_parallel.combine, answer)
