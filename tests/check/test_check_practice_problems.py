"""The ten problems: ✓ for the right answer, what was forgotten for a wrong one, never an exception."""

import pytest
from verdicts import assert_letter, assert_number, verdict

from allranks import failures, hang, profiles
from allranks.check import practice_problems as problems


@pytest.mark.parametrize(
    "problem, right, wrong, hint",
    [
        ("resume", 2389.3, 1570.1, "only the one before it"),
        ("resume", 2389.3, 3413.3, "in the middle of an interval"),
        ("resume", 2389.3, 1979.7, "12 minutes old"),
        ("resume", 2389.3, 1843.2, "GPUs wait eight minutes"),
        ("resume", 2389.3, 0.58333, "4,096 GPUs loses them"),
        ("resume", 2389.3, 143360, "GPU-minutes"),
        ("slowest_restart", 7.553, 14.85, "out checkpoints and"),
        ("slowest_restart", 7.553, 453.2, "seconds"),
        ("slowest_restart", 7.553, 1.6827, "these take 10"),
        ("loading", 392, 49, "reads them itself"),
        ("loading", 392, 3136, "share one copy"),
        ("loading", 392, 448, "Gradients"),
        ("loading", 392, 56, "Adam's states"),
        ("one_rate", 29.625, 108, "6.50 in a thousand machine-days"),
        ("one_rate", 29.625, 474, "16 times as often"),
        ("one_rate", 29.625, 0.49375, "hours"),
        ("one_rate", 29.625, 118.5, "square root"),
        ("several_weeks", 17.361, 1.929, "nine tenths to"),
        ("several_weeks", 17.361, 1.736, "what the failures cost in all"),
        ("several_weeks", 17.361, 10.417, "has to be found"),
        ("several_weeks", 17.361, 6.944, "trained again"),
        ("several_weeks", 17.361, 15.625, "of all the time"),
        ("several_weeks", 17.361, 416.67, "hours"),
    ],
)
def test_a_number(capsys, problem, right, wrong, hint):
    assert_number(capsys, getattr(problems, problem), right, wrong, hint)


@pytest.mark.parametrize(
    "problem, right, hints",
    [
        ("waiting", "D", {"A": "run out", "B": "Line 10", "C": "operations before shapes", "E": "one group"}),
        ("slow_step", "C", {"A": "compute for about", "B": "neither", "D": "three", "E": "here it has one"}),
        ("after_resume", "B", {"A": "first step", "C": "first loss", "D": "still move", "E": "first loss"}),
        ("on_nccl", "A", {"B": "waits", "C": "nothing would be", "D": "half-written", "E": "same two ranks"}),
    ],
)
def test_a_cause(capsys, problem, right, hints):
    assert_letter(capsys, getattr(problems, problem), right, hints)


@pytest.mark.parametrize(
    "answer, hint",
    [
        ((132.5, 0.97638), "✓"),
        ([133.4, 0.976], "✓"),
        ((46.2, 0.976), "64 machines"),
        ((7949, 0.976), "seconds"),
        ((100.9, 0.976), "RSC-1's rate"),
        ((60, 0.976), "60 is not right"),
        ((132.5, 0.0236), "share that is lost"),
        ((132.5, 97.64), "between 0 and 1"),
        ((132.5, 0.9777), "eight minutes"),
        ((132.5, 0.9), "0.9 is not right"),
        ((None, None), "None"),
        ((132.5,), "two things"),
        (None, "None"),
        ("x", "✗"),
    ],
)
def test_a_plan(capsys, answer, hint):
    assert hint in verdict(capsys, problems.plan, answer)


def test_the_dump_shows_a_save_that_one_rank_skips():
    (said,) = hang.findings(problems.dump())
    assert said.startswith("collective 7 of all ranks differs: ranks 0, 1, 2 entered all_gather")
    assert said.endswith("rank 3 entered all_reduce with (64,) Float at train.py, line 6, in exchange")


def test_nothing_of_the_trace_is_hidden_and_it_takes_twice_the_healthy_time():
    shares = profiles.shares(problems.trace())
    assert all(share.exposed == share.communicating for share in shares)
    assert shares[0].whole > 1.9 * profiles.shares(profiles.example("none"))[0].whole
    assert profiles.straggler(problems.trace()) is None


def test_the_resumed_run_is_right_first_and_then_stands_still():
    lost, resumed = problems.LOST, problems.RESUMED
    assert resumed[0] == lost[0] and all(a > b for a, b in zip(resumed[1:], lost[1:]))
    assert lost[0] - lost[-1] > 10 * (resumed[0] - resumed[-1])


def test_an_asynchronous_checkpoint_is_old_when_it_can_first_be_loaded(capsys):
    interval, behind, wait = 1800.0, 720.0, 480.0
    lost = 0.0
    for turn in range(1000):  # failures evenly over an interval, in the steady state
        failed = (turn + 0.5) / 1000 * interval + 10 * interval
        ready = max(k * interval for k in range(11) if k * interval + behind <= failed)
        lost += (failed - ready + wait) / 1000
    assert "✓" in verdict(capsys, problems.resume, 4096 * lost / 3600)
    assert failures.lost_share(interval, 0, 1e6, wait) < lost / 1e6
