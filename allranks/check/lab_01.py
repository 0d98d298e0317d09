"""The tasks of Lab 01: ranks on whatever this machine has."""

import inspect
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist

from allranks.check import exercise, labs
from allranks.check.labs import are_close, is_tensor, is_written, on_ranks
from allranks.model import GPT, digits, loss_of
from allranks.trace import trace

FIRST, OFTEN, OUTLIER = 3.0, 0.02, 1.0  # seconds of the first call, of most, and of a disturbed one
SCRIPT = """import os

import torch
import torch.distributed as dist


{parts}

if __name__ == "__main__":
    {main}()
    assert not dist.is_initialized(), "main left the process group standing"
"""


def _pretend_to_be(rank, local_rank, gpus):
    """Let this process believe that it is `rank`, on a machine with `gpus` GPUs."""
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(local_rank), WORLD_SIZE="8")
    torch.cuda.is_available = lambda: gpus > 0
    torch.cuda.device_count = lambda: gpus
    dist.get_rank = lambda group=None: rank
    dist.get_world_size = lambda group=None: 8


@exercise
def my_device(answer):
    """`answer()` is the `torch.device` of the rank that calls it."""
    is_written(answer)

    def on_rank(rank, local_rank, gpus):
        _pretend_to_be(rank, local_rank, gpus)
        found = answer()
        return str(found) if isinstance(found, torch.device) else (found,)

    for rank, local_rank, gpus in ((5, 1, 4), (6, 6, 8), (1, 1, 0)):
        found = on_ranks(on_rank, rank, local_rank, gpus, world_size=1, backend="gloo")[0]
        where = f"Rank {rank}, local rank {local_rank}, on a machine with {gpus or 'no'} GPUs:"
        assert isinstance(found, str), f"{where} {found[0]!r} is no torch.device."
        assert gpus or found == "cpu", f"{where} {found} is not there; the CPU is."
        assert not gpus or found != "cpu", f"{where} there is a GPU for it, and this is the CPU."
        assert found != f"cuda:{rank}" or rank == local_rank, (
            f"{where} {found} is not there. A rank counts through all machines, GPUs on one."
        )
        assert found != "cuda", f"{where} 'cuda' alone is the same GPU for each rank until one is chosen."
        assert not gpus or found == f"cuda:{local_rank}", f"{where} {found} belongs to another rank."
    return "Each rank has a device of its own: its GPU on its machine, or the CPU."


@exercise
def my_part(answer):
    """`answer(batch)` is the part of `batch` of the rank that calls it."""
    is_written(answer)

    def on_rank(batch):
        return answer(batch)

    for world_size, count in ((4, 8), (4, 10), (3, 14), (4, 3)):
        batch = torch.arange(count * 2).view(count, 2)
        parts = on_ranks(on_rank, batch, world_size=world_size)
        case = f"{count} rows on {world_size} ranks"
        for rank, part in enumerate(parts):
            rows = len(part) if isinstance(part, torch.Tensor) and part.ndim else 0
            is_tensor(part, f"With {case}, the part of rank {rank}", (rows, 2))
        sizes = [len(part) for part in parts]
        said = ", ".join(map(str, sizes))
        assert sum(sizes) >= count, (
            f"With {case} the parts have {said}: {count - sum(sizes)} belong to nobody."
        )
        assert sum(sizes) <= count, f"With {case} the parts have {said}: some rows are taken twice."
        assert torch.equal(torch.cat(parts), batch), (
            f"With {case}, the parts in order of rank are not the batch."
        )
        assert max(sizes) - min(sizes) <= 1, f"With {case} the parts have {said}: one waits for another."
    return "Every row has one rank, and no rank has two rows more than another."


def _model(seed):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.BatchNorm1d(5), torch.nn.Linear(5, 6))
    model[1].running_mean.normal_()
    model[1].num_batches_tracked.fill_(seed)
    model[2].weight.requires_grad_(False)
    return model


