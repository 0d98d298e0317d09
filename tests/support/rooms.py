"""The programs of the escape room in the chapter on debugging and of a problem, and how dumps were recorded.

`python tests/support/rooms.py` runs them on ranks and writes `allranks/check/rooms.json`.
"""

import contextlib
import json
import tempfile
import threading
import time
from pathlib import Path

from allranks import hang, launch

FILE = Path(__file__).parents[2] / "allranks" / "check" / "rooms.json"

EVALUATES_EARLY = """
import torch
import torch.distributed as dist


def train(gradient):
    dist.all_reduce(gradient)


def evaluate(correct):
    parts = [torch.empty_like(correct) for _ in range(4)]
    dist.all_gather(parts, correct)


def main():
    settings = torch.zeros(2)
    dist.broadcast(settings, src=0)
    step = 1 if dist.get_rank() == 2 else 0  # its checkpoint is one step newer
    while step < 6:
        train(torch.ones(64))
        step += 1
        if step % 3 == 0:
            evaluate(torch.ones(2))


main()
"""

SAVES_BY_ITS_OWN_CLOCK = """
import torch
import torch.distributed as dist


def forward(group):
    dist.all_reduce(torch.ones(8), group=group)


def backward(group):
    dist.all_reduce(torch.ones(16), group=group)


def save():
    parts = [torch.empty(4) for _ in range(4)]
    dist.all_gather(parts, torch.ones(4))


def main():
    rank = dist.get_rank()
    pairs = [dist.new_group(ranks) for ranks in ([0, 1], [2, 3])]
    columns = [dist.new_group(ranks) for ranks in ([0, 2], [1, 3])]
    for step in range(4):
        forward(pairs[rank // 2])
        if rank == 2 and step == 1:  # ten minutes have passed, it thinks
            save()
        backward(columns[rank % 2])


main()
"""

LOGS_FIRST = """
import torch
import torch.distributed as dist


def main():
    loss, tokens = torch.ones(1), torch.full((1,), 100.0)
    for step in range(2):
        dist.all_reduce(torch.ones(64))
        if dist.get_rank() == 1 and step == 1:  # a flag of the profiler, set on one machine
            dist.all_reduce(tokens)
            dist.all_reduce(loss)
        else:
            dist.all_reduce(loss)
            dist.all_reduce(tokens)


main()
"""

SKIPS_A_SAVE = """
import torch
import torch.distributed as dist


def exchange(gradient):
    dist.all_reduce(gradient)


def log(loss):
    dist.reduce(loss, dst=0)


def save(step):
    names = [None] * 4
    dist.all_gather_object(names, f"step_{step}")
    dist.barrier()


def main():
    for step in range(1, 7):
        exchange(torch.ones(64))
        if step % 2 == 0:
            log(torch.ones(1))
        if step == 4 and dist.get_rank() != 3:  # rank 3 found a checkpoint of that name
            save(step)


main()
"""

PROGRAMS = [EVALUATES_EARLY, SAVES_BY_ITS_OWN_CLOCK, LOGS_FIRST, SKIPS_A_SAVE]


def keep_writing(folder):
    while True:
        hang.write(folder)
        time.sleep(0.1)


def run(program, folder):
    threading.Thread(target=keep_writing, args=[folder], daemon=True).start()
    exec(compile(program.lstrip("\n"), "train.py", "exec"), {"__name__": "__main__"})
    threading.Event().wait()


def record(program):
    """Run a program on four ranks and return its dumps as plain data, as they are stored."""
    with tempfile.TemporaryDirectory() as folder:
        with contextlib.suppress(launch.RanksTimedOut):
            launch(run, program, folder, timeout=3)
        dumps = hang.read([folder])
    return {str(rank): plain(dump) for rank, dump in dumps.items()}


def plain(dump):
    """A dump as JSON knows it: the main thread's frames in the program, and in torch without its folder."""
    stands = []
    for filename, line, name in dump.stands:
        if filename == "train.py":
            stands.append([filename, line, name])
        elif "torch/distributed/distributed_c10d" in filename:
            stands.append(["/site-packages/torch/distributed/distributed_c10d.py", 0, name])
    is_inside = any(filename == "train.py" for filename, *_ in stands)
    return json.loads(json.dumps([dump.history, stands if is_inside else []]))


if __name__ == "__main__":
    text = json.dumps([record(program) for program in PROGRAMS], separators=(",", ":"))
    FILE.write_text(text + "\n", encoding="utf-8")
