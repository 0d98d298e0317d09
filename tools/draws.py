"""Do the official solutions keep every point, whatever is drawn for a submission?

    python tools/draws.py [--draws N] [--seed S] [--workers N] [lab_03 …]

Each solved lab is graded N times, as `python -m allranks grade` does, with the seeds S, S + 1, …: weights,
inputs and hidden cases differ each time. S changes with the day. A lost point is a fault of a check, and is
printed with the command that repeats it; then the script exits with 1.
"""

import argparse
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from allranks.grading import reading, report, supervisor

LABS = Path(__file__).resolve().parents[1] / "notebooks" / "labs"
SECONDS = 120.0  # of a task: a busy machine is no fault of a check


def solutions(names):
    """The solved labs: those of `names`, or all."""
    paths = {reading.read(path)["lab"]: path for path in sorted(LABS.glob("*_solved.ipynb"))}
    for name in set(names) - set(paths):
        sys.exit(f"draws: there is no lab {name!r}; there are {', '.join(sorted(paths))}")
    return [paths[name] for name in names or sorted(paths)]


def lost(record, seed):
    """A line for each point that is missing in the record of a solution graded with `seed`."""
    path = Path(record["submission"]).relative_to(LABS.parents[1])
    where = f"{record['lab']}, draw {record['draw']}"
    again = f"python -m allranks grade {path} --seed {seed}"
    if record["status"] != "graded":
        yield f"{where}: {record['status']} ({again})"
    for task in record["tasks"]:
        if not task["points"]:
            yield f"{where}, {task['task']}: ✗ {task['reason']} ({again})"


def main(words=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("labs", nargs="*", help="such as lab_03; all if there is none")
    parser.add_argument("--draws", type=int, default=1)
    parser.add_argument("--seed", type=int, default=int(time.time()) // 86400 * 1000, help="the first one")
    parser.add_argument("--workers", type=int, default=report.cores())
    options = parser.parse_args(words)
    if options.draws < 1 or options.workers < 1:
        parser.error(f"draws and workers must be at least 1, not {options.draws} and {options.workers}")
    paths, sandboxed = solutions(options.labs), supervisor.has_sandbox()
    seeds = range(options.seed, options.seed + options.draws)
    jobs = [(path, seed) for seed in seeds for path in paths]
    print(f"{len(paths)} labs, {len(seeds)} draws of each, seeds {seeds[0]} to {seeds[-1]}", flush=True)

    def graded(job):
        path, seed = job
        record = report.graded(path, SECONDS, sandboxed, seed)
        lines = list(lost(record, seed))
        points = f"{record['points']} of {record['out_of']} points in {record['seconds']:.0f} s"
        print("\n".join(lines) or f"{record['lab']}, draw {record['draw']}: {points}", flush=True)
        return len(lines)

    with ThreadPoolExecutor(options.workers) as pool:
        missing = sum(pool.map(graded, jobs))
    print(f"{missing} point{'s' * (missing != 1)} lost in {len(jobs)} gradings")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
