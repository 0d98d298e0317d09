"""The checks of the chapter on parallelism strategies: ✓ for right answers, ✗ with a hint for wrong ones."""

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from verdicts import verdict

from allranks.check import parallelism_strategies as checks


@pytest.mark.parametrize(
    "answer, said",
    [
        (32, "✓ 32 tokens: both send 12,288 bytes"),
        (32.0, "✓"),
        (64, "all-reduce a layer; it needs one forward and"),
        (16, "sends 6,144 bytes: less than the 12,288"),
        (128, "more than"),
        (None, "Replace None with a number"),
        (-1, "✗"),
        ("32", "✗"),
    ],
)
def test_tokens(capsys, answer, said):
    assert said in verdict(capsys, checks.tokens, answer)


def total(t):
    dist.all_reduce(t)
    return t


def gathered(t):
    parts = [torch.empty_like(t) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, t)
    return parts


def sum_first(x, reads, writes):
    return F.relu(total(x @ reads.T)) @ writes


def gather_first(x, reads, writes):
    """Another right answer: each rank adds what all of them have read."""
    return F.relu(sum(gathered(x @ reads.T))) @ writes


def gather_inputs(x, reads, writes):
    """Right, with two collectives where one is enough."""
    x, reads = torch.cat(gathered(x), 1), torch.cat(gathered(reads), 1)
    return F.relu(x @ reads.T) @ writes


def sum_last(x, reads, writes):
    return total(F.relu(x @ reads.T) @ writes)


@pytest.mark.parametrize(
    "answer, said",
    [
        (sum_first, "✓ The output equals one process's"),
        (gather_first, "✓ The output equals one process's"),
        (gather_inputs, "The output is right, but takes 2 collectives; one is enough."),
        (sum_last, "A sum of ReLUs is not the ReLU of the sum"),
        (lambda x, reads, writes: total(F.relu(x @ reads.T)) @ writes, "A sum of ReLUs"),
        (
            lambda x, reads, writes: F.relu(x @ reads.T) @ writes,
            "from one process's, after 0 collectives.",
        ),
        (lambda x, reads, writes: total(x @ reads.T), "returns shape (6, 20); expected (6, 5)"),
        (lambda x, reads, writes: None, "returns NoneType, not a tensor"),
        (None, "✗"),
    ],
)
def test_read_in_parts(capsys, answer, said):
    assert said in verdict(capsys, checks.read_in_parts, answer)


def exchange(t):
    arrived = torch.empty_like(t)
    dist.all_to_all_single(arrived, t.contiguous())
    return arrived


def rolled(tokens, expert):
    rank = dist.get_rank()
    return exchange(expert(exchange(tokens.roll(rank, 0)))).roll(-rank, 0)


def indexed(tokens, expert):
    """Another right answer: row j of what is sent is the token that wants expert j."""
    order = (torch.arange(len(tokens)) - dist.get_rank()) % len(tokens)
    y = torch.empty_like(tokens)
    y[order] = exchange(expert(exchange(tokens[order])))
    return y


def unrouted(tokens, expert):
    return exchange(expert(exchange(tokens)))


def left_in_order(tokens, expert):
    return exchange(expert(exchange(tokens.roll(dist.get_rank(), 0))))


def turned(tokens, expert):
    rank = dist.get_rank()
    return exchange(expert(exchange(tokens.roll(-rank, 0)))).roll(rank, 0)


@pytest.mark.parametrize(
    "answer, said",
    [
        (rolled, "✓ All 16 tokens"),
        (indexed, "✓ All 16 tokens"),
        (unrouted, "Token i visits expert i on every rank"),
        (left_in_order, "come in the order of experts"),
        (turned, "rank r visits expert"),
        (lambda tokens, expert: expert(tokens), "'s outputs are not what experts (i +"),
        (lambda tokens, expert: tokens[:2], "returns shape (2, 3); expected (4, 3)"),
        (lambda tokens, expert: None, "returns NoneType, not a tensor"),
        (None, "✗"),
    ],
)
def test_visit(capsys, answer, said):
    assert said in verdict(capsys, checks.visit, answer)
