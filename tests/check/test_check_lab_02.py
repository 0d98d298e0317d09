"""The checks of Lab 02 accept what is right and nothing else: a study of wrong answers (`answers/lab_02`)."""

import answers
import pytest
import solved
import torch
import torch.distributed as dist
from solved import hang, nothing
from together import assert_wrong
from verdicts import verdict as verdict_of

from allranks import check
from allranks.check import labs

ANSWERS = solved.answers("ddp_training")
TASKS = {
    "reduce_mean": ("reduce_mean",),
    "average_gradients": ("average_gradients",),
    "hooks": ("average_in_backward",),
    "buckets": ("packed", "Buckets"),
    "overlap": ("products_left",),
    "ddp": ("DDP",),
    "loader": ("make_loader", "in_epoch"),
    "train_step": ("train_step",),
    "evaluate": ("evaluate",),
    "checkpoint": ("save", "load"),
    "fit": ("fit",),
    "bucket_sizes": ("table", "plot", "reflection"),
}


def verdict(capfd, task, *given):
    return verdict_of(capfd, getattr(check.lab_02, task), *given)


def spoil(*given):
    for one in given:
        if isinstance(one, torch.Tensor):
            one.zero_()
        if isinstance(one, torch.nn.Module):
            torch.nn.utils.vector_to_parameters(torch.zeros(10**6), one.parameters())
    return given[0]


@pytest.mark.usefixtures("nothing_is_left_behind")
def test_what_does_nothing_or_harm_is_wrong():
    assert_wrong(check.lab_02, TASKS, spoil)


def test_what_hangs_is_ended(capfd, monkeypatch, nothing_is_left_behind):
    monkeypatch.setattr(labs, "SECONDS", 2.0)
    assert "still running after 2 s" in verdict(capfd, "reduce_mean", hang)


def judge(task, which):
    given = which(answers.of_task("lab_02", task, "ddp_training", TASKS[task], apart=True))
    answers.judge(getattr(check.lab_02, task), given)


@pytest.mark.parametrize("task", TASKS)
def test_right_answers_pass_and_telling_ones_get_their_hint(task, nothing_is_left_behind):
    judge(task, answers.daily)


@pytest.mark.parametrize("task", TASKS)
def test_the_other_wrong_answers_are_refused(task, monkeypatch, nothing_is_left_behind):
    monkeypatch.setattr(labs, "SECONDS", 10.0)
    judge(task, answers.nightly)


def what_this_rank_has(model):
    by_dtype = {}
    for p in model.parameters():
        if p.grad is not None:
            by_dtype.setdefault(p.grad.dtype, []).append(p.grad)
    for gradients in by_dtype.values():
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
            gradient.copy_(part.view_as(gradient))


@pytest.mark.parametrize(
    "task, wrong, hint",
    [
        ("evaluate", "the DDP model", "Calling the DDP model broadcasts rank 0's buffers"),
        ("checkpoint", "barrier inside", "Every rank has to reach the barrier"),
        ("average_gradients", what_this_rank_has, "all ranks have to send the same messages"),
    ],
)
def test_ranks_that_wait_for_each_other_are_told_why(
    capfd, monkeypatch, task, wrong, hint, nothing_is_left_behind
):
    monkeypatch.setattr(labs, "SECONDS", 6.0)
    known = {name: f for name, f, *_ in answers.of_task("lab_02", task, "ddp_training", TASKS[task])}
    assert hint in verdict(capfd, task, *(known[wrong] if isinstance(wrong, str) else [wrong]))


def test_a_milestone_with_tasks_left_is_not_reached(capfd):
    check.lab_02.milestone(ANSWERS["reduce_mean"], *[nothing] * 16)
    lines = capfd.readouterr().out.splitlines()
    assert lines[0] == "✓ a mean over ranks"
    assert lines[-2:] == ["✗ a measurement", "1 of 12 tasks are solved."]
