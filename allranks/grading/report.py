"""Grade many submissions, some at a time, and write what a lecturer needs: `marks.csv` and `marks.json`."""

import contextlib
import csv
import hashlib
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import allranks
from allranks.grading import reading, supervisor
from allranks.launch import output

COLUMNS = (
    "submission", "lab", "points", "out_of", "status", "reasons", "seconds", "sha256", "allranks", "torch",
    "python", "sandbox",
)  # fmt: skip


def notebooks(paths):
    """The notebooks that `paths` name: files as they are, and of folders all but what is hidden."""
    found = []
    for path in map(Path, paths):
        inside = sorted(path.rglob("*.ipynb")) if path.is_dir() else [path]
        found += [p for p in inside if p == path or not _is_hidden(p.relative_to(path))]
    return list(dict.fromkeys(found))


def graded(path, seconds, sandboxed, seed):
    """Return the record of one submission: what its columns say, and each task's points and reason.

    The weights and inputs of its checks depend on `seed`, a number, and on the submission.
    """
    start = time.monotonic()
    name = os.fsencode(path).decode("utf-8", "replace")
    record = {"submission": name, "lab": "", "points": 0, "out_of": 0, "status": "graded", "tasks": []}
    record |= {"draw": 0, "notes": [], "sha256": "", "sandbox": "bubblewrap" if sandboxed else "none"}
    try:
        submission = reading.read(path)
        digest = hashlib.sha256(f"{seed} {submission['sha256']}".encode()).hexdigest()
        submission["draw"] = 1 + int(digest, 16) % 1_000_000
        record |= {name: submission[name] for name in ("lab", "sha256", "notes", "draw")}
        answer = _supervised(submission, seconds, sandboxed)
        record |= {"tasks": answer["tasks"], **answer["versions"]}
        record["status"] = answer["error"] or "graded"
    except (reading.NotGradable, OSError) as error:
        record["status"] = f"{name} {error}"
    record["points"] = sum(task["points"] for task in record["tasks"])
    record["out_of"] = len(record["tasks"])
    record["seconds"] = round(time.monotonic() - start, 1)
    return record


def grade(paths, out, workers, seconds, sandboxed, seed):
    """Grade `paths`, `workers` at a time; write both files to `out`; return the records.

    Raises OSError, before anything is graded, if they cannot be written.
    """
    files = writable(out)
    records = []
    with ThreadPoolExecutor(workers) as pool:
        for record in pool.map(lambda path: graded(path, seconds, sandboxed, seed), notebooks(paths)):
            records.append(record)
            _say(line(record))
    with open(files[0], "w", encoding="utf-8") as file:
        json.dump(
            {"allranks": allranks.__version__, "seed": seed, "submissions": records},
            file,
            ensure_ascii=False,
            indent=1,
        )
    with open(files[1], "w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, COLUMNS, extrasaction="ignore", restval="")
        table.writeheader()
        for record in records:
            missed = [t for t in record["tasks"] if not t["points"]]
            reasons = " | ".join(f"{t['task']}: {t['reason']}" for t in missed)
            table.writerow({name: _plain(value) for name, value in (record | {"reasons": reasons}).items()})
    return records


def writable(out):
    """Make the folder `out`; return the paths of both files, which can be written, or raise OSError."""
    out.mkdir(parents=True, exist_ok=True)
    files = [out / "marks.json", out / "marks.csv"]
    for path in files:
        with open(path, "a"):  # it keeps what an earlier grading has left
            pass
    return files


def _say(text):
    """Print a line; a reader that has gone, or an encoding that lacks a letter, costs no marks."""
    with contextlib.suppress(OSError, ValueError):
        output.write(text + "\n")


def line(record):
    """One line about a submission: its points, or why it has none."""
    if record["status"] != "graded":
        return f"not graded: {record['status']}"
    return f"{record['points']} of {record['out_of']}  {record['submission']}  {record['lab']}"


def cores():
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def _supervised(submission, seconds, sandboxed):
    request = {"submission": submission, "seconds": seconds, "sandboxed": sandboxed}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "allranks.grading.supervisor"],
        input=json.dumps(request), capture_output=True, text=True, encoding="utf-8", check=False,
        env={**os.environ, "PYTHONPATH": str(supervisor.PACKAGE.parent), "PYTHONIOENCODING": "utf-8"},
    )  # fmt: skip
    try:
        return json.loads(done.stdout)
    except ValueError:
        return {"tasks": [], "versions": {}, "error": f"its supervisor was ended: {done.stderr[-500:]}"}


def _is_hidden(path):
    return any(part.startswith(".") for part in path.parts)


def _plain(value):
    """No spreadsheet takes a text for a formula."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t")) else value
