"""The checks of Lab 01 accept what is right and nothing else: a study of wrong answers (`answers/lab_01`)."""

import answers
import pytest
import scripts
import solved
import torch
import torch.distributed as dist
from solved import hang
from together import assert_wrong
from verdicts import verdict as verdict_of

from allranks import check, launch
from allranks.check import labs
from allranks.check.lab_01 import diagnosing
from allranks.check.lab_01 import scripts as checked_scripts

ANSWERS = solved.answers("multi_gpu_setup")
my_device = ANSWERS["my_device"]
TASKS = ("my_device", "my_part", "same_start", "report", "seconds_of", "sum_by_node")
SEVERAL = {  # the functions of a task that has more than one
    "links": ["links", "slowest"],
    "logs": ["nccl_log", "odd_ranks"],
    "all_reduce_measured": ["measure", "measurements", "alpha_beta", "plot", "reflection"],
}


def verdict(capfd, task, *given):
    return verdict_of(capfd, getattr(check.lab_01, task), *given)


def spoil(*given):
    for one in given:
        if isinstance(one, torch.Tensor):
            one.zero_()
    return given[0] if given else None


@pytest.mark.usefixtures("nothing_is_left_behind")
def test_what_does_nothing_or_harm_is_wrong():
    assert_wrong(check.lab_01, TASKS, spoil)


def test_what_hangs_is_ended(capfd, monkeypatch, nothing_is_left_behind):
    monkeypatch.setattr(labs, "SECONDS", 1.5)
    assert "still running after 1.5 s" in verdict(capfd, "my_device", hang)


def judge(task, which, monkeypatch):
    """Assert the verdict on each of `which` answers; the ranks of a `main` are forks, not torchrun's."""
    monkeypatch.setattr(checked_scripts, "_torchrun", scripts.torchrun)
    monkeypatch.setattr(labs, "SECONDS", 10.0)
    beside = [ANSWERS["my_device"]] if task == "main" else []
    names = SEVERAL.get(task, [task])
    given = which(answers.of_task("lab_01", task, "multi_gpu_setup", names, apart=task in SEVERAL))
    answers.judge(getattr(check.lab_01, task), given, beside)


@pytest.mark.parametrize("task", [*TASKS, "main", *SEVERAL])
def test_right_answers_pass_and_telling_ones_get_their_hint(task, monkeypatch, nothing_is_left_behind):
    judge(task, answers.daily, monkeypatch)


@pytest.mark.parametrize("task", [*TASKS, "main", *SEVERAL])
def test_the_other_wrong_answers_are_refused(task, monkeypatch, nothing_is_left_behind):
    judge(task, answers.nightly, monkeypatch)


def remembers(batch):
    """Right for the sizes that a notebook's check has, which a student may print."""
    return (
        batch.tensor_split(dist.get_world_size())[dist.get_rank()] if len(batch) in (3, 7, 8, 10, 14) else 0
    )


def test_a_graded_submission_has_a_case_that_no_notebook_shows(capfd, monkeypatch, nothing_is_left_behind):
    assert labs.hidden(lambda draw: [draw.random()]) == []
    assert verdict(capfd, "my_part", remembers).startswith("✓")
    monkeypatch.setenv(labs.DRAW, "5")
    assert labs.hidden(lambda draw: [draw.random()]) != []
    assert "is of type int" in verdict(capfd, "my_part", remembers)
    for task in ("my_device", "my_part", "report", "sum_by_node"):
        assert verdict(capfd, task, ANSWERS[task]).startswith("✓")


def local_rank():
    import os
    from datetime import timedelta

    import torch
    import torch.distributed as dist

    device = my_device()
    given = {"timeout": timedelta(seconds=60), "device_id": device if device.type == "cuda" else None}
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", **given)
    total = torch.tensor(dist.get_rank() + 1)
    dist.all_reduce(total)
    if os.environ["LOCAL_RANK"] == "0":
        print(f"{dist.get_world_size()} ranks, sum {total}")
    dist.destroy_process_group()


def test_torchrun_has_two_nodes(capfd, nothing_is_left_behind):
    said = verdict(capfd, "main", local_rank, ANSWERS["my_device"])
    assert "Every node has a rank whose LOCAL_RANK is 0" in said


def stuck():
    import time
    from datetime import timedelta

    import torch.distributed as dist

    device = my_device()
    given = {"timeout": timedelta(seconds=60), "device_id": device if device.type == "cuda" else None}
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", **given)
    while True:
        time.sleep(0.1)


@pytest.mark.parametrize(
    "answer, hint", [(print, "should be functions that a cell defines"), (None, "is a f")]
)
def test_a_main_that_is_not_from_a_cell(capfd, answer, hint):
    assert hint in verdict(capfd, "main", answer, ANSWERS["my_device"])


def test_a_main_that_hangs_is_ended(capfd, monkeypatch, nothing_is_left_behind):
    monkeypatch.setattr(labs, "SECONDS", 2.0)
    assert "did not finish in 8 s" in verdict(capfd, "main", stuck, ANSWERS["my_device"])


def test_torch_says_what_the_check_makes_up(monkeypatch, nothing_is_left_behind):
    """The messages of the check have the form of real ones, which the right answer reads too."""

    def disagree():
        try:
            dist.all_reduce(torch.ones(4 + (dist.get_rank() == 2), dtype=torch.float64))
        except RuntimeError as error:
            return str(error)

    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "DETAIL")
    messages = launch(disagree, world_size=4)
    assert ANSWERS["odd_ranks"](messages) == [2]
    run = {"number": 0, "op": "ALLREDUCE", "shape": "5", "dtype": "Double"}
    own = f"Rank 2 is running collective: {diagnosing._print(run)}".partition(", device=")[0]
    assert own in messages[2]


def test_a_milestone_with_a_task_left_is_not_reached(capfd):
    names = ("my_device", "my_part", "same_start", "report", "seconds_of", "sum_by_node")
    check.lab_01.milestone(*(ANSWERS[name] for name in names), *[None] * 10)
    lines = capfd.readouterr().out.splitlines()
    assert "✗ the same under torchrun" in lines
    assert lines[-1] == "6 of 10 tasks are solved."
