"""The trace explorer says what the arithmetic finds, and shows the window that was asked for."""

import pytest

from allranks import explorers, profiles
from allranks.explorers import traces
from allranks.explorers.frame.words import percent, seconds


def said(**given):
    return explorers.draw("traces", given)["text"]


@pytest.mark.parametrize("name", profiles.EXAMPLES)
def test_the_shares_of_each_rank_are_said_and_what_recorded_them(name):
    text, recorded = said(trace=name), profiles.example(name)
    for share in profiles.shares(recorded):
        parts = share.computing, share.waiting, share.exposed - share.waiting
        computes, waits, sends = (percent(part / share.whole, 0) for part in parts)
        assert f"rank {share.rank} computes {computes}, waits {waits}, sends {sends}" in text
    assert text.endswith(f"{profiles.ABOUT.split(':')[0][1:]}.")


def test_the_slow_rank_is_named_and_no_other():
    assert "The others wait for rank 2." in said(trace="slow rank")
    assert all("No rank stands out." in said(trace=n) for n in profiles.EXAMPLES if n != "slow rank")


def test_a_window_is_part_of_the_whole():
    whole = profiles.shares(profiles.example("none"))[0].whole
    assert "Shown" not in said(trace="none")
    assert f"Shown: {seconds(whole * 3 / 8)} to {seconds(whole * 5 / 8)}." in said(
        trace="none", zoom=4, position=50
    )
    assert f"to {seconds(whole)}." in said(trace="none", zoom=8, position=100)
    assert explorers.draw("traces", {"zoom": 1})["idle"] == ["position"]


def test_a_moment_is_put_into_words():
    # Rank 0 has entered an all-reduce and computes no more; rank 2 is still in its forward pass.
    text = said(trace="slow rank", moment=14)
    assert "rank 0 waits for rank 2 in backward" in text
    assert "rank 2 computes in backward" in text


def test_waiting_ends_when_the_last_rank_has_entered():
    recorded = profiles.example("slow rank")
    meetings = traces.met(recorded)
    for turn in range(len(recorded[0].collectives)):
        starts, entered, ends, ranks = zip(*(mine[turn] for mine in meetings), strict=True)
        assert len(set(ranks)) == 1 and max(entered) == pytest.approx(max(starts))
        assert all(start <= last <= end for start, last, end in zip(starts, entered, ends, strict=True))
