"""How long does `allranks grade` take for a class of thirty-three, and are its marks right?

    python benchmarks/grading.py [--workers N]

Seven labs, each handed in as solved, as handed out, and with one wrong function; three functions that hang,
three that crash, three that attack the grader, and three files that are no lab. It prints the time and
each mark that is not the expected one; then it exits with 1. The aim is 180 s on two cores.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from allranks.grading import reading, report, runner, supervisor

LABS = Path(__file__).resolve().parents[1] / "notebooks" / "labs"
FUNCTIONS = {  # of a task each, which no other task needs
    "multi_gpu_setup": "report",
    "ddp_training": "fit",
    "fsdp": "held",
    "mixed_precision": "cross_entropy",
    "deepspeed": "excess",
    "serving": "write",
    "model_parallel": "norm_of",
}
WRONG = "def {name}(*given, **others):\n    return None\n"
HANGING = "import time\ndef {name}(*given, **others):\n    while True:\n        time.sleep(1)\n"
CRASHING = (
    "import os\ndef {name}(*given, **others):\n    os._exit(3)\n",
    "import ctypes\ndef {name}(*given, **others):\n    ctypes.string_at(0)\n",
    "def {name}(*given, **others):\n    return {name}(*given, **others)\n",
)
HOSTILE = (
    "import os, signal\ndef {name}(*given, **others):\n    os.kill(-1, signal.SIGKILL)\n",
    "import os, subprocess\ndef {name}(*given, **others):\n"
    "    subprocess.Popen(['sleep', '600'], start_new_session=True)\n    return '✓'\n",
    "def {name}(*given, **others):\n    import allranks.check.labs as labs\n"
    "    labs.are_close = labs.is_tensor = lambda *_: None\n    return bytearray(16 << 30)\n",
)


def submissions():
    """Yield (name, text, points) of each submission."""
    for slug, name in FUNCTIONS.items():
        solved = json.loads((LABS / f"{slug}_solved.ipynb").read_text(encoding="utf-8"))
        count = tasks(slug)
        yield f"right {slug}", json.dumps(solved), count
        yield f"open {slug}", (LABS / f"{slug}.ipynb").read_text(encoding="utf-8"), 0
        yield f"wrong {slug}", with_cell(solved, WRONG.format(name=name)), count - 1
    for kind, cells in (("hanging", [HANGING] * 3), ("crashing", CRASHING), ("hostile", HOSTILE)):
        for slug, cell in zip(("multi_gpu_setup", "fsdp", "mixed_precision"), cells, strict=True):
            solved = json.loads((LABS / f"{slug}_solved.ipynb").read_text(encoding="utf-8"))
            cell = cell.format(name=FUNCTIONS[slug])
            yield f"{kind} {slug}", with_cell(solved, cell), tasks(slug) - 1
    yield "no bytes", "", 0
    yield "no cells", json.dumps({"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}), 0
    yield "no notebook", "print('hello')", 0


def tasks(slug):
    """How many tasks the lab has."""
    return len(runner.tasks_of(reading.read(LABS / f"{slug}_solved.ipynb")))


def with_cell(notebook, source):
    cell = {"cell_type": "code", "id": "mine", "metadata": {}, "outputs": [], "execution_count": None}
    return json.dumps(notebook | {"cells": [*notebook["cells"], cell | {"source": source}]})


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=report.cores() + 1)
    workers = parser.parse_args().workers
    with tempfile.TemporaryDirectory() as folder:
        expected = {}
        for name, text, points in submissions():
            expected[name] = points
            Path(folder, f"{name}.ipynb").write_text(text, encoding="utf-8")
        start = time.monotonic()
        records = report.grade([folder], Path(folder, "marks"), workers, 60.0, supervisor.has_sandbox(), 1)
        seconds = time.monotonic() - start
    print(f"{len(records)} submissions, {workers} at a time: {seconds:.0f} s")
    wrong = 0
    for record in records:
        name = Path(record["submission"]).stem
        if record["points"] != expected[name]:
            wrong += 1
            print(f"{name}: {record['points']} points, expected {expected[name]}: {record['tasks']}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
