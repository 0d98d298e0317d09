"""The checks of the chapter Sequence parallelism say ✓ to right answers and ✗, with a hint, to wrong ones."""

import pytest
import torch
import torch.distributed as dist
from verdicts import verdict

from allranks.check import sequence_parallel


def as_one_process(x, rate):
    ranks, rank = dist.get_world_size(), dist.get_rank()
    ones = x.new_ones(x.shape[0], ranks * x.shape[1], *x.shape[2:])
    return x * torch.native_dropout(ones, rate, True)[0].chunk(ranks, 1)[rank]


def the_same_everywhere(x, rate):
    return torch.native_dropout(x, rate, True)[0]


def own_rng(x, rate):
    torch.manual_seed(dist.get_rank())
    return torch.native_dropout(x, rate, True)[0]


def the_same_in_each_call(x, rate):
    torch.manual_seed(0)
    return as_one_process(x, rate)


@pytest.mark.parametrize(
    "answer, says",
    [
        (as_one_process, "✓"),
        (the_same_everywhere, "the same positions"),
        (own_rng, "not the ones that one process"),
        (the_same_in_each_call, "the second is not"),
        (lambda x, rate: (as_one_process(x, rate) != 0) * x, "1 - rate"),
        (lambda x, rate: None, "returns None"),
        (lambda x, rate: 3, "returns int, not a tensor"),
    ],
)
def test_dropout_of_parts_is_that_of_one_process(capsys, answer, says):
    assert says in verdict(capsys, sequence_parallel.dropout, answer)


RIGHT = {"norm.weight", "query_norm.weight", "out.bias", "position"}


@pytest.mark.parametrize(
    "answer, says",
    [
        ((RIGHT, "query_norm.weight"), "✓"),
        ((RIGHT | {"up.bias"}, None), "up.bias does not belong"),
        ((RIGHT - {"position"}, None), "rank looks up"),
        ((RIGHT | {"gate"}, None), "not one of the names"),
        ((RIGHT, None), "which of them"),
        ((RIGHT, "norm.weight"), "norm.weight sees the same tokens on"),
        (RIGHT, "a set of names"),
    ],
)
def test_what_is_used_in_different_ways_is_a_partial_sum(capsys, answer, says):
    assert says in verdict(capsys, sequence_parallel.summands, answer)
