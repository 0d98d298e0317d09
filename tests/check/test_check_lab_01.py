"""The checks of Lab 01: the solved lab's own answers are right, the usual wrong ones get a hint."""

import os
import threading
import time
from time import perf_counter

import pytest
import solved
import torch
import torch.distributed as dist
from solved import hang
from together import assert_verdicts, assert_wrong
from verdicts import verdict as verdict_of

from allranks import check
from allranks.check import labs

ANSWERS = solved.answers("multi_gpu_setup")
TASKS = ("my_device", "my_part", "same_start", "report", "seconds_of", "sum_by_node")


def verdict(capfd, task, *answers):
    return verdict_of(capfd, getattr(check.lab_01, task), *answers)


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


def global_rank():
    return torch.device("cuda", int(os.environ["RANK"])) if torch.cuda.is_available() else torch.device("cpu")


def any_gpu():
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def rank_modulo_gpus():
    gpus = torch.cuda.device_count()
    return torch.device("cuda", int(os.environ["RANK"]) % gpus) if gpus else torch.device("cpu")


def current_gpu():
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else any_gpu()


def by_accelerator():
    if not torch.accelerator.is_available():
        return torch.device("cpu")
    return torch.device(torch.accelerator.current_accelerator().type, int(os.environ["LOCAL_RANK"]))


def test_a_wrong_device():
    cases = [
        (global_rank, "RANK counts across all machines"),
        (rank_modulo_gpus, "Rank 5, local rank 2, on a machine with 4 GPUs: expected cuda:2"),
        (current_gpu, "its current device is cuda:0"),
        (any_gpu, "'cuda' without a number"),
        (lambda: torch.device("cpu"), "expected cuda:1, got the CPU"),
        (lambda: torch.device("cuda", 1), "belongs to another rank"),
        (lambda: torch.device("cuda", int(os.environ["LOCAL_RANK"])), "does not exist here; use the CPU"),
        (lambda: "cuda:1", "not a torch.device"),
        (by_accelerator, "✓"),
    ]
    assert_verdicts(check.lab_01.my_device, [((answer,), hint) for answer, hint in cases])


def chunk(batch):
    return batch.chunk(dist.get_world_size())[dist.get_rank()]


def always_two(batch):
    return batch[2 * dist.get_rank() : 2 * dist.get_rank() + 2]


def every_fourth(batch):
    return batch[dist.get_rank() :: dist.get_world_size()]


def test_a_wrong_part():
    cases = [
        (chunk, "3, 3, 3, 1"),
        (always_two, "2 belong to no rank"),
        (every_fourth, "the parts of ranks 0 to 3, one after another, are not the batch"),
        (lambda batch: batch, "taken twice"),
    ]
    assert_verdicts(check.lab_01.my_part, [((answer,), hint) for answer, hint in cases])


def parameters_only(model):
    for p in model.parameters():
        dist.broadcast(p.data, src=0)


def without_mask(model):
    for t in model.state_dict().values():
        dist.broadcast(t, src=0)


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


def test_a_wrong_start():
    cases = [
        (parameters_only, "On rank 1 the buffer"),
        (without_mask, "the buffer mask differs from rank 0's. It is not in the state dict"),
        (average, "Rank 0's own parameter 0.weight has changed"),
        (replaced, "Rank 0 has new Parameters"),
        (thawed, "requires_grad has changed"),
    ]
    assert_verdicts(check.lab_01.same_start, [((answer,), hint) for answer, hint in cases])


def everybody(line):
    lines = [None] * dist.get_world_size()
    dist.all_gather_object(lines, line)
    return lines


def test_a_wrong_report():
    cases = [
        (everybody, "Rank 1 should return None"),
        (lambda line: [line] if dist.get_rank() == 0 else None, "1 lines"),
    ]
    assert_verdicts(check.lab_01.report, [((answer,), hint) for answer, hint in cases])


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


