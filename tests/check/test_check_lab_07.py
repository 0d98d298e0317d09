"""The checks of Lab 07 accept what is right and nothing else: a study of wrong answers (`answers/lab_07`)."""

import answers
import pytest
from together import verdicts

from allranks import check
from allranks.check import labs

TASKS = {
    "columns": ["CopyThenSum", "cut_columns", "column"],
    "rows": ["SumThenCopy", "cut_rows", "row"],
    "layers": ["cut_layer", "through"],
    "pipeline": ["one_f_one_b", "exchange", "run"],
    "groups": ["groups_of"],
    "together": ["cut_layer", "through", "groups_of", "norm_of", "gradients"],
}


def study(task):
    """(name, functions, expected part, whether the ranks fail) of every answer to `task`."""
    return list(answers.of_task("lab_07", task, "model_parallel", TASKS[task], apart=True))


def assert_lines(cases):
    """Assert the line of each (task, answer) in `cases`; they share worlds."""
    tries = [(getattr(check.lab_07, task), functions, fails) for task, (_, functions, _, fails) in cases]
    wrong = [
        f"{task}, {name}: {part!r} is not in: {line}"
        for (task, (name, _, part, _)), line in zip(cases, verdicts(tries), strict=True)
        if part not in line or (part == "✓") != line.startswith("✓")
    ]
    assert not wrong, "\n".join(wrong)


def test_right_answers_pass_and_telling_ones_get_their_hint():
    assert_lines([(task, one) for task in TASKS for one in answers.daily(study(task))])


@pytest.mark.parametrize("task", TASKS)
def test_the_other_answers_are_judged_right(task, monkeypatch):
    monkeypatch.setattr(labs, "SECONDS", 6.0)
    assert_lines([(task, one) for one in answers.nightly(study(task))])


@pytest.mark.parametrize("answer", [None, ..., 3])
def test_what_is_no_function_is_told_so(answer):
    lines = [check.verdict(getattr(check.lab_07, t).__wrapped__, *[answer] * len(TASKS[t])) for t in TASKS]
    assert all("is a function" in line for line in lines)
