"""Record what torchft does when a replica dies, in allranks/recovery.py: `python benchmarks/recovery.py`.

Three replicas, one process each, train the digits model with gloo. Replica 1 kills itself in the middle of a
step and is started again at once; the others go on without it, and it takes its state from one of them. Every
step is held to a quarter of a second, so that the survivors have steps to train while the new process starts.
"""

import hashlib
import importlib.metadata
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from datetime import date, timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from allranks.model import GPT, digits, loss_of

REPLICAS, STEPS, SECONDS = 3, 60, 0.25
DIES, DIES_AT = 1, 8  # the replica and its step
WAIT = timedelta(seconds=20)
FILE = Path(__file__).parent.parent / "allranks" / "recovery.py"

HEAD = '''"""What happened when a replica under torchft died? Recorded by benchmarks/recovery.py, not written.

{about}
"""

from collections import namedtuple

Attempt = namedtuple("Attempt", "replica life seconds step ranks kept loss weights")
"""A replica's attempt at a step: which life of the replica, the seconds at its end since the first one's, how
many replicas took part, whether they kept the step, this replica's loss, and the first digits of a SHA-256
of its weights afterwards. `step` counts from 0."""

REPLICAS, STEPS, DIED_AT = {replicas}, {steps}, {dies_at}
DIED, BEGAN = {died!r}, {began!r}
"""Seconds: when replica 1 killed itself, and when its second process had loaded Python and torch."""

_ROWS = """
{rows}
"""
ATTEMPTS = [
    Attempt(int(r), int(life), float(s), int(step), int(n), kept == "1", float(loss), weights)
    for r, life, s, step, n, kept, loss, weights in map(str.split, _ROWS.strip().splitlines())
]
'''


def batches():
    data = digits()
    return [data[12 * step % 1200 :][:12] for step in range(STEPS)]


def digest(model):
    weights = torch.cat([p.detach().flatten() for p in model.parameters()])
    return hashlib.sha256(weights.numpy().tobytes()).hexdigest()[:8]


def replica(number, life, address, folder):
    """Train as replica `number`, and write a line for each attempt at a step."""
    from torchft.manager import Manager
    from torchft.process_group import ProcessGroupGloo

    torch.set_num_threads(1)
    (folder / f"began_{number}_{life}").write_text(str(time.time()))
    torch.manual_seed(0)
    model = GPT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    def load(state):
        model.load_state_dict(state["model"]), optimizer.load_state_dict(state["optimizer"])

    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    manager = Manager(
        pg=ProcessGroupGloo(timeout=WAIT),
        min_replica_size=2,
        load_state_dict=load,
        state_dict=lambda: {"model": model.state_dict(), "optimizer": optimizer.state_dict()},
        replica_id=str(number),
        store_addr="127.0.0.1",
        store_port=store.port,
        rank=0,
        world_size=1,
        lighthouse_addr=address,
        hostname="127.0.0.1",
        use_async_quorum=False,
        timeout=WAIT,
        quorum_timeout=WAIT,
    )
    (folder / f"ready_{number}").touch()
    while len(list(folder.glob("ready_*"))) < REPLICAS:  # so that the first step has all of them
        time.sleep(0.05)
    data = batches()
    while manager.current_step() < STEPS:
        end = time.time() + SECONDS
        manager.start_quorum()
        step, ranks = manager.current_step(), manager.num_participants()
        loss = loss_of(model, data[step].chunk(ranks)[manager.participating_rank()])
        optimizer.zero_grad()
        loss.backward()
        if (number, life, step) == (DIES, 0, DIES_AT):
            (folder / "died").write_text(str(time.time()))
            os.kill(os.getpid(), signal.SIGKILL)
        for p in model.parameters():
            manager.allreduce(p.grad).wait()
        kept = manager.should_commit()
        if kept:
            optimizer.step()
        with open(folder / "attempts", "a") as file:
            row = number, life, time.time(), step, ranks, int(kept), loss.item(), digest(model)
            print(json.dumps(row), file=file)
        time.sleep(max(0, end - time.time()))
    manager.shutdown(wait=False)


def record(folder):
    """Run all replicas, start the one that dies again, and return the rows and two times."""
    from torchft.coordination import LighthouseServer

    lighthouse = LighthouseServer(
        bind="127.0.0.1:0",
        min_replicas=2,
        join_timeout_ms=1000,
        quorum_tick_ms=50,
        heartbeat_timeout_ms=1000,
    )
    address = lighthouse.address()

    def start(number, life):
        command = [sys.executable, __file__, "replica", str(number), str(life), address, str(folder)]
        return subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"})

    running = {number: start(number, 0) for number in range(REPLICAS)}
    try:
        running[DIES].wait(timeout=120)
        assert running[DIES].returncode == -signal.SIGKILL, running[DIES].returncode
        running[DIES] = start(DIES, 1)
        for process in running.values():
            assert process.wait(timeout=120) == 0
    finally:
        for process in running.values():
            process.kill()
        lighthouse.shutdown()
    rows = [json.loads(line) for line in (folder / "attempts").read_text().splitlines()]
    times = [float((folder / name).read_text()) for name in ("died", f"began_{DIES}_1")]
    return sorted(rows, key=lambda row: row[2]), *times


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows, died, began = record(folder)
        start = rows[0][2]
        about = (
            f"torchft {importlib.metadata.version('torchft')}, torch {torch.__version__}, "
            f"three gloo processes on {os.cpu_count()} cores ({platform.system()}), {date.today():%d %B %Y}."
        )
        lines = [
            f"{number} {life} {at - start:.3f} {step} {ranks} {kept} {loss:.6f} {weights}"
            for number, life, at, step, ranks, kept, loss, weights in rows
        ]
        FILE.write_text(
            HEAD.format(
                about=about,
                replicas=REPLICAS,
                steps=STEPS,
                dies_at=DIES_AT,
                died=round(died - start, 3),
                began=round(began - start, 3),
                rows="\n".join(lines),
            )
        )
    print(f"{len(lines)} attempts at {STEPS} steps")


if __name__ == "__main__":
    if sys.argv[1:2] == ["replica"]:
        replica(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], Path(sys.argv[5]))
    else:
        main()
