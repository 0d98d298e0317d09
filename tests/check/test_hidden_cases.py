"""A graded submission has cases that no notebook shows: what remembers those of the notebook loses the point.

Lab 01's are in `test_check_lab_01.py`. An answer here is the first right one of its task after replacements:
right for the sizes that a notebook's check has, which a student may print, and for no others.
"""

import random

import answers
import pytest
import replayed
import students
import test_lab_06_scheduler
from together import verdicts

from allranks import check
from allranks.check import labs
from allranks.check.lab_06 import common

DRAWS = "5", "71"  # of submissions
SPLIT = "{(7, 3): [3, 2, 2], (5, 2): [3, 2], (3, 1): [3]}.get((len(batch), micro_batches), len(batch))"
KNOWN = "((9_216, 4), (7_680_000, 64), (640, 1))"
TASKS = {  # (lab, task): the notebook, the functions, what the answer remembers, and what it is told
    ("lab_02", "train_step"): (
        "ddp_training",
        ["train_step"],
        ["batch.tensor_split(micro_batches)", f"batch.split({SPLIT})"],
        "rows at once",
    ),
    ("lab_02", "evaluate"): (
        "ddp_training",
        ["evaluate"],
        ["total / len(data)", "total / {7: 7, 13: 13, 3: 3}.get(len(data), 1)"],
        "With",
    ),
    ("lab_03", "strategy"): (
        "fsdp",
        ["strategy"],
        ["range(2, N + 1)", "(2, 3, 4, 6)"],
        "On 8 ranks",
    ),
    ("lab_04", "bytes_kept"): (
        "mixed_precision",
        ["bytes_kept"],
        ["sum(activations)", "sum(activations) if parameters[0].shape[1] <= 16 else 0"],
        "a larger GPT",
    ),
    ("lab_05", "bytes_held"): (
        "deepspeed",
        ["predicted", "held"],
        ["states.optimizer\n", f"states.optimizer if (parameters, world_size) in {KNOWN} else 0\n"],
        "predicted for",
    ),
}
NEEDS = "-(-len(request.tokens) // 4) - len(request.pages)"  # a notebook's check has pages of four tokens


def both(lab, task):
    """(the first right answer, the one that remembers): the functions of each."""
    slug, names, pair, _ = TASKS[lab, task]
    known = answers.solved.answers(slug)
    first = next(iter(answers.read(lab, task)["right"].values()))
    changed = answers.edited(first, [pair], f"{task}, remembers")
    return [answers.defined(source, f"<{task}>", known, names, True) for source in (first, changed)]


def lines(lab, task, pair, folder):
    if lab == "lab_05":
        return list(replayed.lines_of({str(n): (task, one) for n, one in enumerate(pair)}, folder).values())
    return verdicts([(getattr(getattr(check, lab), task), one, False) for one in pair])


@pytest.mark.usefixtures("nothing_is_left_behind")
@pytest.mark.parametrize("lab, task", TASKS)
def test_what_remembers_a_notebooks_cases_loses_the_point(lab, task, monkeypatch, tmp_path):
    pair = both(lab, task)
    said = lines(lab, task, pair, tmp_path / "notebook")
    assert [line[0] for line in said] == ["✓", "✓"], said
    for draw in DRAWS if lab != "lab_05" else DRAWS[:1]:  # ranks with DeepSpeed are expensive
        monkeypatch.setenv(labs.DRAW, draw)
        right, remembers = lines(lab, task, pair, tmp_path / draw)
        assert right.startswith("✓"), right
        assert remembers.startswith("✗") and TASKS[lab, task][-1] in remembers, remembers


def test_a_scheduler_that_remembers_the_size_of_a_page_loses_the_point(monkeypatch):
    monkeypatch.setattr(common, "run_on_ranks", lambda test, *args, world_size, **_: [test(*args)])
    module = test_lab_06_scheduler
    first = {answer.__name__: answer for answer in module.RIGHT[0]}
    pair = "server.needs(request)", NEEDS
    remembers = students.edited(first, ["admit"], pair, vars(module), "remembers")

    def line(functions):
        random.seed(6)
        return check.verdict(check.lab_06.scheduler.__wrapped__, *functions)

    assert line(module.RIGHT[0]).startswith("✓") and line(remembers).startswith("✓")
    for draw in "12345678":
        monkeypatch.setenv(labs.DRAW, draw)
        assert line(module.RIGHT[0]).startswith("✓")
        assert line(remembers).startswith("✗")
