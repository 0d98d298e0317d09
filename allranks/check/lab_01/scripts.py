"""Does the reader's `main` run under torchrun, in a file of its own?"""

import inspect
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from allranks.check import exercise, labs
from allranks.check.labs import is_written

SCRIPT = """import os

import torch
import torch.distributed as dist

_called = []


def _noted(name, function):
    def call(*args, **kwargs):
        _called.append(name)
        return function(*args, **kwargs)

    return call


for name in {collectives}:
    setattr(dist, name, _noted(name, getattr(dist, name)))


{parts}

if __name__ == "__main__":
    {main}()
    assert "init_process_group" in _called, "main never joins a process group"
    assert not dist.is_initialized(), "main does not destroy the process group"
    assert len(_called) > _called.count("barrier") + 1, "main sums nothing over the ranks"
"""
COLLECTIVES = (
    "init_process_group", "all_reduce", "reduce", "broadcast", "all_gather", "all_gather_into_tensor",
    "all_gather_object", "gather", "gather_object", "send", "isend", "recv", "irecv", "barrier",
)  # fmt: skip


@exercise
def main(answer, device):
    """`answer()`, in a file of its own with `device` beside it, runs under torchrun."""
    is_written(answer, device)
    try:
        parts = "\n\n".join(inspect.getsource(part) for part in (device, answer))
    except (OSError, TypeError):
        raise AssertionError("`main` and `my_device` have to be functions that a cell defines.") from None
    ranks = min(torch.cuda.device_count(), 4) or 2
    script = SCRIPT.format(parts=parts, main=answer.__name__, collectives=COLLECTIVES)
    status, printed, errors = _torchrun(script, ranks)
    assert status is not None, f"torchrun with {ranks} ranks did not finish in {2 * labs.SECONDS:.0f} s."
    expected = f"{ranks} ranks, sum {ranks * (ranks + 1) // 2}"
    nothing = f"Nothing was printed; rank 0 has to print {expected!r}."
    raised = re.search(r"\b\w+Error: .+", errors)
    why = raised.group().strip() if raised else f"status {status}"
    assert status == 0 or printed.strip() or "never joins" not in why, nothing
    assert status == 0, f"torchrun with {ranks} ranks ended with an error: {why}"
    times = printed.count(expected)  # two ranks may write into one line
    assert printed.strip(), nothing
    assert times, f"Rank 0 has to print {expected!r}; printed was {printed.splitlines()[0]!r}."
    assert times == 1, f"{times} ranks printed the line; only rank 0 should."
    assert printed.strip() == expected, f"Only {expected!r} should be printed; there is more."
    return f"torchrun printed: {expected}"


def _torchrun(script, ranks):
    """Return the exit status (None after a time-out), what was printed, and what went to stderr."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "script.py")
        path.write_text(script, encoding="utf-8")
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(
            [*command, str(path)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip
        try:
            printed, errors = process.communicate(timeout=2 * labs.SECONDS)
        except subprocess.TimeoutExpired:
            process.terminate()  # torchrun ends its ranks
            process.communicate()
            return None, "", ""
    return process.returncode, printed, errors
