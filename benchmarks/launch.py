"""How do the ways to start four ranks from a notebook compare, in real kernels on this machine?

    PYTHONPATH=tools python benchmarks/launch.py times
    PYTHONPATH=tools python benchmarks/launch.py faults
    PYTHONPATH=tools python benchmarks/launch.py waiting

Every launcher has a kernel of its own; the rounds are interleaved, so that what else the machine does falls
on all alike. A launcher that is not installed is left out.
"""

import argparse
import contextlib
import glob
import importlib.util
import os
import queue
import re
import signal
import statistics
import sys
import threading
import time
from pathlib import Path

from kernel import Kernel, leftovers

HERE = Path(__file__).resolve().parent

PATH = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]  # some run what `python` is
LIMIT = 20  # seconds that one cell may take
START = 60  # seconds that the first one may take
SETTLE = 45  # seconds in which a fork server prepares, and a standby world starts, under load too
DEADLINE = 3  # seconds, for the launchers that have one

PREPARE = f"""
import sys, socket; sys.path.insert(0, {str(HERE)!r})
import torch, tasks
def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]
"""
# The module it needs, what a notebook imports or starts once, and the cell that runs one task.
LAUNCHERS = {
    "allranks.launch": (
        "allranks",
        "from allranks import launch",
        f"launch(tasks.TASK, timeout={DEADLINE});",
    ),
    "allranks.launch, no standby": (
        "allranks",
        "import os; os.environ['ALLRANKS_STANDBY'] = '0'\nfrom allranks import launch",
        f"launch(tasks.TASK, timeout={DEADLINE});",
    ),
    "accelerate.notebook_launcher": (
        "accelerate",
        "from accelerate import notebook_launcher",
        "notebook_launcher(tasks.in_group, ('TASK',), num_processes=4, use_port=str(free_port()))",
    ),
    "elastic_launch, fork": (
        "torch",
        "from torch.distributed.launcher.api import LaunchConfig, elastic_launch",
        "elastic_launch(LaunchConfig(1, 1, 4, run_id='one', rdzv_backend='c10d', rdzv_endpoint='localhost:0',"
        " start_method='fork', max_restarts=0), tasks.in_group)('TASK')",
    ),
    "torch.multiprocessing.spawn": (
        "torch",
        "import torch.multiprocessing as mp",
        "mp.spawn(tasks.spawned, ('TASK', free_port()), nprocs=4)",
    ),
    "torchrun": (
        "torch",
        "import subprocess",
        "subprocess.run([sys.executable, '-m', 'torch.distributed.run', '--standalone', '--nproc-per-node=4',"
        " tasks.__file__, 'TASK'], check=True)",
    ),
    "ipyparallel (persistent)": (
        "ipyparallel",
        "import ipyparallel as ipp\nview = None",
        "if view is None:\n"
        "    view = ipp.Cluster(n=4, log_level=40).start_and_connect_sync()[:]\n"
        f'    view.execute("import sys; sys.path.insert(0, {str(HERE)!r}); import tasks", block=True)\n'
        "    view.scatter('rank', range(4), flatten=True, block=True)\n"
        "    view['port'] = free_port()\n"
        "view.execute('tasks.in_group(\"TASK\", rank, port, keep=True)', block=True);",
    ),
    "nbdistributed (persistent)": (
        "nbdistributed",
        "%load_ext nbdistributed",
        "START\n%%distributed\n"
        f"import sys; sys.path.insert(0, {str(HERE)!r}); import tasks; tasks.in_group('TASK', keep=True)",
    ),
}
FAULTS = ["raises", "exits", "is_killed", "segfaults", "returns_early", "deadlocks"]


class Notebook:
    """A kernel with one launcher in it."""

    def __init__(self, name):
        _, self.load, self.call = LAUNCHERS[name]
        self.token = f"{os.getpid()}-{time.time_ns()}"
        self.kernel = Kernel(
            LIMIT, OMP_NUM_THREADS="1", PATH=PATH, **{leftovers.TOKEN: self.token}
        ).__enter__()
        self.kernel.run(PREPARE)
        self.started = False

    def cells(self, task):
        """Return the cells that run `task`; the first time with what has to be imported and started."""
        cells = [] if self.started else [self.load]
        start, _, call = self.call.rpartition("START\n")
        if not self.started and self.call.startswith("START"):
            cells.append("%dist_init -n 4")
        self.started = True
        return [*cells, (start + call).replace("TASK", task)]

    def run(self, task):
        """Return the seconds that `task` took, or None if it failed or did not end."""
        self.kernel.timeout = LIMIT if self.started else START
        try:
            cells = [self.kernel.run(cell) for cell in self.cells(task)]
        except queue.Empty:
            return None
        return None if any(cell.error for cell in cells) else sum(cell.seconds for cell in cells)

    def close(self):
        """End the kernel, and whatever it has left."""
        self.kernel.__exit__()
        for pid in leftovers.processes(self.token):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def descendants(pid):
    """Return all processes below `pid`."""
    parents = {}
    for path in glob.glob("/proc/[0-9]*/stat"):
        with contextlib.suppress(OSError), open(path) as stat:
            parents.setdefault(int(stat.read().rpartition(")")[2].split()[1]), []).append(
                int(path.split("/")[2])
            )
    found, todo = [], [pid]
    while todo:
        below = parents.get(todo.pop(), [])
        found += below
        todo += below
    return found


