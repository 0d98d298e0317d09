"""The checks of Lab 03 accept what is right and nothing else: a study of wrong answers (`answers/lab_03`)."""

import answers
import pytest
import solved
from solved import hang, nothing
from together import assert_wrong
from torch import nn
from verdicts import verdict

from allranks import check
from allranks.check import labs

ANSWERS = solved.answers("fsdp")
TASKS = {
    "wrap": ("wrap",),
    "held": ("held",),
    "strategy": ("strategy",),
    "precision": ("policies", "in_fp32"),
    "clip": ("clip",),
    "full_state": ("full_state",),
    "checkpoint": ("save", "load"),
    "recompute": ("peak", "recompute"),
    "accumulate": ("accumulate", "price"),
    "start": ("start",),
    "background": ("begin_save", "end_save"),
}
BESIDE = {"background": (ANSWERS["load"],)}  # answers to other tasks, which a check needs
DAILY = 4  # wrong answers to a task, and one right one


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """What is slow on a busy machine is not stuck."""
    monkeypatch.setattr(labs, "SECONDS", 30.0)


def spoil(*given, **__):
    for one in given:
        if isinstance(one, nn.Module):
            for p in one.parameters():
                p.detach().zero_()
        elif isinstance(one, list):
            one.clear()
    return given[0] if given else None


def test_what_does_nothing_or_harm_is_wrong(nothing_is_left_behind):
    counts = TASKS | {"background": ("begin_save", "end_save", "load")}
    assert_wrong(check.lab_03, counts, spoil)


def test_what_hangs_is_ended(capfd, monkeypatch, nothing_is_left_behind):
    monkeypatch.setattr(labs, "SECONDS", 2.0)
    assert "still running after 2 s" in verdict(capfd, check.lab_03.wrap, hang)


def study(task):
    """The answers to `task`: those of every day, and the others."""
    every = list(answers.of_task("lab_03", task, "fsdp", TASKS[task]))
    told = [one for one in every if one[2] not in "✓✗" and not one[3]][:DAILY]
    today = [every[0], *told]
    return today, [one for one in every if one not in today]


@pytest.mark.parametrize("task", TASKS)
def test_a_right_answer_passes_and_telling_ones_get_their_hint(task, nothing_is_left_behind):
    answers.judge(getattr(check.lab_03, task), study(task)[0], BESIDE.get(task, ()))


@pytest.mark.parametrize("task", TASKS)
def test_the_other_answers_are_judged_right(task, monkeypatch, nothing_is_left_behind):
    monkeypatch.setattr(labs, "SECONDS", 10.0)
    answers.judge(getattr(check.lab_03, task), study(task)[1], BESIDE.get(task, ()))


def test_a_measurement_without_its_numbers_is_refused(capfd):
    table, plot, reflection = (ANSWERS[name] for name in ("measurements", "plot", "reflection"))
    for answer, part in (
        ((table, plot, reflection), "✓ 4 rows"),
        ((lambda: table()[:3], plot, reflection), "No row has policy = dropped, recomputed"),
        ((table, nothing, reflection), "The plot has no axes"),
        ((table, plot, lambda: ["Fast!"] * 3), "write a whole sentence"),
    ):
        assert part in verdict(capfd, check.lab_03.policies_measured, *answer)


def test_a_milestone_without_answers_is_not_reached(capfd):
    check.lab_03.milestone(*[None] * 19)
    lines = capfd.readouterr().out.splitlines()
    assert lines[0] == "✗ units from the inside out"
    assert lines[-1] == "0 of 12 tasks are solved."
