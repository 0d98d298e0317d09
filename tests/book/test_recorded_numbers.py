"""The numbers that prose takes from a stored recording are those of the recording."""

import json
from pathlib import Path

import pytest

from allranks import profiles, recovery

PRACTICE = Path(__file__).parents[2] / "notebooks" / "practice"


def prose(page):
    cells = json.loads((PRACTICE / f"{page}.ipynb").read_text(encoding="utf-8"))["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def test_profiling_tells_the_shares_of_the_stored_trace():
    ranks = profiles.shares(profiles.example("slow rank"))
    communicating = [f"{100 * rank.communicating / rank.whole:.0f} %" for rank in ranks]
    waiting = f"{100 * ranks[0].waiting / ranks[0].whole:.0f} %"
    sending = f"{100 * (ranks[0].exposed - ranks[0].waiting) / ranks[0].whole:.0f} %"
    text = prose("profiling")
    assert f"that it spends {communicating[0]} of the time in all-reduces" in text
    assert f"here they take {communicating[2]} of its time, against {communicating[0]} on rank 0" in text
    assert f"Rank 0 spends {waiting} of the time waiting for rank 2" in text
    assert f"a faster network could shorten only the {sending} of sending" in text


def test_failures_tells_what_was_recorded_under_torchft():
    kept = [attempt for attempt in recovery.ATTEMPTS if attempt.kept]
    text = prose("failures")
    two = len({attempt.step for attempt in kept if attempt.ranks == 2})
    assert f"For the next {two} steps, two replicas share the batch" in text
    assert f"Replica 1 kills itself in step {recovery.DIED_AT} of {recovery.STEPS}" in text
    back = min(attempt.seconds for attempt in kept if attempt.life == 1) - recovery.DIED
    assert back == pytest.approx(9.5, abs=0.5) and "takes nine seconds to load" in text
    pause = min(attempt.seconds for attempt in kept if attempt.seconds > recovery.DIED) - recovery.DIED
    assert 1 < pause < 2 and "wait for less than two seconds" in text
