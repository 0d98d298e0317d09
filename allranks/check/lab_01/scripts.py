"""Does the reader's `main` run under torchrun, in a file of its own, on two nodes?"""

import contextlib
import inspect
import os
import random
import re
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist

from allranks.check import exercise, labs
from allranks.check.lab_01.placing import pretend_to_be
from allranks.check.labs import is_written, on_ranks
from allranks.launch import RanksTimedOut
from allranks.ports import free_port

SCRIPT = """import inspect
import os
from datetime import timedelta

import torch
import torch.distributed as dist

_called, _more = [], {more} * (os.environ["RANK"] == str({ranks} - 1))


def _raised(value):
    if isinstance(value, torch.Tensor) and value.dtype != torch.bool:
        return value + _more
    return value + _more if type(value) in (int, float) else value


def _noted(name, function, message):
    # The last rank's message is raised on its way, so that no formula has the sum.
    def call(*args, **kwargs):
        _called.append(name)
        bound = inspect.signature(function).bind(*args, **kwargs)
        if message in bound.arguments and _more:
            sent = _raised(bound.arguments[message])
            if name in {in_place} and isinstance(sent, torch.Tensor):
                bound.arguments[message].copy_(sent)
            else:
                bound.arguments[message] = sent
        return function(*bound.args, **bound.kwargs)

    return call


for _name, _message in {collectives}.items():
    setattr(dist, _name, _noted(_name, getattr(dist, _name), _message))


{parts}

if __name__ == "__main__":
    import contextlib
    import io
    import sys

    with contextlib.redirect_stdout(io.StringIO()) as _said:
        try:
            {main}()
        finally:
            for _line in _said.getvalue().splitlines():
                sys.__stdout__.write("rank " + os.environ["RANK"] + ": " + _line + "\\n")
            sys.__stdout__.flush()
    assert "init_process_group" in _called, "main never joins a process group"
    assert not dist.is_initialized(), "main does not destroy the process group"
    assert set(_called) - {{"init_process_group", "barrier"}}, "main sums nothing over the ranks"
"""
COLLECTIVES = {  # and the name of the argument that is the message
    "init_process_group": None, "all_reduce": "tensor", "reduce": "tensor", "broadcast": None,
    "all_gather": "tensor", "all_gather_into_tensor": "input_tensor", "all_gather_object": "obj",
    "gather": "tensor", "gather_object": "obj", "send": "tensor", "isend": "tensor", "recv": None,
    "irecv": None, "barrier": None,
}  # fmt: skip
IN_PLACE = ("all_reduce", "reduce")  # what they send is also where they put the result
JOIN = inspect.signature(dist.init_process_group)  # before anything is put in its place
LINE = re.compile(r"^rank (\d+): (.*)$", re.MULTILINE)


@exercise
def main(answer, device):
    """`answer()`, in a file of its own with `device` beside it, runs under torchrun."""
    is_written(answer, device)
    try:
        parts = "\n\n".join(inspect.getsource(part) for part in (device, answer))
    except (OSError, TypeError):
        raise AssertionError("`main` and `my_device` should be functions that a cell defines.") from None
    _joins_as_asked(answer)
    ranks = 1 if torch.cuda.device_count() == 1 else 2
    more = random.randrange(3, 9)
    script = SCRIPT.format(
        parts=parts, main=answer.__name__, collectives=COLLECTIVES, in_place=IN_PLACE, ranks=ranks, more=more
    )
    status, printed, errors = _torchrun(script, ranks)
    assert status is not None, (
        f"torchrun on {ranks} nodes of one rank did not finish in {4 * labs.SECONDS:.0f} s."
    )
    lines = [(int(rank), line) for rank, line in LINE.findall(printed)]
    formula = f"{ranks} ranks, sum {ranks * (ranks + 1) // 2}"
    expected = f"{ranks} ranks, sum {ranks * (ranks + 1) // 2 + more}"
    nothing = f"Nothing was printed; rank 0 has to print {formula!r}."
    raised = re.search(r"\b\w+Error: .+", errors)
    why = raised.group().strip() if raised else f"status {status}"
    assert status == 0 or lines or "never joins" not in why, nothing
    assert status == 0, f"torchrun on {ranks} nodes of one rank ended with an error: {why}"
    assert lines, nothing
    others = sorted({rank for rank, _ in lines} - {0})
    assert not others, (
        f"Rank {others[0]} printed {dict(lines)[others[0]]!r}; only rank 0 of all nodes should print. Every "
        "node has a rank whose LOCAL_RANK is 0."
    )
    assert formula not in [line for _, line in lines], (
        f"Rank 0 printed {formula!r} although rank {ranks - 1}'s message was raised by {more} on its way: "
        "the number has to come from what the ranks have sent, not from a formula."
    )
    first = lines[0][1]
    assert expected in [line for _, line in lines], (
        f"With {more} added to rank {ranks - 1}'s message, rank 0 has to print {expected!r}; it printed "
        f"{first!r}."
    )
    assert len(lines) == 1, f"Only {formula!r} should be printed; there is more: {first!r}."
    return f"torchrun on {ranks} node{'s' * (ranks > 1)} of one rank printed: {formula}"


