"""The checks of Lab 05 accept what is right and nothing else: a study of wrong answers (`answers/lab_05`)."""

import answers
import pytest
import replayed
import solved
import torch.distributed as dist
from verdicts import verdict

from allranks import check
from allranks.check.lab_05 import common

ANSWERS = solved.answers("deepspeed")
TASKS = {
    "configuration": ["configuration"],
    "bytes_held": ["predicted", "held"],
    "excess": ["excess"],
    "offload": ["offload"],
    "nvme": ["on_nvme", "moments_to_file"],
    "repaired": ["repaired"],
    "checkpoint": ["save", "consolidated"],
    "choose": ["choose"],
}
DAILY = 3  # wrong answers to a task, and one right one: ranks with DeepSpeed cost about a second each
HANGS = ("rank 0 saves", "torch.save of rank 0")  # the test of what hangs below stands for these
TOGETHER = 32  # answers that share a world


def study(task):
    """(name, functions, expected part) of every answer to `task`: those of every day, and the others."""
    every = [one for one in answers.of_task("lab_05", task, "deepspeed", TASKS[task]) if one[0] not in HANGS]
    told = [one for one in every if one[2] not in "✓✗"]
    today = [every[0], *told[:DAILY]]
    return today, [one for one in every if one not in today]


def assert_lines(cases, folder):
    """Assert the line of each (task, name, functions, part) in `cases`."""
    wrong = []
    for first in range(0, len(cases), TOGETHER):
        some = cases[first : first + TOGETHER]
        named = {f"{task}-{n}": (task, functions) for n, (task, _, functions, _) in enumerate(some)}
        lines = replayed.lines_of(named, folder / str(first))
        for line_of, (task, name, _, part) in zip(named, some, strict=True):
            line = lines[line_of]
            if part not in line or (part == "✓") != line.startswith("✓"):
                wrong.append(f"{task}, {name}: {part!r} is not in: {line}")
    assert not wrong, "\n".join(wrong)


def test_right_answers_pass_and_telling_ones_get_their_hint(tmp_path):
    cases = [(task, *one[:3]) for task in TASKS for one in study(task)[0]]
    assert_lines(cases, tmp_path)


@pytest.mark.parametrize("task", TASKS)
def test_the_other_answers_are_judged_right(task, tmp_path):
    assert_lines([(task, *one[:3]) for one in study(task)[1]], tmp_path)


def test_saving_on_one_rank_alone_is_ended_and_explained(capfd, monkeypatch, nothing_is_left_behind):
    def on_rank_0(engine, folder):
        if dist.get_rank() == 0:
            engine.save_checkpoint(folder)

    monkeypatch.setattr(common, "SECONDS", 12.0)
    said = verdict(capfd, check.lab_05.checkpoint, on_rank_0, ANSWERS["consolidated"])
    assert "Every rank has to call save_checkpoint" in said


@pytest.mark.parametrize("answer", [None, ..., 3])
def test_what_is_no_function_is_told_so(answer):
    lines = [check.verdict(getattr(check.lab_05, t).__wrapped__, *[answer] * len(TASKS[t])) for t in TASKS]
    assert all("is a function" in line for line in lines)
