"""Sparse and low-rank averages lose nothing, and the low-rank one is torch's PowerSGD."""

import numpy
import pytest
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from allranks import compression, launch
from allranks.parallel.compression import LowRank, Sparse
from allranks.trace import trace


def books(make, shape, steps=6):
    """All gradients so far, averaged over ranks, less what waits on each; and what was averaged."""
    averager, owed, averaged = make(), 0, 0
    generator = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(steps):
        gradient = torch.randn(shape, generator=generator)
        owed = owed + gradient
        averaged = averaged + averager.average(gradient)
    owed = owed - averager.residual
    dist.all_reduce(owed, op=dist.ReduceOp.AVG)
    return owed, averaged


@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize(
    "make, shape", [(lambda: Sparse(7), (200,)), (lambda: LowRank(torch.eye(12, 2)), (20, 12))]
)
def test_what_was_averaged_and_what_waits_are_all_gradients(world_size, make, shape):
    ranks = launch(books, make, shape, world_size=world_size)
    for owed, averaged in ranks:
        torch.testing.assert_close(averaged, owed, rtol=1e-3, atol=1e-4)
        assert torch.equal(averaged, ranks[0][1])


def test_without_a_residual_the_rest_is_lost():
    owed, averaged = launch(books, lambda: Sparse(7, keep=False), (200,), world_size=2)[0]
    assert (averaged - owed).norm() > 0.5 * owed.norm()


def test_all_elements_are_the_dense_average():
    def on_rank():
        gradient = torch.randn(50, generator=torch.Generator().manual_seed(dist.get_rank()))
        found = Sparse(50).average(gradient)
        dist.all_reduce(gradient, op=dist.ReduceOp.AVG)
        return found, gradient

    for found, expected in launch(on_rank, world_size=3):
        torch.testing.assert_close(found, expected)


def counted(make, shape):
    averager = make()
    with trace() as seen:
        averager.average(torch.randn(shape))
    return seen.sent, seen.calls


def test_the_bytes_are_those_of_the_arithmetic():
    sent, calls = launch(counted, lambda: Sparse(7), (200,), world_size=4)[0]
    assert sent == compression.sparse_bytes(7, 4)
    assert dict(calls) == {"all_gather": 2}
    sent, calls = launch(counted, lambda: LowRank(torch.eye(12, 2)), (20, 12), world_size=2)[0]
    assert sent == 4 * compression.power_sgd_elements([(20, 12)], 2)  # 2(p − 1)/p is 1 on two ranks
    assert dict(calls) == {"all_reduce": 2}


def hooked(r):
    torch.manual_seed(0)
    layer = torch.nn.Linear(24, 16, bias=False)
    call = DistributedDataParallel(layer)
    state = powerSGD_hook.PowerSGDState(None, r, start_powerSGD_iter=2)
    call.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    inputs = torch.Generator().manual_seed(dist.get_rank())
    own, averaged = [], []
    for _ in range(6):
        x = torch.randn(8, 24, generator=inputs)
        call.zero_grad()
        call(x).square().sum().backward()
        averaged.append(layer.weight.grad.clone())
        own += torch.autograd.grad(layer(x).square().sum(), layer.weight)
    torch.manual_seed(numpy.random.RandomState(0).randint(1_000_000_000))
    low_rank = LowRank(torch.randn(24, r))
    return [low_rank.average(g) for g in own[2:]], averaged[2:]


@pytest.mark.parametrize("r", [1, 3])
def test_low_rank_is_torchs_power_sgd(r):
    for ours, theirs in launch(hooked, r, world_size=3):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)