class _Joined(BaseException):
    """Ends `main` where it joins a group."""


def _joins_as_asked(main):
    """Fail unless `main` gives the group a backend, a timeout and a device, with GPUs and without.

    What does not get to the point where it joins is judged later, by what it prints.
    """

    def on_rank(gpus):
        asked = []

        def note(*args, **options):
            asked.append(JOIN.bind(*args, **options).arguments)
            raise _Joined

        pretend_to_be(5, 1, gpus)
        torch.cuda.set_device = dist.destroy_process_group = lambda *_: None
        dist.init_process_group = note
        with contextlib.suppress(Exception, _Joined):
            main()
        timeout, device = (asked[0].get(name) for name in ("timeout", "device_id")) if asked else (None, None)
        seconds = timeout.total_seconds() if hasattr(timeout, "total_seconds") else timeout
        return asked and (asked[0].get("backend"), seconds, device if device is None else str(device))

    for gpus in (4, 0):
        asked = on_ranks(on_rank, gpus, world_size=1, backend="gloo")[0]
        if not asked:
            continue
        backend, seconds, device = asked
        where = "On a machine with GPUs" if gpus else "Without a GPU"
        assert not gpus or backend is None or "nccl" in str(backend), (
            f"{where} main joins a group of {backend!r}; the backend there is nccl."
        )
        assert seconds == 60, (
            f"{where} a collective waits {f'{seconds:g} s' if seconds else 'as long as by default'}; "
            "expected 60 s: init_process_group has a timeout."
        )
        assert not gpus or device in ("1", "cuda:1"), (
            f"{where} local rank 1 of rank 5 gives the group the device_id {device}; expected cuda:1."
        )
        assert gpus or device is None, f"{where} the group has the device_id {device}; expected None."


def _torchrun(script, ranks):
    """Return the exit status (None after a time-out), what was printed, and what went to stderr.

    Each rank has a node of its own: an agent of torchrun on this machine.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "script.py")
        path.write_text(script, encoding="utf-8")
        environment = [{**os.environ, "OMP_NUM_THREADS": "1"} for _ in range(ranks)]
        if torch.cuda.is_available():  # one for each agent
            environment = [one | {"CUDA_VISIBLE_DEVICES": str(n)} for n, one in enumerate(environment)]
        try:
            agents = on_ranks(
                _agent, path, free_port(), environment, world_size=ranks, backend="gloo",
                timeout=4 * labs.SECONDS,
            )  # fmt: skip
        except RanksTimedOut:
            return None, "", ""
    statuses, printed, errors = zip(*agents, strict=True)
    return max(statuses), "".join(printed), "".join(errors)


def _agent(path, port, environment):
    """Be torchrun on this rank's node; return (status, stdout, stderr), those of its worker included.

    A Python of its own would load torch once more; the worker is one, as ever.
    """
    from torch.distributed import run

    node, nodes = dist.get_rank(), dist.get_world_size()
    os.environ.clear()
    os.environ.update(environment[node])
    words = [f"--nnodes={nodes}", f"--node-rank={node}", "--nproc-per-node=1", "--master-addr=127.0.0.1"]
    with tempfile.TemporaryDirectory() as folder:
        files, status = [Path(folder, name) for name in ("stdout", "stderr")], 0
        with _standard_streams(files):
            try:
                run.main([*words, f"--master-port={port}", str(path)])
            except (Exception, SystemExit) as failed:
                status = 1
                print(f"{type(failed).__name__}: {failed}", file=sys.stderr)
        return status, *(file.read_text(encoding="utf-8", errors="replace") for file in files)


@contextlib.contextmanager
def _standard_streams(files):
    """Send what this process and those that it starts write to stdout and stderr to `files`."""
    kept = [os.dup(1), os.dup(2)]
    try:
        for descriptor, file in enumerate(files, start=1):
            with open(file, "wb") as opened:
                os.dup2(opened.fileno(), descriptor)
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        for descriptor, was in enumerate(kept, start=1):
            os.dup2(was, descriptor)
            os.close(was)
