"""Small programs of sends and receives end after the published rounds, or in the circle that stops them."""

import pytest

from allranks.collectives import tree_broadcast_rounds
from allranks.ranks.faults import DEADLOCK
from allranks.ranks.patterns import PATTERNS, chain, circle, gaps, play, rounds, stuck

SIZES = range(2, 9)


def waited(played, rank):
    return sum(gap.stop - gap.start for gap in gaps(played) if gap.rank == rank)


@pytest.mark.parametrize("p", SIZES)
def test_a_tree_takes_the_rounds_that_the_cost_model_counts_and_one_after_another_p_minus_1(p):
    assert rounds(play("tree", p)) == tree_broadcast_rounds(p)
    assert rounds(play("in_turn", p)) == p - 1
    assert len(play("tree", p).world.events) == len(play("in_turn", p).world.events) == p - 1


@pytest.mark.parametrize("p", SIZES)
def test_the_tree_sends_what_the_chapter_sends(p):
    def program(rank):  # `broadcast` of the chapter Ranks, with its sends and receives as a list
        know, calls = 1, []
        while know < p:
            if rank < know and rank + know < p:
                calls.append(("send", rank + know))
            elif know <= rank < 2 * know:
                calls.append(("recv", rank - know))
            know *= 2
        return calls

    assert PATTERNS["tree"](p) == [program(rank) for rank in range(p)]


@pytest.mark.parametrize("p", SIZES)
def test_a_ring_of_blocking_calls_is_stuck_whichever_comes_first(p):
    for pattern, step in (("all_send", 1), ("all_receive", -1)):
        played = play(pattern, p)
        assert played.world.failure.kind == DEADLOCK and played.world.events == []
        assert circle(played) == [step * turn % p for turn in range(p)] + [0]
        assert stuck(played) == list(range(p))


@pytest.mark.parametrize("p", SIZES)
def test_a_ring_in_which_even_ranks_send_first_takes_a_third_round_if_p_is_odd(p):
    assert rounds(play("even_send", p)) == 2 + p % 2
    assert rounds(play("begin", p)) == 1
    assert rounds(play("token", p)) == p
    assert len({len(play(name, p).world.events) for name in ("even_send", "begin", "token")}) == 1


@pytest.mark.parametrize("p", SIZES)
def test_pairs_exchange_in_two_rounds_or_wait_for_each_other(p):
    assert rounds(play("pairs", p)) == 2
    assert circle(play("pairs_send", p)) == [0, 1, 0]
    assert stuck(play("pairs_send", p)) == list(range(p - p % 2))


@pytest.mark.parametrize("p", SIZES)
def test_a_send_that_is_missing_stops_every_odd_rank_and_no_circle(p):
    played = play("forgets", p)
    assert circle(played) == [] and stuck(played) == list(range(1, p, 2))
    assert played.world.failure.ranks == list(range(0, p, 2)), "those that returned"


def test_a_wait_is_passed_on_to_the_rank_that_returned():
    assert chain(play("forgets", 8), 7) == [7, 3, 1, 0]
    assert chain(play("forgets", 8), 2) == [2]
    assert chain(play("all_send", 3), 1) == [1, 2, 0, 1]


def test_a_gap_is_when_no_message_of_the_rank_is_on_the_way():
    played = play("in_turn", 4)
    assert [waited(played, rank) for rank in range(4)] == [0, 0, 1, 2]
    assert all(gap.peer == 0 for gap in gaps(played))
    assert [tuple(gap) for gap in gaps(play("all_send", 2))] == [(0, 0.0, None, 1), (1, 0.0, None, 0)]


def test_a_late_rank_of_a_tree_delays_those_below_it_and_of_a_ring_without_order_its_two_neighbours():
    on_time, late = play("tree", 8), play("tree", 8, late_rank=2, late=2)
    behind = [rank for rank in range(8) if late.world.clock[rank] > on_time.world.clock[rank]]
    assert behind == [0, 2, 4, 6] and rounds(late) == rounds(on_time) + 1
    on_time, late = play("begin", 8), play("begin", 8, late_rank=2, late=2)
    assert [rank for rank in range(8) if late.world.clock[rank] > on_time.world.clock[rank]] == [1, 2, 3]


def test_a_late_rank_begins_late_and_its_own_lateness_is_no_waiting():
    played = play("tree", 4, late_rank=1, late=3)
    assert played.began[1][0] == 3 and waited(played, 1) == 0
    assert waited(played, 0) == 3