@exercise
def same_start(answer):
    """`answer(model)` gives every rank the parameters and buffers of rank 0's model."""
    is_written(answer)

    def on_rank():
        device = "cuda" if "nccl" in dist.get_backend() else "cpu"
        model = _model(seed=10 + 7 * dist.get_rank()).to(device)
        before = list(model.parameters())
        answer(model)
        kept = all(p is q for p, q in zip(before, model.parameters(), strict=True))
        frozen = [p.requires_grad for p in model.parameters()]
        return {k: v.cpu() for k, v in model.state_dict().items()}, kept, frozen

    expected = _model(seed=10)
    for world_size in (2, 3):
        for rank, (state, kept, frozen) in enumerate(on_ranks(on_rank, world_size=world_size)):
            assert kept, (
                f"Rank {rank} has other Parameters than before: an optimizer made earlier has lost them."
            )
            assert frozen == [p.requires_grad for p in expected.parameters()], (
                f"On rank {rank} other parameters require a gradient than before."
            )
            for name, value in expected.state_dict().items():
                kind = "parameter" if name in dict(expected.named_parameters()) else "buffer"
                assert torch.equal(state[name], value), (
                    f"Rank 0's own {kind} {name} has changed; it is the one to be copied."
                    if rank == 0
                    else f"On rank {rank} the {kind} {name} is not rank 0's."
                )
    return "Every rank starts from rank 0's parameters and buffers."


@exercise
def report(answer):
    """`answer(line)` is the list of all ranks' lines on rank 0, and None elsewhere."""
    is_written(answer)

    def on_rank(words):
        return answer(f"rank {dist.get_rank()} {'has much to say ' * (words * dist.get_rank())}")

    for world_size, words in ((2, 1), (4, 3)):
        expected = [f"rank {rank} {'has much to say ' * (words * rank)}" for rank in range(world_size)]
        first, *others = on_ranks(on_rank, words, world_size=world_size)
        assert first is not None, "Rank 0 returned None; it is the one that gets the lines."
        assert isinstance(first, list | tuple), (
            f"Rank 0 returned {type(first).__name__}, and not a list of lines."
        )
        assert len(first) == world_size, f"Rank 0 has {len(first)} lines of {world_size} ranks."
        assert list(first) == expected, "Rank 0's lines are not those of the ranks, in their order."
        for rank, other in enumerate(others, start=1):
            assert other is None, f"Rank {rank} has the lines too: they went to ranks that do not need them."
    return "Rank 0 has a line from every rank, in order."


class _Clock:
    """A clock that goes on only while work is finished: a right answer is exact on a busy machine too."""

    def __init__(self, rank):
        self.now, self.queued, self.calls, self.rank = 100.0 * rank, 0.0, 0, rank

    def operation(self):
        self.queued += FIRST if self.calls == 0 else OFTEN * (1 + self.rank)
        self.queued += OUTLIER if self.calls == 3 else 0.0
        self.calls += 1

    def finish(self):
        self.now += self.queued
        self.queued = 0.0


@exercise
def seconds_of(answer):
    """`answer(operation, finish, repeats)` is how long one call takes, the same number on every rank."""
    is_written(answer)

    def on_rank(repeats):
        clock = _Clock(dist.get_rank())
        for name in ("perf_counter", "monotonic", "time"):
            setattr(time, name, lambda: clock.now)
        return answer(clock.operation, clock.finish, repeats), clock.calls

    for world_size, repeats in ((4, 5), (2, 9)):
        results = on_ranks(on_rank, repeats, world_size=world_size)
        own = [OFTEN * (1 + rank) for rank in range(world_size)]
        for rank, (found, calls) in enumerate(results):
            assert isinstance(found, float), f"Rank {rank} returned {found!r}, and not a number of seconds."
            assert calls > repeats, (
                f"Rank {rank} called the operation {calls} times, for {repeats} repeats: "
                "the first call sets things up, and does not count."
            )
            assert found > 0, "The clock was read before the operation was finished: it only starts the work."
            assert found < OFTEN * world_size + 0.9 * OUTLIER / repeats, (
                f"Rank {rank} says {found:.3f} s, where most calls took {own[rank]:.3f} s: "
                "a call that is out of the ordinary must not move it."
            )
        found = [seconds for seconds, _ in results]
        assert max(abs(f - max(own)) for f in found) < 1e-4, (
            f"The ranks say {', '.join(f'{f:.3f}' for f in found)} s. "
            f"An operation of all ranks takes as long as the slowest, {max(own):.3f} s."
        )
    return f"{max(own):.2f} s, the slowest rank's, on every rank: the first call and the outlier left out."


