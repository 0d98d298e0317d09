"""The checks of the chapter What NCCL forbids say ✓ to right answers and ✗, with a hint, to wrong ones."""

import pytest
import torch
import torch.distributed as dist
from verdicts import verdict

from allranks.check import what_nccl_forbids as nccl


def halo(row, receives=("right", "left"), tags=False, contents=lambda row: (row[:1], row[-1:])):
    rank, p = dist.get_rank(), dist.get_world_size()
    neighbours = {"left": (rank - 1) % p, "right": (rank + 1) % p}
    came = {"left": torch.empty(1), "right": torch.empty(1)}
    first, last = contents(row)
    messages = [
        dist.P2POp(dist.isend, first, neighbours["left"], tag=int(tags)),
        dist.P2POp(dist.isend, last, neighbours["right"]),
        *[dist.P2POp(dist.irecv, came[way], neighbours[way]) for way in receives],
    ]
    [request.wait() for request in dist.batch_isend_irecv(messages)]
    return came["left"], came["right"]


def one_at_a_time(row):
    rank, p = dist.get_rank(), dist.get_world_size()
    left, right = torch.empty(1), torch.empty(1)
    requests = [dist.isend(row[:1], (rank - 1) % p), dist.isend(row[-1:], (rank + 1) % p)]
    dist.recv(right, (rank + 1) % p)
    dist.recv(left, (rank - 1) % p)
    [request.wait() for request in requests]
    return left, right


def by_a_collective(row):
    rank, p = dist.get_rank(), dist.get_world_size()
    rows = [torch.empty_like(row) for _ in range(p)]
    dist.all_gather(rows, row)
    return rows[rank - 1][-1], rows[(rank + 1) % p][0]


@pytest.mark.parametrize(
    "answer, said",
    [
        (halo, "✓ Right on rings of 2, 3 and 4"),
        (by_a_collective, "✓ Right on rings of 2, 3 and 4"),
        (lambda row: halo(row, receives=("left", "right")), "✗ With 2 ranks, rank 0 has"),
        (lambda row: halo(row, contents=lambda row: (row[-1:], row[:1])), "✗ With 3 ranks, rank 0 has"),
        (lambda row: halo(row, tags=True), "NCCL has no tags"),
        (one_at_a_time, "NCCL would hang: rank 0 is in send to rank 2"),
        (lambda row: None, "✗ Return two tensors"),
        (None, "✗ Your function did not finish"),
    ],
)
def test_a_halo(capsys, answer, said):
    assert said in verdict(capsys, nccl.halo, answer)


def norm(gradients, contiguous=torch.Tensor.contiguous, early=False, back=True, all_of_them=True):
    totals = [contiguous(g) for g in gradients]
    requests = [dist.all_reduce(total, async_op=True) for total in totals]
    before = sum(total.square().sum() for total in totals).sqrt()
    [request.wait() for request in requests]
    for gradient, total in zip(gradients, totals) if back else ():
        gradient.copy_(total)
    if early:
        return before
    return sum(total.square().sum() for total in (totals if all_of_them else totals[:1])).sqrt()


def norm_of_norms(gradients):
    own = sum(g.square().sum() for g in gradients)
    norm(gradients)
    dist.all_reduce(own)
    return own.sqrt()


@pytest.mark.parametrize(
    "answer, said",
    [
        (norm, "✓ Every gradient holds its sum"),
        (lambda gradients: norm(gradients, contiguous=lambda g: g), "NCCL needs contiguous tensors"),
        (lambda gradients: norm(gradients, early=True), "✗ With 2 ranks, rank 0 returned nan"),
        (lambda gradients: norm(gradients, back=False), "gradient 1 of rank 0 is not the sum"),
        (lambda gradients: norm(gradients, all_of_them=False), "✗ With 2 ranks, rank 0 returned"),
        (norm_of_norms, "✗ With 2 ranks, rank 0 returned"),
        (lambda gradients: norm(gradients) and None, "✗ The function returns nothing yet."),
    ],
)
def test_the_norm_of_all_gradients(capsys, answer, said):
    assert said in verdict(capsys, nccl.norm, answer)
