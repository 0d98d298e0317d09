"""The checks of Lab 04 refuse what does nothing, end what hangs, and judge the training as a whole.

What they say about other answers is in `test_lab_04_<task>.py`.
"""

import pytest
import solved
import students
import torch
import torch.distributed as dist
from solved import hang
from together import assert_wrong
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
}


def verdict(capfd, task, *answers):
    return verdict_of(capfd, getattr(check.lab_04, task), *answers)


@pytest.mark.stamped("lab 04")
@pytest.mark.usefixtures("nothing_is_left_behind")
def test_what_does_nothing_is_wrong():
    assert_wrong(check.lab_04, TASKS)


def test_what_hangs_is_ended(capfd, monkeypatch, nothing_is_left_behind):
    monkeypatch.setattr(labs, "SECONDS", 1.5)
    assert "still running after 1.5 s" in verdict(capfd, "forward_backward", hang)


TELLING = {  # of each task: the mistakes that are told every day
    "forward_backward": ("loss outside, on 16-bit logits", "gradients in 16 bits", "loss rounded to 16 bits"),
    "cross_entropy": (
        "converted after subtracting",
        "each row with each target",
        "no gradient through the sum",
    ),
    "unscale": ("a new gradient", "stops at the first", "the sum is finite"),
    "loss_scaler": ("zeroes the gradients and steps", "never below 1", "count kept after an overflow"),
    "clipped_step": ("clipped before unscaling", "scale divided out once more", "each tensor by itself"),
    "rank_scaler": ("asked of the neighbour", "two asks a step", "rank 0 decides"),
    "shard": ("gradients in 16 bits", "layers without a policy", "summed in dtype"),
}


@pytest.mark.usefixtures("nothing_is_left_behind")
def test_the_most_telling_answers_are_told_what_they_are():
    students.the_telling_ones(check.lab_04, TELLING)


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
    check.lab_04.milestone(*((ANSWERS | changed)[name] for (name,) in TASKS.values()))
    return check.verdict(kept["test"])


def test_a_training_whose_ranks_do_not_ask_each_other_does_not_survive(monkeypatch, nothing_is_left_behind):
    assert "FSDP2 in fp16, rank 0 of 2: rank 1 overflows" in whole(
        monkeypatch, RankScaler=ANSWERS["LossScaler"]
    )


def test_a_training_that_does_not_clip_does_not_follow(monkeypatch):
    line = whole(monkeypatch, clipped_step=unclipped)
    assert line.startswith("✗ DDP in bf16, rank 0 of 2: the loss of step")
