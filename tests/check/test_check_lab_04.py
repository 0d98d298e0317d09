"""The checks of Lab 04 accept what is right and nothing else: a study of wrong answers (`answers/lab_04`)."""

import random

import answers
import pytest
import solved
import torch
import torch.distributed as dist
from solved import hang
from together import assert_wrong, verdicts
from verdicts import verdict as verdict_of

from allranks import check
from allranks.check import labs

ANSWERS = solved.answers("mixed_precision")
TASKS = {
    "forward_backward": ("forward_backward",),
    "cross_entropy": ("cross_entropy",),
    "unscale": ("unscale",),
    "loss_scaler": ("LossScaler",),
    "clipped_step": ("clipped_step",),
    "rank_scaler": ("RankScaler",),
    "shard": ("shard",),
    "bytes_kept": ("bytes_kept",),
    "train": ("train",),
    "fp8": ("DelayedScale", "fp8_matmul"),
    "measured": ("table", "draw", "reflection"),
}
DAILY = 2  # wrong answers to a task, and one right one


def verdict(capfd, task, *given):
    return verdict_of(capfd, getattr(check.lab_04, task), *given)


@pytest.mark.usefixtures("nothing_is_left_behind")
def test_what_does_nothing_is_wrong():
    assert_wrong(check.lab_04, TASKS)


def test_what_hangs_is_ended(capfd, monkeypatch, nothing_is_left_behind):
    monkeypatch.setattr(labs, "SECONDS", 1.0)
    assert "still running after 1 s" in verdict(capfd, "forward_backward", hang)


def study(task):
    """The answers to a task: those of every day, and the others."""
    every = list(answers.of_task("lab_04", task, "mixed_precision", TASKS[task]))
    told = [one for one in every if one[2] not in "✓✗"]
    today = [every[0], *told[:DAILY]]
    return today, [one for one in every if one not in today]


def judge(cases):
    """Assert the line of each answer in `cases`, (task, answers) pairs; all share worlds."""
    random.seed(6)
    tries = [(task, one) for task, given in cases for one in given]
    lines = verdicts([(getattr(check.lab_04, task), one[1], one[3]) for task, one in tries])
    wrong = [
        f"{task}, {name}: {part!r} is not in: {line}"
        for (task, (name, _, part, _)), line in zip(tries, lines, strict=True)
        if part not in line or (part == "✓") != line.startswith("✓") or "NameError" in line
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.usefixtures("nothing_is_left_behind")
def test_right_answers_pass_and_telling_ones_get_their_hint():
    judge([(task, study(task)[0]) for task in TASKS])


@pytest.mark.parametrize("task", TASKS)
def test_the_other_answers_are_judged_right(task, nothing_is_left_behind):
    judge([(task, study(task)[1])])


def unclipped(model, optimizer, scaler, max_norm):
    scaler.unscale_(optimizer)
    norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])
    scaler.step(optimizer)
    scaler.update()
    return norm


class KnowsAlready(ANSWERS["LossScaler"]):
    def unscale_(self, optimizer):
        super().unscale_(optimizer)
        if not self.found_inf:
            found = torch.tensor(0.0)
            dist.all_reduce(found, op=dist.ReduceOp.MAX)
            self.found_inf = found.item() > 0


def test_a_rank_that_knows_already_and_is_silent_is_named(capfd, nothing_is_left_behind):
    assert "Does every rank take part" in verdict(capfd, "rank_scaler", KnowsAlready)


def whole(monkeypatch, **changed):
    """The verdict on the training alone, with other pieces."""
    kept = {}
    monkeypatch.setattr(labs, "milestone", lambda tasks, test, reached: kept.update(test=test))
    names = [name for names in TASKS.values() for name in names]
    check.lab_04.milestone(*((ANSWERS | changed)[name] for name in names))
    return check.verdict(kept["test"])


def test_a_training_whose_ranks_do_not_ask_each_other_does_not_survive(monkeypatch, nothing_is_left_behind):
    assert "FSDP2 in fp16, rank 0 of 2: rank 1 overflows" in whole(
        monkeypatch, RankScaler=ANSWERS["LossScaler"]
    )


def test_a_training_that_does_not_clip_does_not_follow(monkeypatch):
    line = whole(monkeypatch, clipped_step=unclipped)
    assert line.startswith("✗ DDP in bf16, rank 0 of 2: the loss of step")