@exercise
def sum_by_node(answer):
    """`answer(x, per_node)` is the sum of `x` over all ranks, within nodes first."""
    is_written(answer)

    def on_rank(count, per_node):
        device = "cuda" if "nccl" in dist.get_backend() else "cpu"
        x = torch.arange(float(count), device=device) + 10 * dist.get_rank()
        before = x.clone()
        with trace() as counted:
            found = answer(x, per_node)
        groups = [call.group_size for call in counted.log if call.kind != "barrier"]
        return found, torch.equal(x, before), groups

    for world_size, per_node, count in ((4, 2, 5), (6, 3, 7), (6, 2, 1)):
        x = torch.arange(float(count))
        expected = sum(x + 10 * rank for rank in range(world_size))
        case = f"With {world_size // per_node} nodes of {per_node}, what rank"
        for rank, (found, same, groups) in enumerate(
            on_ranks(on_rank, count, per_node, world_size=world_size)
        ):
            are_close(found, expected, f"{case} {rank} returned")
            assert same, f"{case} {rank} was given has changed; sum a copy."
            allowed = {per_node, world_size // per_node}
            assert set(groups) <= allowed, (
                f"{case} {rank} sent went through a group of {max(groups)}: no message may involve all ranks."
            )
    return "The sum over all ranks, by groups within a node and across nodes."


@exercise
def main(answer, device):
    """`answer()`, in a file of its own with `device` beside it, runs under torchrun."""
    is_written(answer, device)
    try:
        parts = "\n\n".join(inspect.getsource(part) for part in (device, answer))
    except (OSError, TypeError):
        raise AssertionError("`main` and `my_device` have to be functions that a cell defines.") from None
    ranks = min(torch.cuda.device_count(), 4) or 2
    status, printed, said = _torchrun(SCRIPT.format(parts=parts, main=answer.__name__), ranks)
    assert status is not None, f"torchrun with {ranks} ranks did not end in {2 * labs.SECONDS:.0f} s."
    raised = re.search(r"\b\w+Error: .+", said)
    why = raised.group().strip() if raised else f"status {status}"
    assert status == 0, f"torchrun ended with an error: {why}"
    expected = f"{ranks} ranks, sum {ranks * (ranks + 1) // 2}"
    times = printed.count(expected)  # two ranks may write into one line
    assert printed.strip(), f"Nothing was printed; rank 0 has to print {expected!r}."
    assert times, f"Printed was {printed.splitlines()[0]!r}, and not {expected!r}."
    assert times == 1, f"{times} ranks printed the line; one is enough."
    assert printed.strip() == expected, f"Besides {expected!r} something else was printed."
    return f"torchrun printed: {expected}"


def _torchrun(script, ranks):
    """Return the exit status (None if it took too long), what was printed, and what was said of errors."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "script.py")
        path.write_text(script, encoding="utf-8")
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(
            [*command, str(path)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip
        try:
            printed, said = process.communicate(timeout=2 * labs.SECONDS)
        except subprocess.TimeoutExpired:
            process.terminate()  # torchrun ends its ranks
            process.communicate()
            return None, "", ""
    return process.returncode, printed, said


def milestone(device, part, start, lines, seconds, total, script):
    """Try every task, and then all of them together: one gradient of the running model, on ranks."""
    tokens = digits()[100:130]

    def on_rank():
        torch.manual_seed(dist.get_rank())
        model = GPT(layers=1, hidden=16, heads=2).to(device())
        start(model)
        mine = part(tokens)
        (loss_of(model, mine) * len(mine)).backward()
        gradient = total(torch.cat([p.grad.flatten() for p in model.parameters()]), 2) / len(tokens)
        return gradient, lines(f"{len(mine)} pictures")

    def whole():
        torch.manual_seed(0)
        model = GPT(layers=1, hidden=16, heads=2)
        loss_of(model, tokens).backward()
        expected = torch.cat([p.grad.flatten() for p in model.parameters()])
        results = on_ranks(on_rank)
        for rank, (gradient, _) in enumerate(results):
            are_close(gradient, expected, f"The gradient on rank {rank}", rtol=1e-3)
        return f"30 pictures on 4 ranks ({', '.join(results[0][1])}) give the gradient of one process."

    labs.milestone(
        [
            ("a device for each rank", my_device, device),
            ("a part for each rank", my_part, part),
            ("the same start", same_start, start),
            ("a report to rank 0", report, lines),
            ("a time that can be trusted", seconds_of, seconds),
            ("a sum by nodes", sum_by_node, total),
            ("the same under torchrun", main, script, device),
        ],
        whole,
        "the same functions run in a notebook, under torchrun, on CPUs and on GPUs.",
    )
