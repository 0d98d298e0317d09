"""What real ranks send is what the cost of the algorithm says."""

import pytest
import torch
import torch.distributed as dist

from allranks import collectives, launch
from allranks.trace import trace

N = 120_000  # bytes


def on_the_wire():
    rank, p = dist.get_rank(), dist.get_world_size()
    whole, chunk = torch.ones(N, dtype=torch.uint8), torch.ones(N // p, dtype=torch.uint8)
    chunks = list(torch.ones(p, N // p, dtype=torch.uint8))
    calls = {
        "all_reduce": lambda: dist.all_reduce(whole),
        "broadcast": lambda: dist.broadcast(whole, src=0),
        "reduce": lambda: dist.reduce(whole, dst=0),
        "all_gather": lambda: dist.all_gather_single(whole, chunk),
        "reduce_scatter": lambda: dist.reduce_scatter_single(chunk, whole),
        "all_to_all": lambda: dist.all_to_all_single(whole, whole.clone()),
        "gather": lambda: dist.gather(chunk, chunks if rank == 0 else None, dst=0),
        "scatter": lambda: dist.scatter(chunk, chunks if rank == 0 else None, src=0),
    }
    sent = {}
    for name, call in calls.items():
        dist.barrier()
        with trace() as counted:
            call()
        dist.barrier()
        sent[name] = counted.wire
    return sent


@pytest.fixture(scope="module", params=[2, 4, 5])
def gloo(request):
    by_rank = launch(on_the_wire, world_size=request.param)
    return request.param, {name: [sent[name] for sent in by_rank] for name in by_rank[0]}


@pytest.mark.parametrize(
    "collective, algorithm",
    [
        ("all_reduce", "ring"),
        ("broadcast", "binomial_tree"),
        ("reduce", "ring_gather"),
        ("all_gather", "ring"),
        ("all_to_all", "pairwise"),
        ("gather", "linear"),
        ("scatter", "linear"),
    ],
)
def test_each_rank_of_gloo_sends_what_its_algorithm_says(gloo, collective, algorithm):
    world_size, wire = gloo
    for counted, sent in zip(wire[collective], collectives.sent(collective, algorithm, N, world_size)):
        assert sent <= counted <= sent + 0.02 * N  # headers


def test_gloos_reduce_scatter_is_an_all_reduce_of_which_each_rank_keeps_its_part(gloo):
    world_size, wire = gloo
    sent = collectives.sent("all_reduce", "ring", N, world_size)
    assert all(s <= counted <= s + 0.02 * N for s, counted in zip(sent, wire["reduce_scatter"]))


def doubled():
    """Recursive doubling with real messages: the sum, and what this rank has sent."""
    rank, p = dist.get_rank(), dist.get_world_size()
    x, theirs = torch.full((100,), rank), torch.empty(100, dtype=torch.int64)
    with trace() as counted:
        distance = 1
        while distance < p:
            ops = [(dist.isend, x), (dist.irecv, theirs)]
            for work in dist.batch_isend_irecv([dist.P2POp(op, t, rank ^ distance) for op, t in ops]):
                work.wait()
            x += theirs
            distance *= 2
    return x[0].item(), counted.sent, counted.calls["send"]


@pytest.mark.parametrize("world_size", [2, 4, 8])
def test_real_ranks_that_double_send_what_is_predicted(world_size):
    results = launch(doubled, world_size=world_size)
    assert [x for x, _, _ in results] == [sum(range(world_size))] * world_size
    assert [sent for _, sent, _ in results] == collectives.sent(
        "all_reduce", "recursive_doubling", 800, world_size
    )
    assert results[0][2] == collectives.cost("all_reduce", "recursive_doubling", 800, world_size).rounds
