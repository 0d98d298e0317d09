"""The cost of a collective is the published one."""

import pytest

from allranks import collectives


@pytest.mark.parametrize("world_size", range(1, 9))
def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather(world_size):
    steps = world_size - 1
    part = 840 / world_size
    assert collectives.ring_all_reduce_bytes(840, world_size) == pytest.approx(2 * steps * part)


def test_the_factor_of_an_all_reduce_tends_to_two():
    """nccl-tests, performance notes: the bus-bandwidth factor of all-reduce is 2(n-1)/n."""
    assert [collectives.ring_all_reduce_bytes(1, p) for p in (1, 2, 4, 8)] == [0, 1, 1.5, 1.75]
    assert collectives.ring_all_reduce_bytes(1, 10**6) == pytest.approx(2, rel=1e-5)


@pytest.mark.parametrize(
    "world_size, rounds", [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (8, 3), (9, 4), (1024, 10)]
)
def test_a_tree_broadcast_takes_log2_rounds(world_size, rounds):
    assert collectives.tree_broadcast_rounds(world_size) == rounds


def test_a_message_costs_its_latency_and_its_bytes():
    assert collectives.message_seconds(0, α=5e-6, β=1e-9) == 5e-6
    assert collectives.message_seconds(5000, α=5e-6, β=1e-9) == pytest.approx(1e-5)
