"""The checks of Lab 01: the solved lab's own answers are right, the usual wrong ones get a hint."""

import os
import time

import pytest
import solved
import torch
import torch.distributed as dist
from solved import WRONG, hang

from allranks import check
from allranks.check import labs

ANSWERS = solved.answers("multi_gpu_setup")
TASKS = ("my_device", "my_part", "same_start", "report", "seconds_of", "sum_by_node")


def verdict(capfd, task, *answers):
    return solved.verdict(capfd, getattr(check.lab_01, task), *answers)


@pytest.mark.parametrize("task", TASKS)
def test_the_solved_lab_is_right(capfd, task):
    assert verdict(capfd, task, ANSWERS[task])[0] == "✓"


def spoil(*given):
    for one in given:
        if isinstance(one, torch.Tensor):
            one.zero_()
    return given[0] if given else None


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("answer", [*WRONG, spoil])
def test_what_does_nothing_or_harm_is_wrong(capfd, task, answer, nothing_is_left_behind):
    assert verdict(capfd, task, answer)[0] == "✗"


@pytest.mark.parametrize("task", TASKS)
def test_what_hangs_is_ended(capfd, monkeypatch, task, nothing_is_left_behind):
    monkeypatch.setattr(labs, "SECONDS", 1.5)
    assert "still running after 1.5 s" in verdict(capfd, task, hang)


def global_rank():
    return torch.device("cuda", int(os.environ["RANK"])) if torch.cuda.is_available() else torch.device("cpu")


def any_gpu():
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize(
    "answer, hint",
    [
        (global_rank, "A rank counts through all machines"),
        (any_gpu, "'cuda' alone"),
        (lambda: torch.device("cpu"), "there is a GPU for it"),
        (lambda: torch.device("cuda", 1), "belongs to another rank"),
        (lambda: torch.device("cuda", int(os.environ["LOCAL_RANK"])), "is not there; the CPU is"),
        (lambda: "cuda:1", "no torch.device"),
    ],
)
def test_a_wrong_device(capfd, answer, hint):
    assert hint in verdict(capfd, "my_device", answer)


def chunk(batch):
    return batch.chunk(dist.get_world_size())[dist.get_rank()]


def always_two(batch):
    return batch[2 * dist.get_rank() : 2 * dist.get_rank() + 2]


def every_fourth(batch):
    return batch[dist.get_rank() :: dist.get_world_size()]


@pytest.mark.parametrize(
    "answer, hint",
    [
        (chunk, "3, 3, 3, 1"),
        (always_two, "2 belong to nobody"),
        (every_fourth, "in order of rank"),
        (lambda batch: batch, "taken twice"),
    ],
)
def test_a_wrong_part(capfd, answer, hint):
    assert hint in verdict(capfd, "my_part", answer)


def parameters_only(model):
    for p in model.parameters():
        dist.broadcast(p.data, src=0)


def average(model):
    for p in model.state_dict().values():
        dist.all_reduce(p)


def replaced(model):
    parameters_only(model)
    for b in model.buffers():
        dist.broadcast(b, src=0)
    for module in model.modules():
        for name, p in list(module.named_parameters(recurse=False)):
            setattr(module, name, torch.nn.Parameter(p.detach().clone(), p.requires_grad))


def thawed(model):
    ANSWERS["same_start"](model)
    model.requires_grad_(True)


@pytest.mark.parametrize(
    "answer, hint",
    [
        (parameters_only, "the buffer 1.running_mean is not rank 0's"),
        (average, "Rank 0's own parameter 0.weight has changed"),
        (replaced, "other Parameters"),
        (thawed, "require a gradient"),
    ],
)
def test_a_wrong_start(capfd, answer, hint):
    assert hint in verdict(capfd, "same_start", answer)


def everybody(line):
    lines = [None] * dist.get_world_size()
    dist.all_gather_object(lines, line)
    return lines


