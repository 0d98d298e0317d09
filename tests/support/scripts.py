"""Run the ranks of a script as forks of this process: torch is there, and no torchrun has to start.

`torchrun(script, ranks)` stands for that of `allranks.check.lab_01.scripts`, which takes 20 times the work;
one test runs the real one.
"""

import os
import signal
import socket
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path

from allranks.launch.patience import Patience

SECONDS = 20.0


def torchrun(script, ranks, seconds=SECONDS):
    """Return the exit status (None after a time-out), what was printed, and what went to stderr."""
    with socket.socket() as held, tempfile.TemporaryDirectory() as folder:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # held, and yet free for rank 0
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        path = Path(folder, "script.py")
        path.write_text(script, encoding="utf-8")
        running = {_fork(path, rank, ranks, port): rank for rank in range(ranks)}
        given, status = Patience(seconds, running), 0
        while running and given.left():
            pid, code = _ended(running)
            if pid is None:
                time.sleep(0.005)
                continue
            del running[pid]
            if code and not status:  # torchrun ends the others, too
                status, given = code, Patience(1, running)
        for pid in running:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        if running and not status:
            return None, "", ""
        return status, _said(folder, 1, ranks), _said(folder, 2, ranks)


def _said(folder, kind, ranks):
    return "".join(Path(folder, f"{kind}{rank}").read_text() for rank in range(ranks))


def _ended(running):
    """(pid, exit status) of one of the ranks that has ended, or (None, 0)."""
    for pid in running:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return pid, os.waitstatus_to_exitcode(status)
    return None, 0


def _fork(path, rank, ranks, port):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the child runs one function and then exits
        pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        for kind in (1, 2):
            file = os.open(path.parent / f"{kind}{rank}", os.O_WRONLY | os.O_CREAT)
            os.dup2(file, kind)
        place = {
            "RANK": rank,
            "LOCAL_RANK": 0,
            "WORLD_SIZE": ranks,
            "LOCAL_WORLD_SIZE": 1,
            "GROUP_RANK": rank,
        }
        os.environ.update({name: str(value) for name, value in place.items()})
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        sys.stdout = sys.__stdout__ = os.fdopen(os.dup(1), "w")
        sys.stderr = os.fdopen(os.dup(2), "w")
        exec(compile(path.read_text(), str(path), "exec"), {"__name__": "__main__"})
        status = 0
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(status)
