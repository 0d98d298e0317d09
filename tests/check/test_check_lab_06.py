"""The checks of Lab 06 take every draw of the solved answers, and end what crashes or hangs.

What they say about other answers is in `test_lab_06_<task>.py`.
"""

import contextlib
import importlib
import random

import pytest
import solved
import students
from verdicts import verdict

from allranks import check
from allranks.check import labs
from allranks.check.lab_06 import common, scheduling

ANSWERS = solved.answers("serving")
TASKS = {
    "decode": ["attention", "write"],
    "bytes_and_requests": ["token_bytes", "fitting"],
    "scheduler": ["admit", "grow", "preempt", "finish"],
    "prefixes": ["keys", "share", "release"],
    "sliced": ["cut", "one_layer", "attention"],
    "guesses": ["speculate"],
    "plan": ["plan"],
}


@contextlib.contextmanager
def in_this_process():
    """Checks start no ranks: what one rank would run, this process does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(common, "run_on_ranks", lambda test, *args, world_size, **_: [test(*args)])
        yield


def line_of(task, **changed):
    """The line about the solved lab's answers, some of them changed, judged in this process."""
    answers = [(ANSWERS | changed)[name] for name in TASKS[task]]
    with in_this_process():
        return check.verdict(getattr(check.lab_06, task).__wrapped__, *answers)


@pytest.fixture(autouse=True)
def the_same_numbers_in_every_run():
    random.seed(6)


TELLING = {  # of each task: the mistakes that are told every day
    "decode": ("a window of 16", "past kept in the layer", "floats"),
    "bytes_and_requests": ("at least one", "last token fed", "hidden"),
    "scheduler": ("preempts the oldest", "computed is kept", "a smaller one overtakes"),
    "prefixes": ("gaps skipped", "eight bits of the hash", "a set of tokens"),
    "guesses": ("one refused guess stays", "matches counted", "no token of its own"),
    "plan": ("chunked always", "pages without a limit", "workspace forgotten"),
}


@pytest.mark.parametrize("task", TELLING)
def test_the_most_telling_answers_are_told_what_they_are(task, monkeypatch):
    module = importlib.import_module(f"test_lab_06_{task}").__name__
    students.judged_here(getattr(check.lab_06, task), module, monkeypatch, TELLING[task])


@pytest.mark.usefixtures("nothing_is_left_behind")
def test_the_most_telling_answers_on_two_ranks_are_told_what_they_are():
    students.the_telling_ones(
        check.lab_06, {"sliced": ("views of the whole", "no sum at all", "x summed too")}
    )


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("task", [task for task in TASKS if task not in ("sliced", "plan")])
def test_the_solved_answers_are_right_whatever_is_drawn(task, seed):
    random.seed(seed)
    assert line_of(task).startswith("✓")


# Ranks of their own


@pytest.mark.parametrize("task", TASKS)
def test_a_crash_and_what_is_no_function_are_told_so(capfd, task):
    one_check = getattr(check.lab_06, task)
    crashed = verdict(capfd, one_check, *[solved.crash] * len(TASKS[task]))
    assert crashed.startswith("✗") and "KeyError" in crashed
    for answer in (None, ..., 3):
        assert "is a function" in verdict(capfd, one_check, *[answer] * len(TASKS[task]))


def test_a_scheduler_that_hangs_is_ended(capfd, monkeypatch, nothing_is_left_behind):
    monkeypatch.setattr(labs, "SECONDS", 2.0)
    answers = [solved.hang, *(ANSWERS[name] for name in TASKS["scheduler"][1:])]
    assert "did not finish" in verdict(capfd, check.lab_06.scheduler, *answers)


def test_the_load_of_the_scheduler_needs_preemptions():
    for seed in range(20):
        random.seed(seed)
        load = scheduling.new_load()
        assert sum(-(-(len(prompt) + new - 1) // scheduling.PAGE) for prompt, new, *_ in load[:3]) > 7


def test_a_milestone_with_a_task_left_is_not_reached(capfd):
    names = [name for task, parts in TASKS.items() for name in parts if task != "sliced"]
    names[-2:-2] = ["cut", "one_layer"]
    answers = [None if name in ("cut", "plan") else ANSWERS[name] for name in names]
    with in_this_process():
        check.lab_06.milestone(*answers, None, None, None)
    lines = capfd.readouterr().out.splitlines()
    assert lines[-5:] == [
        "✗ tensor-parallel decode on two ranks",
        "✓ guess several tokens",
        "✗ settings for a load",
        "✗ latency against load, measured",
        "5 of 8 tasks are solved.",
    ]
