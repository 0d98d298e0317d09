"""Which tests and notebooks run on this machine, and how did they end? pytest runs them."""

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import namedtuple
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
ON_GPU = "ALLRANKS_ON_GPU"  # tests/conftest.py hides GPUs unless it is set

Suite = namedtuple("Suite", "name what visible options")
Suite.__doc__ = (
    """A run of pytest: its name, what it says, whether it may see the GPUs, and pytest's options."""
)
Ended = namedtuple("Ended", "name what passed failed skipped seconds failures")
Ended.__doc__ = """How a suite ended: numbers of tests, seconds, and [(test, first line of its message)]."""

ON_CPU = ("launch", "launch_faults", "launch_output", "launch_requests", "launch_existing")
IN_KERNELS = ("launch_kernel",)  # needs Jupyter
DRY_NOTEBOOK = "notebooks/foundations/one_device.ipynb"  # light, and it starts ranks


def launch_suites(machine):
    """The launch tests: those of tests/gpu on this device; where it is a GPU, the others on its CPU too."""
    on_device = [str(ROOT / "tests/gpu/test_launch_on_device.py"), "-q"]
    suites = [Suite("launch on the device", "ranks on the device, and every fault", True, on_device)]
    if machine.device == "cuda":
        names = ON_CPU + (IN_KERNELS if find_spec("ipykernel") else ())
        files = [str(ROOT / f"tests/ranks/test_{name}.py") for name in names]
        what = "the book's launch tests on this machine's CPU, under its build of torch"
        what += "" if find_spec("ipykernel") else "; without those in kernels, since Jupyter is not here"
        workers = ["-n", "4", "--dist", "loadfile"] if find_spec("xdist") else []
        suites.append(Suite("launch on the CPU", what, False, [*files, "-q", *workers]))
    return suites


def notebook_suites(machine, workers=None):
    """The notebooks, outputs not compared, assertions as they are; one of them in the dry run."""
    on_gpu = machine.device == "cuda"
    chosen = "notebooks" if on_gpu else DRY_NOTEBOOK
    workers = max(1, min(8, (os.cpu_count() or 2) // 2)) if workers is None else workers
    options = ["--nbval-lax", "--nbval-current-env", "--nbval-cell-timeout=300", "-q"]
    if on_gpu and workers > 1 and find_spec("xdist"):
        options += ["-n", str(workers), "--dist", "loadscope"]
    what = "every notebook" if on_gpu else "one notebook"
    return [Suite("notebooks", what, True, [*options, str(ROOT / chosen)])]


def environment(suite, machine):
    """The environment of a suite: this repository importable, and the GPUs it may see."""
    visible = suite.visible and machine.device == "cuda"
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    given = {**os.environ, "PYTHONPATH": path, "PLOTLY_RENDERER": "plotly_mimetype"}
    given.pop(ON_GPU, None)
    given.pop("MPLBACKEND", None)  # figures belong to the notebooks
    if visible:
        given[ON_GPU] = "1"
        if machine.gpus and "CUDA_VISIBLE_DEVICES" not in given:
            given["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(machine.gpus)))
    else:
        given["CUDA_VISIBLE_DEVICES"] = ""
    return given


def run(suite, machine, folder, limit):
    """Run a suite, at most `limit` seconds; return how it ended."""
    report = Path(folder) / f"{suite.name.replace(' ', '-')}.xml"
    report.unlink(missing_ok=True)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:benchmark",  # it warns beside xdist, and a warning is an error here
        f"--junitxml={report}",
        *suite.options,
    ]
    try:
        done = subprocess.run(command, cwd=ROOT, env=environment(suite, machine), timeout=limit, check=False)
        status = f"pytest ended with status {done.returncode} and reported nothing"
    except subprocess.TimeoutExpired:
        status = f"pytest was still running after {limit:g} s"
    if not report.exists():
        return Ended(suite.name, suite.what, 0, 1, 0, 0.0, [(suite.name, status)])
    return ended(suite, report)


def ended(suite, report):
    """What a JUnit file says."""
    tests = failed = skipped = 0
    seconds, failures = 0.0, []
    for each in ElementTree.parse(report).getroot().iter("testsuite"):
        tests += int(each.get("tests"))
        failed += int(each.get("failures")) + int(each.get("errors"))
        skipped += int(each.get("skipped"))
        seconds += float(each.get("time"))
        for case in each.iter("testcase"):
            for kind in ("failure", "error"):
                if (found := case.find(kind)) is not None:
                    failures.append((f"{case.get('classname')}::{case.get('name')}", said(found)))
    passed = tests - failed - skipped
    return Ended(suite.name, suite.what, passed, failed, skipped, seconds, failures)


def said(failure):
    """The line of a failure that says what went wrong: of a cell, the error that it raised."""
    message = failure.get("message") or ""
    if "Notebook cell" in message:
        text = re.sub(r"(\x1b|#x1B)\[[0-9;]*m", "", f"{message}\n{failure.text or ''}")
        raised = re.findall(r"^\w*(?:Error|RankFailed|RanksTimedOut): .+", text, re.MULTILINE)
        message = raised[-1] if raised else text
    return message.strip().split("\n")[0][:200]
