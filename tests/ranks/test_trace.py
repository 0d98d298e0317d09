"""`trace` counts what was counted by hand, whoever starts the communication."""

import os
from collections import Counter

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from allranks import collectives, launch
from allranks.trace import trace

N = 1000  # elements of 4 bytes


def plain():
    rank, world_size = dist.get_rank(), dist.get_world_size()
    mine, parts = torch.ones(N), [torch.ones(N) for _ in range(world_size)]
    whole = torch.ones(N * world_size)
    calls = {
        "all_reduce": lambda: dist.all_reduce(mine),
        "async all_reduce": lambda: dist.all_reduce(mine, async_op=True).wait(),
        "broadcast": lambda: dist.broadcast(mine, src=0),
        "reduce": lambda: dist.reduce(mine, dst=0),
        "all_gather": lambda: dist.all_gather(parts, mine),
        "all_gather_single": lambda: dist.all_gather_single(whole, mine),
        "reduce_scatter": lambda: dist.reduce_scatter(mine, parts),
        "reduce_scatter_single": lambda: dist.reduce_scatter_single(mine, whole),
        "all_to_all": lambda: dist.all_to_all(parts, [torch.ones(N) for _ in parts]),
        "all_to_all_single": lambda: dist.all_to_all_single(whole, whole.clone()),
        "gather": lambda: dist.gather(mine, parts if rank == 0 else None, dst=0),
        "scatter": lambda: dist.scatter(mine, parts if rank == 0 else None, src=0),
        "barrier": lambda: dist.barrier(),
    }
    counts = {}
    for name, call in calls.items():
        with trace() as counted:
            call()
        counts[name] = counted.calls, counted.bytes
    return counts


@pytest.fixture(scope="module", params=[2, 4])
def plain_counts(request):
    return request.param, launch(plain, world_size=request.param)


@pytest.mark.parametrize(
    "call, kind, parts",
    [
        ("all_reduce", "all_reduce", 1),
        ("async all_reduce", "all_reduce", 1),
        ("broadcast", "broadcast", 1),
        ("reduce", "reduce", 1),
        ("all_gather", "all_gather", "p"),
        ("all_gather_single", "all_gather", "p"),
        ("reduce_scatter", "reduce_scatter", "p"),
        ("reduce_scatter_single", "reduce_scatter", "p"),
        ("all_to_all", "all_to_all", "p"),
        ("all_to_all_single", "all_to_all", "p"),
        ("gather", "gather", 1),
        ("scatter", "scatter", 1),
        ("barrier", "barrier", 0),
    ],
)
def test_a_plain_collective_is_counted_with_its_message(plain_counts, call, kind, parts):
    world_size, counts = plain_counts
    nbytes = 4 * N * (world_size if parts == "p" else parts)
    for of_rank in counts:
        assert of_rank[call] == (Counter({kind: 1}), Counter({kind: nbytes}))


def point_to_point():
    rank, other = dist.get_rank(), 1 - dist.get_rank()
    with trace() as counted:
        if rank == 0:
            dist.send(torch.ones(N), dst=1)
        else:
            dist.recv(torch.ones(N), src=0)
        both = [
            dist.P2POp(dist.isend, torch.ones(N), other),
            dist.P2POp(dist.irecv, torch.ones(N), other),
        ]
        for work in dist.batch_isend_irecv(both):
            work.wait()
    return counted.calls, counted.sent


def test_sends_and_receives_are_counted_on_the_rank_that_makes_them():
    first, second = launch(point_to_point, world_size=2)
    assert first == (Counter(send=2, recv=1), 8 * N)
    assert second == (Counter(send=1, recv=2), 4 * N)


def test_a_rank_can_return_what_it_counted():
    def count():
        with trace() as counted:
            dist.all_reduce(torch.ones(N))
        return counted

    for counted in launch(count, world_size=2):
        assert (counted.calls, counted.sent) == (Counter(all_reduce=1), 4 * N)
        assert counted.wire > counted.sent


def subgroup():
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    with trace() as counted:
        dist.all_reduce(torch.ones(N), group=groups[dist.get_rank() // 2])
    return counted.log, counted.sent


def test_a_collective_of_a_group_costs_what_its_group_costs():
    for (call,), sent in launch(subgroup, world_size=4):
        assert call.group_size == 2
        assert sent == collectives.ring_all_reduce_bytes(4 * N, world_size=2)


def both_counters(make):
    """Count a forward and a backward pass with `trace`, and another with torch's CommDebugMode."""
    model, x = make()
    for _ in range(2):  # DDP and FSDP2 set things up in the first passes
        model(x).sum().backward()
    with trace() as counted:
        model(x).sum().backward()
    with CommDebugMode() as torchs:
        model(x).sum().backward()
    return counted.calls, counted.bytes, sum(torchs.get_comm_counts().values())


def mlp():
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 8))


