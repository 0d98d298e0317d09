"""A parameter server trains the model of one process, whoever owns which slice, as stale as its turns."""

import pytest
import torch
import torch.distributed as dist

from allranks import launch, parameter_server
from allranks.parallel.parameter_server import pull, push, serve, serve_in_turns, work
from allranks.trace import trace

RATE, STEPS = 0.5, 3


def gradient_at(weights, target):
    return weights.sin() - target


def targets(workers):
    return torch.randn(STEPS, workers, 24, generator=torch.Generator().manual_seed(0))


def in_one_process(workers):
    weights = torch.zeros(24)
    for step in targets(workers):
        weights = weights - RATE * sum(gradient_at(weights, target) for target in step) / workers
    return weights


def served():
    weights, rank, workers = torch.zeros(24), dist.get_rank(), dist.get_world_size() - 1
    with trace() as counted:
        if rank == 0:
            serve(weights, RATE, STEPS)
        else:
            work(weights, gradient_at, targets(workers)[:, rank - 1])
    return weights, counted.sent


@pytest.mark.parametrize("world_size", [2, 4])
def test_one_server_trains_the_model_of_one_process(world_size):
    slices = [24 * 4] + [0] * (world_size - 1)
    expected = parameter_server.sent_bytes(slices, range(1, world_size))
    for (weights, sent), nbytes in zip(launch(served, world_size=world_size), expected, strict=True):
        torch.testing.assert_close(weights, in_one_process(world_size - 1))
        assert sent == STEPS * nbytes


def with_slices(slices, workers):
    weights, rank = torch.zeros(24), dist.get_rank()
    with trace() as counted:
        for step in targets(len(workers)):
            gradient = torch.zeros(24)
            if rank in workers:
                gradient = gradient_at(weights, step[workers.index(rank)])
            weights.split(slices)[rank].sub_(RATE * push(gradient, slices, workers) / len(workers))
            pull(weights, slices, workers)
    return weights, counted.sent


LAYOUTS = {
    "one server": ([24, 0, 0, 0], [1, 2, 3]),
    "two servers": ([12, 12, 0, 0, 0], [2, 3, 4]),
    "every worker": ([8, 8, 8], [0, 1, 2]),
    "uneven": ([5, 0, 19], [0, 1, 2]),
    "with spare servers": ([3, 3, 3, 15], [0, 1, 2]),
    "alone": ([24], [0]),
}


@pytest.mark.parametrize("slices, workers", LAYOUTS.values(), ids=LAYOUTS)
def test_all_owners_of_slices_train_the_same_model_to_the_last_bit(slices, workers):
    ranks = launch(with_slices, slices, workers, world_size=len(slices))
    expected = parameter_server.sent_bytes([4 * elements for elements in slices], workers)
    for rank, (weights, sent) in enumerate(ranks):
        assert sent == STEPS * expected[rank]
        if rank in workers:
            assert torch.equal(weights, in_one_process(len(workers)))


def as_collectives():
    p, rank = dist.get_world_size(), dist.get_rank()
    gradient = torch.randn(8 * p, generator=torch.Generator().manual_seed(rank))
    slices, workers = [8] * p, list(range(p))
    with trace() as ours:
        pushed = push(gradient, slices, workers)
        pulled = torch.zeros(8 * p)
        pulled.split(slices)[rank].copy_(pushed)
        pull(pulled, slices, workers)
    with trace() as theirs:
        scattered, gathered = torch.empty(8), torch.empty(8 * p)
        dist.reduce_scatter_single(scattered, gradient)
        dist.all_gather_single(gathered, scattered)
    torch.testing.assert_close(pushed, scattered)
    torch.testing.assert_close(pulled, gathered)
    return ours.sent, theirs.sent


@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_a_push_is_a_reduce_scatter_and_a_pull_an_all_gather(world_size):
    for ours, theirs in launch(as_collectives, world_size=world_size):
        assert ours == theirs


def asynchronous(turns, pushes):
    weights, rank = torch.zeros(3), dist.get_rank()
    if rank == 0:
        return serve_in_turns(weights, 0.1, turns), weights
    return work(weights, gradient_at, [float(rank)] * pushes[rank - 1]), weights


def replayed(turns):
    weights = torch.zeros(3)
    pulled = dict.fromkeys(turns, weights)
    for worker in turns:
        weights = pulled[worker] = weights - 0.1 * gradient_at(pulled[worker], float(worker))
    return weights


@pytest.mark.parametrize("turns", [[1, 2, 3] * 3, [1, 2, 1, 3] * 2, [1], [3, 3, 1, 2]])
def test_an_asynchronous_run_can_be_replayed_from_its_turns(turns):
    pushes = [turns.count(worker) for worker in range(1, max(turns) + 1)]
    (stale, weights), *_ = launch(asynchronous, turns, pushes, world_size=max(turns) + 1)
    assert stale == parameter_server.staleness(turns)
    torch.testing.assert_close(weights, replayed(turns))


def test_whoever_comes_first_is_no_staler_than_the_bound(monkeypatch):
    monkeypatch.delenv("ALLRANKS_RULES")  # NCCL has no receive from anyone
    (stale, _), *_ = launch(asynchronous, [None] * 30, [10, 10, 10], world_size=4)
    assert min(stale) >= 0
    assert 0 < sum(stale) <= parameter_server.most_staleness(3, 30)