@pytest.mark.parametrize(
    "answer, hint",
    [
        (everybody, "Rank 1 has the lines too"),
        (lambda line: [line] if dist.get_rank() == 0 else None, "1 lines"),
    ],
)
def test_a_wrong_report(capfd, answer, hint):
    assert hint in verdict(capfd, "report", answer)


def timed(summary="median", finished=True, warm=1, slowest=True):
    def seconds_of(operation, finish, repeats):
        for _ in range(warm):
            operation()
            finish()
        times = []
        for _ in range(repeats):
            start = time.perf_counter()
            operation()
            if finished:
                finish()
            times.append(time.perf_counter() - start)
        one = sorted(times)[len(times) // 2] if summary == "median" else sum(times) / len(times)
        found = torch.tensor(one)
        if slowest:
            dist.all_reduce(found, op=dist.ReduceOp.MAX)
        return found.item()

    return seconds_of


@pytest.mark.parametrize(
    "mistake, hint",
    [
        ({"summary": "mean"}, "out of the ordinary"),
        ({"finished": False}, "it only starts the work"),
        ({"warm": 0}, "the first call sets things up"),
        ({"slowest": False}, "as long as the slowest"),
    ],
)
def test_a_wrong_time(capfd, mistake, hint):
    assert verdict(capfd, "seconds_of", timed())[0] == "✓"
    assert hint in verdict(capfd, "seconds_of", timed(**mistake))


def in_one_group(x, per_node):
    total = x.clone()
    dist.all_reduce(total)
    return total


def in_place(x, per_node):
    x.copy_(ANSWERS["sum_by_node"](x, per_node))
    return x


def within_only(x, per_node):
    total = x.clone()
    mine, _ = dist.new_subgroups(per_node)
    dist.all_reduce(total, group=mine)
    return total


@pytest.mark.parametrize(
    "answer, hint",
    [(in_one_group, "through a group of 4"), (in_place, "sum a copy"), (within_only, "is off by")],
)
def test_a_wrong_sum(capfd, answer, hint):
    assert hint in verdict(capfd, "sum_by_node", answer)


def printed_by_all():
    dist.init_process_group("gloo")
    dist.barrier()  # a rank that leaves while the other still connects is another mistake
    print(f"{dist.get_world_size()} ranks, sum 3")
    dist.destroy_process_group()


def still_standing():
    dist.init_process_group("gloo")
    dist.barrier()
    if dist.get_rank() == 0:
        print("2 ranks, sum 3")


def nothing_joined():
    print(dist.get_rank())


@pytest.mark.parametrize(
    "answer, hint",
    [
        (printed_by_all, "2 ranks printed the line"),
        (still_standing, "main left the process group standing"),
        (nothing_joined, "Default process group has not been initialized"),
        (print, "have to be functions that a cell defines"),
        (None, "is about a function"),
    ],
)
def test_a_wrong_main(capfd, answer, hint, nothing_is_left_behind):
    assert hint in verdict(capfd, "main", answer, ANSWERS["my_device"])


def stuck():
    while True:
        pass


def test_a_main_that_hangs_is_ended(capfd, monkeypatch, nothing_is_left_behind):
    monkeypatch.setattr(labs, "SECONDS", 4.0)
    assert "did not end in 8 s" in verdict(capfd, "main", stuck, ANSWERS["my_device"])


def test_the_milestone_of_the_solved_lab_is_reached(capfd):
    names = ("my_device", "my_part", "same_start", "report", "seconds_of", "sum_by_node", "main")
    check.lab_01.milestone(*(ANSWERS[name] for name in names))
    printed = capfd.readouterr().out
    assert "✗" not in printed
    assert "Milestone reached" in printed


def test_a_milestone_with_a_task_left_is_not_reached(capfd):
    names = ("my_device", "my_part", "same_start", "report", "seconds_of", "sum_by_node")
    check.lab_01.milestone(*(ANSWERS[name] for name in names), None)
    lines = capfd.readouterr().out.splitlines()
    assert lines[-2:] == ["✗ the same under torchrun", "6 of 7 tasks are solved."]