def memory(pids):
    """Return the proportional set size of processes in MB: a page that n of them share counts 1/n."""
    kilobytes = 0
    for pid in pids:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/smaps_rollup") as rollup:
            kilobytes += int(re.search(r"^Pss: +(\d+)", rollup.read(), re.MULTILINE)[1])
    return kilobytes / 1000


def peak_memory(notebook):
    """Return the most memory that the processes below the kernel take while four ranks are there."""
    peak, over = 0, threading.Event()

    def watch():
        nonlocal peak
        while not over.wait(0.3):
            peak = max(peak, memory(descendants(notebook.kernel.pid)))

    watcher = threading.Thread(target=watch)
    watcher.start()
    # A deadline of 3 s would end a task that holds for as long.
    notebook.call = notebook.call.replace(f", timeout={DEADLINE}", "")
    notebook.run("hold")
    over.set()
    watcher.join()
    return peak


def shown(values, form):
    return form.format(statistics.median(values)) if values and None not in values else "failed"


def times(names, rounds):
    notebooks = {name: Notebook(name) for name in names}
    first = {name: notebook.run("all_reduce") for name, notebook in notebooks.items()}
    later, ddp = {name: [] for name in names}, {name: [] for name in names}
    for number in range(rounds):
        for name, notebook in notebooks.items():
            later[name].append(notebook.run("all_reduce"))
            if number % 3 == 0:
                ddp[name].append(notebook.run("ddp"))
    print("| launcher | first call | later calls | a cell with DDP | memory |\n|---|---|---|---|---|")
    for name, notebook in notebooks.items():
        columns = [
            shown([first[name]], "{:.2f} s"),
            shown(later[name], "{:.3f} s"),
            shown(ddp[name], "{:.2f} s"),
            f"{peak_memory(notebook):.0f} MB",
        ]
        print(f"| {name} | {' | '.join(columns)} |", flush=True)
        notebook.close()


def waiting():
    """What is below a kernel after its first launch, an early one, and after its second (Linux)."""
    print("| after launch | below the kernel | processes | memory |\n|---|---|---|---|")
    for name in ("allranks.launch, no standby", "allranks.launch"):
        notebook = Notebook(name)
        for number in (1, 2):
            notebook.run("all_reduce")
            time.sleep(SETTLE)
            parts = {}
            for pid in (everything := descendants(notebook.kernel.pid)):
                kind = re.sub(r"\d+$", "…", Path(f"/proc/{pid}/comm").read_text().strip())
                parts.setdefault(kind, []).append(pid)
            for kind, pids in [*parts.items(), ("together", everything)]:
                print(f"| {number}, {name} | {kind} | {len(pids)} | {memory(pids):.0f} MB |", flush=True)
        notebook.close()


def verdict(cell):
    """Say which ranks the error of a cell names first, and how long the cell took."""
    if cell is None:
        return f"hangs > {LIMIT} s"
    if cell.error is None:
        return f"no error, {cell.seconds:.1f} s"
    said = re.sub(r"\x1b\[[0-9;]*m", "", cell.error["evalue"])
    named = re.search(r"(?:rank|process|engine)s?[^0-9\n]{0,9}(\d(?:, \d)*)\b", said.lower())
    return f"{'rank ' + named[1] if named else 'no rank'}, {cell.seconds:.1f} s"


def attempt(name, fault):
    """Return what became of a fault: the verdict, and whether the next call works; all in a fresh kernel."""
    notebook = Notebook(name)
    try:
        if notebook.run("all_reduce") is None:
            return "does not start"
        try:
            if fault == "interrupt":
                begun = notebook.kernel.begin(notebook.cells("deadlocks")[-1].replace(f"={DEADLINE}", "=60"))
                time.sleep(6 if name == "torchrun" or "spawn" in name else 2)
                start = time.monotonic()
                notebook.kernel.interrupt()
                ended = notebook.kernel.finish(begun).error is not None
                said = f"{time.monotonic() - start:.1f} s" if ended else "no error"
            else:
                said = verdict(notebook.kernel.run(notebook.cells(fault)[-1]))
        except queue.Empty:
            return verdict(None)
        return said + ("" if notebook.run("all_reduce") is not None else ", then unusable")
    finally:
        notebook.close()


def orphans(name):
    """Return how many processes are left two seconds after the kernel was killed while ranks ran."""
    notebook = Notebook(name)
    try:
        if notebook.run("all_reduce") is None:
            return "does not start"
        notebook.kernel.begin(notebook.cells("deadlocks")[-1].replace(f"={DEADLINE}", "=60"))
        time.sleep(6 if name == "torchrun" or "spawn" in name else 2)
        notebook.kernel.kill()
        return str(len(leftovers.gone(lambda: leftovers.processes(notebook.token))))
    finally:
        notebook.close()


def faults(names):
    columns = [*FAULTS, "interrupt", "kernel killed"]
    print(f"| launcher | {' | '.join(columns)} |\n|{'---|' * (len(columns) + 1)}")
    for name in names:
        cells = [attempt(name, fault) for fault in [*FAULTS, "interrupt"]]
        print(f"| {name} | {' | '.join([*cells, orphans(name) + ' left'])} |", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["times", "faults", "waiting"])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", nargs="*", help="names of launchers")
    options = parser.parse_args()
    names = [
        name
        for name, (module, *_) in LAUNCHERS.items()
        if importlib.util.find_spec(module) and (not options.only or any(one in name for one in options.only))
    ]
    if options.what == "times":
        times(names, options.rounds)
    elif options.what == "faults":
        faults(names)
    else:
        waiting()


if __name__ == "__main__":
    main()
