"""Does every fault end in the right sentence, every time, on a machine that is busy?

    python benchmarks/faults.py --times 100 --busy 2

Prints one line per fault: how often the message was exactly the expected one, how many different notes
came with it, the slowest call, and how many processes were left two seconds later.
"""

import argparse
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time

import torch
import torch.distributed as dist

from allranks import launch
from allranks.launch import server

TIMEOUT = 1.5  # seconds; the deadline of those that reach it


def agree():
    t = torch.ones(1000)
    for root in range(dist.get_world_size()):
        dist.all_reduce(t)
        dist.broadcast(t, root)
    dist.barrier()


def send_and_leave():
    """The rank that sends returns while 8 MB are still on their way."""
    if dist.get_rank() == 0:
        dist.send(torch.ones(2_000_000), dst=3)
    if dist.get_rank() == 3:
        dist.recv(torch.empty(2_000_000), src=0)


def raises():
    if dist.get_rank() == 1:
        raise ValueError("shape mismatch")
    dist.all_reduce(torch.ones(3))


def two_raise():
    if dist.get_rank() in (0, 2):
        raise ValueError("shape mismatch")
    dist.all_reduce(torch.ones(3))


def all_raise():
    raise KeyError("weight")


def exits():
    if dist.get_rank() == 2:
        os._exit(3)
    dist.all_reduce(torch.ones(3))


def is_killed():
    if dist.get_rank() == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(torch.ones(3))


def segfaults():
    if dist.get_rank() == 3:
        ctypes.string_at(0)
    dist.barrier()


def killed_in_a_ring():
    for step in range(1000):
        if step == 100 and dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        dist.all_reduce(torch.ones(1000))


def returns_early():
    if dist.get_rank() != 0:
        dist.all_reduce(torch.ones(3))


def enters_another():
    if dist.get_rank() == 0:
        dist.barrier()
    else:
        dist.all_reduce(torch.ones(3))


def larger_tensor():
    dist.all_reduce(torch.ones(4 if dist.get_rank() == 1 else 3))


def other_dtype():
    dist.all_reduce(torch.ones(3, dtype=torch.float64 if dist.get_rank() else torch.float32))


def smaller_then_more():
    dist.all_reduce(torch.ones(1000 if dist.get_rank() == 2 else 4000))
    dist.all_reduce(torch.ones(4000))


def result_cannot_be_sent():
    return threading.Lock() if dist.get_rank() == 1 else None


def launches():
    launch(agree, world_size=2)


def deadlocks():
    if dist.get_rank() in (0, 2):
        dist.recv(torch.empty(1), src=2 - dist.get_rank())


def sleeps():
    time.sleep(60)


def is_interrupted():
    dist.recv(torch.empty(1), src=(dist.get_rank() + 1) % dist.get_world_size())


EXPECTED = {
    agree: "",
    send_and_leave: "",
    raises: "rank 1 raised ValueError: shape mismatch",
    two_raise: "ranks 0, 2 raised ValueError: shape mismatch",
    all_raise: "ranks 0, 1, 2, 3 raised KeyError: 'weight'",
    exits: "rank 2 exited with code 3 before the function returned",
    is_killed: "rank 2 was killed by SIGKILL (by a person, or for want of memory)",
    segfaults: "rank 3 died of SIGSEGV (segmentation fault)",
    killed_in_a_ring: "rank 1 was killed by SIGKILL (by a person, or for want of memory)",
    returns_early: "rank 0 returned while ranks 1, 2, 3 were still waiting in all_reduce",
    enters_another: "ranks 0, 1, 2, 3 were still running after 1.5 s · rank 0 entered barrier"
    " · ranks 1, 2, 3 entered all_reduce with (3,) Float",
    larger_tensor: "ranks 0, 2, 3 entered all_reduce with (3,) Float"
    " · rank 1 entered all_reduce with (4,) Float",
    other_dtype: "rank 0 entered all_reduce with (3,) Float"
    " · ranks 1, 2, 3 entered all_reduce with (3,) Double",
    smaller_then_more: "ranks 0, 1, 3 entered all_reduce with (4000,) Float"
    " · rank 2 entered all_reduce with (1000,) Float",
    result_cannot_be_sent: "rank 1 raised TypeError: the result, a lock, cannot be sent back: "
    "TypeError: cannot pickle '_thread.lock' object",
    launches: "ranks 0, 1, 2, 3 raised RuntimeError: launch was called on a rank: a rank is already one "
    "process of a world. Call launch in the notebook; for fewer ranks, use dist.new_group.",
    deadlocks: "ranks 0, 2 were still running after 1.5 s",
    sleeps: "ranks 0, 1, 2, 3 were still running after 1.5 s",
    is_interrupted: "all ranks were ended",
}


def attempt(fault):
    """Return the message and the note that launching `fault` ends in, and the seconds it took."""
    timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
    if fault is is_interrupted:
        timer.start()
    start = time.perf_counter()
    try:
        launch(fault, timeout=TIMEOUT if "still running" in EXPECTED[fault] else 30)
        message, notes = "", []
    except BaseException as error:
        message, notes = str(error), getattr(error, "__notes__", [])
    return message, "\n".join(notes), time.perf_counter() - start


def ranks_left():
    """Return how many worlds the fork server still has when two seconds have passed, or it has none."""
    deadline = time.monotonic() + 2
    while True:
        with open(f"/proc/{server.pid()}/task/{server.pid()}/children") as children:
            left = len(children.read().split())
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.01)


@contextlib.contextmanager
def busy(loops):
    """Keep `loops` processors busy."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(loops)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--busy", type=int, default=2, help="busy loops beside it")
    parser.add_argument("only", nargs="*", help="names of faults")
    options = parser.parse_args()
    os.environ["ALLRANKS_OUTPUT"] = "ordered"
    launch(agree)
    print("| fault | right | notes | slowest | left |\n|---|---|---|---|---|")
    with busy(options.busy):
        for fault, expected in EXPECTED.items():
            if options.only and fault.__name__ not in options.only:
                continue
            with open(os.devnull, "w") as quiet, contextlib.redirect_stdout(quiet):
                attempts = [(*attempt(fault), ranks_left()) for _ in range(options.times)]
            messages, notes, seconds, left = zip(*attempts, strict=True)
            row = f"{messages.count(expected)} of {options.times} | {len(set(notes))} | {max(seconds):.2f} s"
            print(f"| {fault.__name__} | {row} | {max(left)} |", flush=True)
            for wrong in set(messages) - {expected}:
                print(f"  {messages.count(wrong)} × {wrong}", file=sys.stderr, flush=True)
            if len(set(notes)) > 1:
                print(*(f"  {notes.count(note)} × {note}" for note in set(notes)), sep="\n", file=sys.stderr)


if __name__ == "__main__":
    main()
