"""The explorer of ranks shows the world that `allranks.ranks` runs: its rounds, its waits, its deadlocks."""

import xml.etree.ElementTree as ElementTree

import pytest

from allranks.explorers import waiting as explorer
from allranks.explorers.frame.controls import settings
from allranks.explorers.frame.svg import NARROW, WIDE
from allranks.explorers.waiting_rows import Now
from allranks.ranks.patterns import PATTERNS, chain, circle, play, rounds, stuck


def drawn(width=WIDE, **given):
    return explorer.draw(width, **settings(explorer.CONTROLS, given))


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("p", [2, 5, 8])
def test_the_result_is_how_the_world_ended(pattern, p):
    played = play(pattern, p)
    value, what = drawn(pattern=pattern, ranks=p)["result"]
    if circle(played):
        assert value == "deadlock" and what.startswith(" → ".join(map(str, circle(played))))
    elif stuck(played):
        longest = max((chain(played, rank) for rank in stuck(played)), key=len)
        assert value == "no end" and what.startswith(" → ".join(map(str, longest)))
    else:
        assert value.split()[0] == f"{rounds(played):.0f}" and f"all {p} ranks have returned" in what


def test_every_pattern_is_offered_and_its_insight_is_there():
    assert [name for name, _ in explorer.WORDS] == list(PATTERNS)
    assert all(drawn(pattern=name)["insight"].endswith(".") for name in PATTERNS)


def test_waiting_grows_with_the_moment_and_is_then_what_the_run_has():
    played = play("in_turn", 8)
    waited = [Now(played, moment).waited(7) for moment in range(8)]
    assert waited == [0, 1, 2, 3, 4, 5, 6, 6]
    assert "2 of 7 messages have arrived" in drawn(pattern="in_turn", moment=2)["text"]


def test_a_deadlock_is_shown_once_nothing_moves_and_not_before():
    assert "for ever" not in drawn(pattern="all_send", moment=0)["svg"]
    shown = drawn(pattern="all_send", moment=1)
    assert shown["svg"].count("for ever") == 8
    assert "deadlock, 0 → 1 → 2 → 3 → 4 → 5 → 6 → 7 → 0" in shown["text"]
    assert drawn(pattern="forgets", moment=3)["svg"].count("for ever") == 4


def test_a_late_rank_says_whom_it_delays():
    assert (
        "delays 2 of the others; the end comes 2 rounds later"
        in drawn(pattern="begin", ranks=5, rank=3, late=2)["insight"]
    )
    assert "delays none of the others; the end is not delayed" in drawn(rank=7, late=2)["insight"]


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_the_late_rank_and_the_moment_move_nothing_else_in_the_picture(width):
    changes = ({}, {"moment": 0}, {"late": 3}, {"rank": 7, "late": 1}, {"pattern": "all_send"})
    heights = {ElementTree.fromstring(drawn(width, **changed)["svg"]).get("height") for changed in changes}
    assert len(heights) == 1


def test_a_click_on_a_wait_goes_to_the_rank_that_is_waited_for():
    over = ElementTree.fromstring(drawn(pattern="forgets", moment=5)["marks"])
    sets = {mark.get("aria-label"): mark.get("data-set") for mark in over}
    assert sets["rank 7 waits for rank 3, without end"] == "rank=3"
    assert sets["rank 3 waits for rank 1, without end"] == "rank=1"
    assert sets["call 1 of rank 1: recv ← 0, waits for ever"] is None


def test_both_sides_of_a_message_light_together():
    over = ElementTree.fromstring(drawn()["marks"])
    lights = [mark.get("data-light") for mark in over if mark.get("data-light")]
    assert sorted(lights) == sorted(2 * [f"m{turn}" for turn in range(7)])
