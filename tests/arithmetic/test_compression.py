"""What compressed gradients send is what collectives send, and grows with ranks where they do not add up."""

import pytest
import torch
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

from allranks import collectives, compression


@pytest.mark.parametrize("world_size", [2, 7, 64])
@pytest.mark.parametrize("value, index", [(4, 4), (4, 8), (2, 4)])
def test_the_share_is_sparse_bytes_over_the_dense_all_reduce(world_size, value, index):
    elements, density = 1_000_000, 0.01
    sparse = compression.sparse_bytes(density * elements, world_size, value, index)
    dense = collectives.ring_all_reduce_bytes(elements * value, world_size)
    assert compression.sparse_share(density, world_size, value, index) == pytest.approx(sparse / dense)


def test_at_one_percent_and_a_hundred_ranks_nothing_is_saved():
    assert compression.sparse_share(0.01, 100) == pytest.approx(1)


@pytest.mark.parametrize("rank", [1, 2, 50])
def test_power_sgd_compresses_what_torch_compresses(rank):
    shapes = [(64, 64), (128,), (256, 64), (1, 5), (28, 32), (16, 3, 3, 3)]
    total = 0
    for shape in shapes:
        n, m = shape[0], torch.Size(shape).numel() // shape[0]
        shorten, whole, factors = powerSGD_hook._should_compress(n, m, min(n, m, rank), 2)
        total += factors if shorten and len(shape) > 1 else whole
    assert compression.power_sgd_elements(shapes, rank) == total


def test_on_the_fastest_link_that_pays_both_take_as_long():
    nbytes, share, seconds, ranks = 1e8, 0.064, 0.01, 64
    link = compression.fastest_link(nbytes, share, seconds, ranks)
    dense = collectives.ring_all_reduce_bytes(nbytes, ranks) / link
    assert share * dense + seconds == pytest.approx(dense)


@pytest.mark.parametrize("world_size", [2, 7, 64])
@pytest.mark.parametrize("value", [2, 4])
def test_the_cost_has_the_bytes_that_ranks_send(world_size, value):
    elements = 1_000_000
    given = {"density": 0.01, "factors": 20_000, "value_bytes": value}
    sent = {each: compression.cost(each, elements, world_size, **given) for each in compression.METHODS}
    assert sent["dense"].nbytes == collectives.ring_all_reduce_bytes(elements * value, world_size)
    assert sent["top_k"].nbytes == pytest.approx(compression.sparse_bytes(10_000, world_size, value))
    assert sent["power_sgd"].nbytes == collectives.ring_all_reduce_bytes(20_000 * value, world_size)
    assert sent["one_bit"].nbytes == pytest.approx(sent["dense"].nbytes / (8 * value))
    one = world_size - 1
    assert [each.rounds for each in sent.values()] == [2 * one, 2 * one, 2 * one, 6 * one]


def test_seconds_are_compressing_and_latencies_and_bytes():
    cost = compression.cost("one_bit", 8e6, 4)
    parts = compression.seconds("one_bit", 8e6, 4, latency=1e-5, bandwidth=1e9, rate=1e10)
    assert parts == (8e6 * 4 / 1e10, 6 * 1e-5, cost.nbytes / 1e9)
    assert compression.seconds("dense", 8e6, 4, 1e-5, 1e9, 1e10)[0] == 0


def test_the_fastest_is_dense_on_a_fast_link_and_low_rank_on_a_slow_one_of_many_ranks():
    given = {"latency": 1e-5, "rate": 1e10, "factors": 1e6, "value_bytes": 2}
    assert compression.fastest(6e9, 64, bandwidth=1e12, **given) == "dense"
    assert compression.fastest(6e9, 64, bandwidth=1e9, **given) == "power_sgd"
    assert compression.fastest(1e6, 1024, bandwidth=1e9, **given) == "one_bit"


def test_a_warm_up_of_15_percent_leaves_a_fifth_of_the_bytes():
    assert compression.saved_by_warm_up(0.15) == pytest.approx(4.92, abs=0.005)
    assert compression.saved_by_warm_up(0) == 16
    with pytest.raises(ValueError, match="warm_up must be a share of the steps, from 0 to 1, not 15"):
        compression.saved_by_warm_up(15)


def test_an_unknown_method_is_refused():
    with pytest.raises(ValueError, match="method must be one of 'dense', 'top_k', 'one_bit', 'power_sgd'"):
        compression.cost("gzip", 1, 2)
