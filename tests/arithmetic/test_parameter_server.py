"""Who owns how much decides who sends how much; pushes are as stale as the others are many."""

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks import collectives, parameter_server


@pytest.mark.parametrize("world_size", [2, 4, 7])
def test_one_server_sends_what_a_central_all_reduce_sends(world_size):
    sent = parameter_server.sent_bytes([840] + [0] * (world_size - 1), range(1, world_size))
    assert sent == collectives.sent("all_reduce", "central", 840, world_size)


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 8])
def test_where_every_worker_serves_each_sends_what_it_sends_in_a_ring(world_size):
    sent = parameter_server.sent_bytes([840 // world_size] * world_size, range(world_size))
    assert sent == [collectives.ring_all_reduce_bytes(840, world_size)] * world_size


@pytest.mark.parametrize("workers, servers", [(4, 1), (4, 2), (4, 8), (3, 3)])
def test_dedicated_servers_share_what_one_would_send(workers, servers):
    slices = [0] * workers + [840 / servers] * servers
    sent = parameter_server.sent_bytes(slices, range(workers))
    assert sent == [840] * workers + [840 * workers / servers] * servers


@pytest.mark.parametrize("workers", [2, 3, 8, 64])
@pytest.mark.parametrize("share", [0, 0.25, 0.5, 1])
def test_the_best_slices_are_those_of_theorem_1(workers, share):
    spare = int(share * workers)
    own, extra = parameter_server.best_slices(1, workers, spare)
    sent = parameter_server.sent_bytes([own] * workers + [extra] * spare, range(workers))
    assert sum([own] * workers + [extra] * spare) == pytest.approx(1)
    published = 2 * workers * (workers - 1) / (workers**2 + spare * workers - 2 * spare)
    assert sent == pytest.approx([published] * (workers + spare))


@pytest.mark.parametrize("workers, spare", [(4, 1), (4, 2), (8, 3)])
@given(shift=st.floats(-0.99, 0.99))
def test_no_other_division_has_a_less_busy_rank(workers, spare, shift):
    own, extra = parameter_server.best_slices(1, workers, spare)
    moved = own * (1 + shift)
    slices = [moved] * workers + [(1 - workers * moved) / spare] * spare
    if min(slices) >= 0:
        best = parameter_server.sent_bytes([own] * workers + [extra] * spare, range(workers))
        assert max(parameter_server.sent_bytes(slices, range(workers))) >= max(best) - 1e-9


def test_in_turns_every_push_but_the_first_is_one_less_stale_than_there_are_workers():
    assert parameter_server.staleness([1, 2, 3] * 3) == [0, 1, 2] + [2] * 6
    assert parameter_server.staleness([5] * 4) == [0] * 4


@given(st.lists(st.integers(1, 5), max_size=40).map(lambda some: [*some, 1, 2, 3, 4, 5]))
def test_in_any_order_the_mean_staleness_is_below_the_other_workers(turns):
    total = sum(parameter_server.staleness(turns))
    last = {worker: place for place, worker in enumerate(turns)}
    assert total == sum(place + 1 - turns.count(worker) for worker, place in last.items())
    assert total <= parameter_server.most_staleness(5, len(turns)) < 4 * len(turns)


def test_workers_in_turns_reach_the_bound():
    for workers in (1, 2, 5):
        turns = list(range(workers)) * 7
        assert sum(parameter_server.staleness(turns)) == parameter_server.most_staleness(workers, len(turns))


@pytest.mark.parametrize("stale", range(12))
def test_at_the_largest_rate_the_first_root_reaches_the_unit_circle(stale):
    def radius(rate):
        return max(abs(numpy.roots([1, -1, *[0] * (stale - 1), rate] if stale else [1, rate - 1])))

    rate = parameter_server.largest_rate(stale)
    assert radius(rate) == pytest.approx(1)
    assert radius(0.99 * rate) < 1 < radius(1.01 * rate)
