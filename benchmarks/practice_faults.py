"""Is the culprit named, and is nothing lost? The faults of *Debugging* and *Saving safely*, many times.

    python benchmarks/practice_faults.py --times 20

Prints a row for each fault. Of a program that hangs or aborts: how often `allranks.hang` named the
culprit's rank, and its line, which is marked here. Of a save that a fault strikes, at another moment or place
each time: what `allranks.parallel.checkpoint.newest` finds afterwards, and what a folder holds in which the
save overwrote another.
"""

import argparse
import contextlib
import inspect
import io
import os
import random
import re
import resource
import signal
import tempfile
import threading
import time
import warnings
from collections import Counter
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

from allranks import hang, launch
from allranks.parallel import checkpoint

# ---- programs of the hang laboratory ----


def uneven_batches():
    for _ in range(2 if dist.get_rank() == 2 else 3):
        dist.all_reduce(torch.ones(4))
    dist.barrier()  # rank 2


def branch_on_the_rank():
    for step in range(3):
        dist.all_reduce(torch.ones(4))
        if dist.get_rank() == 0 and step == 1:
            dist.reduce(torch.ones(1), dst=0)  # rank 0


def other_dtype():
    total = torch.tensor(sum([] if dist.get_rank() == 2 else [0.5, 1.5]))
    dist.all_reduce(total)  # rank 2


def save_in_a_branch():
    if dist.get_rank() == 0:
        with tempfile.TemporaryDirectory() as folder:
            dcp.save({"weight": torch.ones(3)}, checkpoint_id=folder)  # rank 0
    dist.barrier()


def own_group():
    if dist.get_rank() == 3:
        dist.new_group([3])
    dist.all_reduce(torch.ones(1), group=dist.new_group([0, 1, 2, 3]))  # rank 3


def missing_partner():
    rank, activation = dist.get_rank(), torch.ones(2)
    if rank > 0:
        dist.recv(activation, rank - 1)
    if rank in (0, 2):
        dist.send(activation, rank + 1)  # rank 1


def wrong_order(folder):
    loss, norm = torch.tensor(1.0), torch.tensor(10.0)
    if dist.get_rank() == 1:
        dist.all_reduce(norm)  # rank 1
        dist.all_reduce(loss)
    else:
        dist.all_reduce(loss)
        dist.all_reduce(norm)
    hang.write(folder)


def exception_on_one_rank():
    for batch in (3.0, 2.0, 1.0):
        if batch <= dist.get_rank() and dist.get_rank() == 1:
            raise ValueError("the loss is not finite")  # rank 1
        dist.all_reduce(torch.tensor(batch))


PROGRAMS = (
    uneven_batches,
    branch_on_the_rank,
    other_dtype,
    save_in_a_branch,
    own_group,
    missing_partner,
    wrong_order,
    exception_on_one_rank,
)


def culprit(program):
    """Return the rank and the line of `program` that are marked as to blame."""
    lines, first = inspect.getsourcelines(program)
    at = next(number for number, line in enumerate(lines) if "  # rank " in line)
    return int(lines[at].rpartition(" ")[2]), first + at


def named(program):
    """Run `program` once; return whether the findings name the culprit's rank, and whether its line."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        try:
            launch(program, *([folder] if program is wrong_order else []), timeout=4)
            dumps = hang.read([folder])
        except launch.LaunchError as error:
            dumps = hang.of(error)
    rank, line = culprit(program)
    told = "\n".join([*hang.findings(dumps), *hang.standing(dumps)])
    by_line = rf"\brank {rank}\b[^·\n]*line {line}, in {program.__name__}\b"
    return bool(re.search(rf"\brank {rank}\b", told)), bool(re.search(by_line, told))


# ---- faults that strike a save ----


def rows(step):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    row = torch.full((1, 100_000), float(step))
    return {"rows": DTensor.from_local(row, mesh, [Shard(0)])}


class Broken(dcp.FileSystemWriter):
    def write_data(self, plan, planner):
        raise OSError("a broken cable")


def save(place, step, kept, fault=None, moment=0.0):
    """Save `step` on all ranks, and let `fault` strike rank 1 at the share `moment` of its way."""
    warnings.simplefilter("ignore")  # DCP's, that it overwrites a checkpoint
    struck = dist.get_rank() == 1

    def write(path):
        if struck and fault == "full disk":
            limit = int(400_000 * moment)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        broken = struck and fault == "error of one rank"
        writer = Broken(path) if broken else dcp.FileSystemWriter(path)
        dcp.save(rows(step), storage_writer=writer)

    if struck and fault == "kill":
        threading.Timer(moment, os.kill, (os.getpid(), signal.SIGKILL)).start()
    began = time.perf_counter()
    if kept:
        checkpoint.keep(lambda path: checkpoint.together(lambda: write(path)), place / f"step_{step}")
    else:
        checkpoint.together(lambda: write(place / "latest"))
    return time.perf_counter() - began


def read(path):
    found = rows(0)
    dcp.load(found, checkpoint_id=path)
    return set(found["rows"].full_tensor().flatten().tolist())


def flip(folder, drawn):
    """Flip one bit of one file of weights, at a place that is drawn."""
    file = drawn.choice(sorted(folder.glob("*.distcp")))
    content = bytearray(file.read_bytes())
    content[drawn.randrange(len(content) - 400_000, len(content))] ^= 1 << drawn.randrange(8)
    file.write_bytes(content)


def struck(fault, kept, drawn):
    """Save steps 2 and 4, let `fault` strike the second; return in one word what can be loaded afterwards."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        seconds = max(launch(save, place, 2, kept))
        moment = drawn.random() * (seconds if fault == "kill" else 1)
        with contextlib.suppress(launch.LaunchError):
            launch(save, place, 4, kept, None if fault == "flipped bit" else fault, moment)
        if fault == "flipped bit":
            flip(place / ("step_4" if kept else "latest"), drawn)
        path = checkpoint.newest(place) if kept else place / "latest"
        if path is None:
            return "lost"
        try:
            found = launch(read, path)[0]
        except launch.LaunchError:
            return "lost"
        whole = [{2.0}, {4.0}] if not kept else [{float(path.name.removeprefix("step_"))}]
        return "whole" if found in whole else "wrong"


def of_programs(times):
    print("| program | tried | rank named | line named |\n|---|---|---|---|")
    for program in PROGRAMS:
        ranks, lines = zip(*(named(program) for _ in range(times)), strict=True)
        print(f"| {program.__name__} | {times} | {sum(ranks)} | {sum(lines)} |", flush=True)


def of_saves(times):
    print("| fault | tried | with `keep` | overwritten |\n|---|---|---|---|")
    for fault in ("kill", "full disk", "error of one rank", "flipped bit"):
        ends = []
        for kept in (True, False):
            drawn = random.Random(0)
            counts = Counter(struck(fault, kept, drawn) for _ in range(times))
            ends.append(", ".join(f"{n} {word}" for word, n in sorted(counts.items())))
        print(f"| {fault} | {times} | {' | '.join(ends)} |", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--only", choices=["programs", "saves"])
    options = parser.parse_args()
    os.environ.pop("ALLRANKS_RULES", None)
    if options.only != "saves":
        of_programs(options.times)
    if options.only != "programs":
        of_saves(options.times)


if __name__ == "__main__":
    main()
