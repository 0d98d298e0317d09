"""The checks of the chapter on tensor-parallel decode say ✓ to right answers, ✗ and a hint to wrong ones."""

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from verdicts import verdict

from allranks import hardware, inference
from allranks.check import tensor_parallel_decode as checks


def best(limit, copies=True, fits=True):
    plans = []
    for ranks in (2, 4, 8):
        part = inference.tensor_slice(checks.MODEL, ranks)
        room = inference.largest_batch(part, checks.CONTEXT + 1, hardware.accelerator("h100").memory)
        for sequences in checks.BATCHES:
            seconds = sum(
                inference.decode_seconds(checks.MODEL, ranks, "h100", "nvlink-4", checks.CONTEXT, sequences)
            )
            if seconds <= limit and (sequences <= room or not fits):
                rate = sequences / seconds * (8 // ranks if copies else 1)
                plans.append((rate, ranks, sequences))
    return max(plans)[1:]


@pytest.mark.parametrize(
    "answer, said",
    [
        (best, "✓ Eight ranks"),
        (lambda limit: best(limit, copies=False), "Did you count the copies?"),
        (lambda limit: best(limit, fits=False), "do not fit"),
        (lambda limit: (8, 512), "too slow"),
        (lambda limit: (8, 1), "another plan writes"),
        (lambda limit: (3, 1), "do not fill"),
        (lambda limit: (1, 1), "do not fit"),
        (lambda limit: 8, "two numbers, (ranks"),
        (None, "✗"),
    ],
)
def test_objective(capsys, answer, said):
    assert said in verdict(capsys, checks.objective, answer)


def gather(x, group):
    parts = x.new_empty(dist.get_world_size(group), *x.shape)
    dist.all_gather_single(parts, x[None], group=group)
    return torch.cat(tuple(parts), 1)


def scatter(x, group):
    ranks = dist.get_world_size(group)
    part = x.new_empty(x.shape[0], x.shape[1] // ranks)
    dist.reduce_scatter_single(part, torch.cat(x.chunk(ranks, 1)), group=group)
    return part


def two_d(x, up, down, row, column):
    hidden = gather(x, row) @ up
    dist.all_reduce(hidden, group=column)
    return scatter(F.gelu(hidden) @ down, row)


def gelu_of_parts(x, up, down, row, column):
    hidden = F.gelu(gather(x, row) @ up)
    dist.all_reduce(hidden, group=column)
    return scatter(hidden @ down, row)


def groups_swapped(x, up, down, row, column):
    return two_d(x, up, down, column, row)


def no_slice(x, up, down, row, column):
    hidden = gather(x, row) @ up
    dist.all_reduce(hidden, group=column)
    y = F.gelu(hidden) @ down
    dist.all_reduce(y, group=row)
    return y


def summed_whole(x, up, down, row, column):
    return no_slice(x, up, down, row, column).chunk(2, 1)[dist.get_rank(row)]


def raises_on_one_rank(x, up, down, row, column):
    if dist.get_rank() == 0:
        raise KeyError("lost")
    return two_d(x, up, down, row, column)


@pytest.mark.parametrize(
    "answer, said",
    [
        (two_d, "and each rank sends 768 bytes; 1D would send 1,152"),
        (gelu_of_parts, "partial sums"),
        (groups_swapped, "partial sums"),
        (no_slice, "its slice of the output"),
        (summed_whole, "768 are enough"),
        (lambda x, up, down, row, column: x, "partial sums"),
        (lambda x, up, down, row, column: None, "its slice of the output"),
        (raises_on_one_rank, "did not finish: rank 0 raised KeyError"),
    ],
)
def test_two_d(capsys, answer, said):
    assert said in verdict(capsys, checks.two_d, answer)