PARAMETERS = 8 * 16 + 16 + 16 * 8 + 8


def test_ddp_reduces_each_gradient_once():
    def make():
        return DistributedDataParallel(mlp()), torch.ones(2, 8, requires_grad=True)

    for calls, nbytes, torchs in launch(both_counters, make, world_size=2):
        assert calls == Counter(all_reduce=1)
        assert nbytes["all_reduce"] == 4 * PARAMETERS
        assert torchs == 1


def test_fsdp2_gathers_parameters_twice_and_scatters_gradients_once():
    def make():
        model = mlp()
        for layer in model:
            fully_shard(layer)
        return fully_shard(model), torch.ones(2, 8, requires_grad=True)

    for calls, nbytes, torchs in launch(both_counters, make, world_size=2):
        # Two layers: gathered in the forward pass and again in the backward pass, gradients scattered once.
        assert calls == Counter(all_gather=4, reduce_scatter=2)
        assert nbytes["all_gather"] == 2 * 4 * PARAMETERS
        assert nbytes["reduce_scatter"] == 4 * PARAMETERS
        assert torchs == sum(calls.values())


def test_a_tensor_parallel_mlp_reduces_its_output_and_its_input_gradient():
    def make():
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        model = parallelize_module(mlp(), mesh, {"0": ColwiseParallel(), "1": RowwiseParallel()})
        return model, torch.ones(2, 8, requires_grad=True)

    for calls, nbytes, torchs in launch(both_counters, make, world_size=2):
        assert calls == Counter(all_reduce=2)
        assert nbytes["all_reduce"] == 2 * 4 * 2 * 8
        assert torchs == 2


def redistribute():
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    rows = distribute_tensor(torch.ones(8, 8), mesh, [Shard(0)])
    with trace() as gathered:
        rows.redistribute(mesh, [Replicate()]).to_local().sum()
    with trace() as exchanged:
        rows.redistribute(mesh, [Shard(1)]).to_local().sum()
    return gathered.bytes, exchanged.calls


def test_a_dtensor_that_changes_its_layout_is_counted():
    for gathered, exchanged in launch(redistribute, world_size=4):
        assert gathered == Counter(all_gather=4 * 64)
        assert exchanged == Counter(all_gather=1)  # an all-to-all on GPUs; on CPUs DTensor gathers instead


def softmax_of_a_part():
    """A softmax over the dim that is shared out: DTensor gathers it by itself."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    columns = distribute_tensor(torch.ones(4, 8), mesh, [Shard(1)])
    with trace() as counted:  # alone: torch's counter, above it, would unwrap the DTensor for it
        columns.softmax(dim=1)
    with CommDebugMode() as torchs:
        columns.softmax(dim=1)
    return counted.calls, torchs.get_total_counts()


def test_a_collective_inside_an_operator_of_dtensor_is_counted():
    for calls, torchs in launch(softmax_of_a_part, world_size=2):
        assert sum(calls.values()) == torchs == 1


def on_the_wire(n):
    x = torch.ones(n)
    dist.barrier()
    with trace() as counted:
        dist.all_reduce(x)
    dist.barrier()
    return counted.wire


@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_sockets_send_what_the_ring_formula_says(world_size):
    n = 250_000
    for wire in launch(on_the_wire, n, world_size=world_size):
        assert wire == pytest.approx(collectives.ring_all_reduce_bytes(4 * n, world_size), rel=0.01)
        assert wire > collectives.ring_all_reduce_bytes(4 * n, world_size)  # headers


def test_beside_nccl_the_sockets_of_gloo_say_nothing_of_the_message():
    def beside(n):
        dist.get_backend = lambda: "cpu:gloo,cuda:nccl"  # of ranks on GPUs
        return on_the_wire(n)

    assert launch(beside, 1000, world_size=2) == [None, None]


def test_nothing_is_counted_outside_the_block():
    def outside():
        with trace() as counted:
            pass
        dist.all_reduce(torch.ones(N))
        return counted.calls, counted.wire

    assert launch(outside, world_size=2) == [(Counter(), 0), (Counter(), 0)]


def test_counting_leaves_no_open_file():
    def many():
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(20):
            with trace():
                pass
        return len(os.listdir("/proc/self/fd")) - before

    assert max(launch(many, world_size=2)) <= 0  # gloo may close one of its own meanwhile