def imported_by_name(operation, finish, repeats):
    operation()
    finish()
    times = []
    for _ in range(repeats):
        start = perf_counter()
        operation()
        finish()
        times.append(perf_counter() - start)
    seconds = torch.tensor(sorted(times)[len(times) // 2])
    dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
    return seconds.item()


def test_a_wrong_time():
    cases = [
        (timed(), "✓"),
        (imported_by_name, "✓"),
        (timed(**{"summary": "mean"}), "one outlier should not change"),
        (timed(**{"finished": False}), "calling it only starts it"),
        (timed(**{"warm": 0}), "the first call sets things up"),
        (timed(**{"slowest": False}), "as long as its slowest rank"),
    ]
    assert_verdicts(check.lab_01.seconds_of, [((answer,), hint) for answer, hint in cases])


def in_one_group(x, per_node):
    total = x.clone()
    dist.all_reduce(total)
    return total


def in_place(x, per_node):
    x.copy_(ANSWERS["sum_by_node"](x, per_node))
    return x


def within_only(x, per_node):
    total = x.clone()
    node, _ = dist.new_subgroups(per_node)
    dist.all_reduce(total, group=node)
    return total


def through(*tables):
    def sum_by_node(x, per_node):
        total, ranks = x.clone(), torch.arange(dist.get_world_size())
        for table in tables:
            group, _ = dist.new_subgroups_by_enumeration(table(ranks, per_node).tolist())
            dist.all_reduce(total, group=group)
        return total

    return sum_by_node


def nodes(ranks, per_node):
    return ranks.view(-1, per_node)


def peers(ranks, per_node):
    return ranks.view(-1, per_node).T


def every_other_node(ranks, per_node):
    return ranks.view(per_node, -1).T


def every_other_peers(ranks, per_node):
    return ranks.view(per_node, -1)


def in_a_thread(x, per_node):
    sums = []
    thread = threading.Thread(target=lambda: sums.append(in_one_group(x, per_node)))
    thread.start()
    thread.join()
    return sums[0]


def test_a_wrong_sum():
    cases = [
        (in_one_group, "through a group of 4"),
        (in_a_thread, "through a group of 4"),
        (in_place, "sum a copy"),
        (within_only, "has a relative error of"),
        (through(nodes, peers), "✓"),
        (through(peers, nodes), "rank 0 sums over its peers [0, 2] first"),
        (through(every_other_node, every_other_peers), "rank 0 sums over its peers [0, 2] first"),
    ]
    assert_verdicts(check.lab_01.sum_by_node, [((answer,), hint) for answer, hint in cases])


def printed_by_all():
    dist.init_process_group("gloo")
    dist.barrier()  # a rank that leaves while the other still connects is another mistake
    total = torch.tensor(dist.get_rank() + 1)
    dist.all_reduce(total)
    print(f"{dist.get_world_size()} ranks, sum {total.item()}")
    dist.destroy_process_group()


def still_standing():
    dist.init_process_group("gloo")
    dist.barrier()
    if dist.get_rank() == 0:
        print("2 ranks, sum 3")


def printed_alone():
    if os.environ["RANK"] == "0":
        print("2 ranks, sum 3")


def joined_and_printed():
    dist.init_process_group("gloo")
    dist.barrier()
    if dist.get_rank() == 0:
        print("2 ranks, sum 3")
    dist.destroy_process_group()


@pytest.mark.usefixtures("nothing_is_left_behind")
def test_a_wrong_main():
    cases = [
        (printed_by_all, "2 ranks printed the line"),
        (still_standing, "main does not destroy the process group"),
        (printed_alone, "main never joins a process group"),
        (joined_and_printed, "main sums nothing over the ranks"),
        (print, "have to be functions that a cell defines"),
        (None, "is a function, and None is not one"),
    ]
    assert_verdicts(
        check.lab_01.main,
        [
            (
                (
                    answer,
                    ANSWERS["my_device"],
                ),
                hint,
            )
            for answer, hint in cases
        ],
    )


def stuck():
    while True:
        pass


def test_a_main_that_hangs_is_ended(capfd, monkeypatch, nothing_is_left_behind):
    monkeypatch.setattr(labs, "SECONDS", 4.0)
    assert "did not finish in 8 s" in verdict(capfd, "main", stuck, ANSWERS["my_device"])


def test_a_milestone_with_a_task_left_is_not_reached(capfd):
    names = ("my_device", "my_part", "same_start", "report", "seconds_of", "sum_by_node")
    check.lab_01.milestone(*(ANSWERS[name] for name in names), None)
    lines = capfd.readouterr().out.splitlines()
    assert lines[-2:] == ["✗ the same under torchrun", "6 of 7 tasks are solved."]
