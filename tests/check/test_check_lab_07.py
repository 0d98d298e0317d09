"""The checks of Lab 07 accept what is right and nothing else: a study of wrong answers (`answers/lab_07`)."""

import answers
import pytest
from together import verdicts

from allranks import check

TASKS = {
    "columns": ["CopyThenSum", "cut_columns", "column"],
    "rows": ["SumThenCopy", "cut_rows", "row"],
    "layers": ["cut_layer", "through"],
    "pipeline": ["one_f_one_b", "exchange", "run"],
    "groups": ["groups_of"],
    "together": ["cut_layer", "through", "groups_of", "norm_of", "gradients"],
}


@pytest.mark.parametrize("task", TASKS)
def test_right_answers_pass_and_wrong_ones_do_not(task):
    study = list(answers.of_task("lab_07", task, "model_parallel", TASKS[task]))
    test = getattr(check.lab_07, task)
    lines = verdicts([(test, functions, fails) for _, functions, _, fails in study])
    wrong = [
        f"{name}: {part!r} is not in: {line}"
        for (name, _, part, _), line in zip(study, lines, strict=True)
        if part not in line or (part == "✓") != line.startswith("✓")
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("answer", [None, ..., 3])
def test_what_is_no_function_is_told_so(answer):
    lines = [check.verdict(getattr(check.lab_07, t).__wrapped__, *[answer] * len(TASKS[t])) for t in TASKS]
    assert all("is a function" in line for line in lines)
