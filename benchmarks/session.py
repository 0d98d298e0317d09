"""How much memory, and how many processes, does a learner's session take?

`python benchmarks/session.py notebooks/labs/ddp_training_solved.ipynb …` runs notebooks whole (Linux).
A session is every process that works in the folder of the notebook, the kernel included. The sum of
their proportional set sizes is taken ten times a second, and the largest is printed.
"""

import sys
import tempfile
import threading
from pathlib import Path

import nbformat
from nbclient import NotebookClient

PROC = Path("/proc")


def megabytes(process):
    """The proportional set size of a process; 0 if it has ended."""
    try:
        lines = (process / "smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def works_in(process, folder):
    """Whether a process has `folder` as its working directory."""
    try:
        return (process / "cwd").readlink() == folder
    except OSError:
        return False


def watch(folder, done, largest):
    """Keep the largest memory and the largest number of processes until `done`."""
    while not done.wait(0.1):
        found = [
            process for process in PROC.iterdir() if process.name.isdigit() and works_in(process, folder)
        ]
        largest["MB"] = max(largest["MB"], sum(map(megabytes, found)))
        largest["processes"] = max(largest["processes"], len(found))


def session(path):
    """Run the notebook at `path`, and return the largest memory and number of processes."""
    done, largest = threading.Event(), {"MB": 0, "processes": 0}
    with tempfile.TemporaryDirectory() as folder:
        watcher = threading.Thread(target=watch, args=(Path(folder).resolve(), done, largest))
        watcher.start()
        try:
            notebook = nbformat.read(path, as_version=4)
            metadata = {"metadata": {"path": folder}}
            NotebookClient(notebook, timeout=120, allow_errors=True, resources=metadata).execute()
        finally:
            done.set()
            watcher.join()
    return largest


if __name__ == "__main__":
    for given in sys.argv[1:]:
        found = session(given)
        print(f"{given}: at most {found['MB']:.0f} MB, {found['processes']} processes", flush=True)
