"""An all-reduce played move by move sums, costs what is counted, and says whose values a chunk holds."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks import collectives

FLAT = [name for name in collectives.PLAYED if name != "two_level"]
CASES = [(name, p, 1) for name in FLAT for p in (1, 2, 3, 4, 5, 6, 7, 8, 12, 16)]
CASES += [("two_level", p, g) for p, g in [(1, 1), (4, 1), (4, 2), (4, 4), (6, 3), (8, 2), (8, 4), (16, 4)]]
PLAYED = pytest.mark.parametrize("algorithm, p, g", CASES)


def moves_of(algorithm, p, g):
    """Each round's moves."""
    return [each.moves for each in collectives.all_reduce_rounds(algorithm, p, g)]


@PLAYED
def test_every_rank_ends_with_the_sum(algorithm, p, g):
    rng = random.Random(p)
    chunks = collectives.all_reduce_chunks(algorithm, p, g)
    own = [[rng.randrange(1000) for _ in range(chunks)] for _ in range(p)]
    values = [list(row) for row in own]
    for number, moves in enumerate(moves_of(algorithm, p, g), 1):
        before = [list(row) for row in values]
        for move in moves:
            for chunk in range(move.first, move.last):
                kept = before[move.target][chunk] if move.adds else 0
                values[move.target][chunk] = kept + before[move.source][chunk]
        held = collectives.contributions(algorithm, p, number, g)
        for rank in range(p):
            for chunk in range(chunks):
                assert len(set(held[rank][chunk])) == len(held[rank][chunk]), "a value is summed twice"
                assert values[rank][chunk] == sum(own[each][chunk] for each in held[rank][chunk])
    sums = [sum(own[rank][chunk] for rank in range(p)) for chunk in range(chunks)]
    assert values == [sums] * p
    everyone = [[tuple(range(p))] * chunks] * p
    assert collectives.contributions(algorithm, p, 10**6, g) == everyone


@PLAYED
def test_a_rank_sends_and_receives_at_most_one_message_a_round(algorithm, p, g):
    for moves in moves_of(algorithm, p, g):
        assert len({move.source for move in moves}) == len(moves)
        assert len({move.target for move in moves}) == len(moves)


@PLAYED
def test_the_rounds_cost_what_is_counted(algorithm, p, g):
    chunks = collectives.all_reduce_chunks(algorithm, p, g)
    nbytes = chunks * 1000
    inside = outside = collectives.Cost(0, 0)
    sent = [0] * p
    for each in collectives.all_reduce_rounds(algorithm, p, g):
        cost = collectives.round_cost(each, chunks, nbytes)
        inside, outside = (inside.then(cost), outside) if each.inside else (inside, outside.then(cost))
        for move in each.moves:
            sent[move.source] += (move.last - move.first) * 1000
            assert not each.inside or move.source // g == move.target // g
    if algorithm == "two_level":
        assert collectives.Levels(inside, outside) == collectives.hierarchical_all_reduce(nbytes, g, p // g)
    else:
        assert outside == collectives.cost("all_reduce", algorithm, nbytes, p)
        assert sent == collectives.sent("all_reduce", algorithm, nbytes, p)


def test_after_its_reduce_scatter_a_ring_s_rank_r_holds_chunk_r():
    for p in (2, 5, 8):
        held = collectives.contributions("ring", p, p - 1)
        complete = [[len(chunk) == p for chunk in row] for row in held]
        assert complete == [[chunk == rank for chunk in range(p)] for rank in range(p)]


@pytest.mark.parametrize("p", [4, 8, 64])
def test_two_straight_lines_meet_at_the_crossover(p):
    def ends(name):
        cost = collectives.cost("all_reduce", name, 1, p)
        return 1e-5 * cost.rounds, 1e-9 * cost.nbytes

    pair = "ring", "recursive_doubling"
    crossover = collectives.crossover("all_reduce", *pair, p, 1e-5, 1e-9)
    assert collectives.meeting(ends(pair[0]), ends(pair[1])) == pytest.approx(crossover)
    assert collectives.meeting((1, 1), (1, 1)) is None
    assert collectives.meeting((1, 1), (2, 2)) is None


def test_what_cannot_be_played_is_refused():
    with pytest.raises(ValueError, match="algorithm must be one of 'ring'"):
        collectives.all_reduce_rounds("double_tree", 4)
    with pytest.raises(ValueError, match="world_size must be a multiple of ranks_per_node = 3, not 4"):
        collectives.all_reduce_chunks("two_level", 4, 3)


@given(
    st.lists(st.floats(0, 10), min_size=1, max_size=12).map(sorted),
    st.lists(st.integers(1, 4), min_size=1, max_size=12),
    st.floats(0, 5),
)
def test_buckets_leave_in_order_once_they_are_full(ready, lengths, time):
    buckets, left = [], list(range(len(ready)))
    for length in lengths + [len(ready)]:
        buckets, left = buckets + [left[:length]] * bool(left), left[length:]
    result = collectives.overlapped(ready, buckets, [time] * len(buckets))
    assert result.filled == [ready[bucket[-1]] for bucket in buckets]
    for k, start in enumerate(result.starts):
        assert start == max(result.filled[k], result.ends[k - 1] if k else 0)
    assert result.backward == ready[-1]
    assert result.exposed <= result.communication + 1e-9
    assert result.end >= ready[-1] + time - 1e-9  # the last bucket's all-reduce is never hidden


def test_one_bucket_hides_nothing_and_many_hide_all_but_the_last():
    sizes = [10**6] * 10
    one = collectives.bucketed_backward(sizes, 0.1, [list(range(10))], 4, 0, 1e-9)
    assert (one.hidden, one.starts) == (0, [0.1])
    assert one.exposed == pytest.approx(collectives.ring_all_reduce(10**7, 4).seconds(0, 1e-9))
    many = collectives.bucketed_backward(sizes, 0.1, [[i] for i in range(10)], 4, 0, 1e-9)
    assert many.exposed == pytest.approx(one.exposed / 10)
    assert many.communication == pytest.approx(one.communication)


def test_where_the_network_limits_more_latencies_only_cost():
    sizes, α = [10**6] * 10, 1e-4
    one = collectives.bucketed_backward(sizes, 0, [list(range(10))], 4, α, 1e-9)
    many = collectives.bucketed_backward(sizes, 0, [[i] for i in range(10)], 4, α, 1e-9)
    assert many.exposed - one.exposed == pytest.approx(9 * 6 * α)


def test_a_bucket_without_a_time_is_refused():
    with pytest.raises(ValueError, match="all_reduces must have 2 times, one a bucket, not 1"):
        collectives.overlapped([1, 2], [[0], [1]], [3])
