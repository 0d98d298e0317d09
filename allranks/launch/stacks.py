"""Where does a rank stand? In the reader's own lines, with the collective that it waits in.

A rank writes its stack with faulthandler, which needs no cooperation: it works in a deadlock, in a
C loop, and while the process dies of a segmentation fault. The kernel reads it and keeps the lines
that belong to the reader.
"""

import contextlib
import faulthandler
import linecache
import os
import re
import signal
import sys
import traceback
from collections import namedtuple

HERE = os.path.dirname(os.path.abspath(__file__))
FRAME = re.compile(r'^  File "(?P<filename>.*)", line (?P<line>\d+) in (?P<name>.*)$', re.MULTILINE)
THREAD = re.compile(r"^(?:Current thread|Thread) 0x", re.MULTILINE)
LOST_PEER = re.compile(
    r"closed by (remote )?peer|reset by peer|connection refused|socket closed|broken pipe|"
    r"socket timeout|read error|write error|communicator was aborted|remote process exited",
    re.IGNORECASE,
)
LONGEST = 10_000  # characters of an exception's message that are kept
NO_WAIT = re.compile(r"wrapper$|get_|is_|_")  # functions of torch.distributed in which nothing waits

Frame = namedtuple("Frame", "filename line name")  # innermost last, as in a traceback


class Failure(namedtuple("Failure", "kind message frames more lost_peer")):
    """An exception on a rank, in plain data: what it was, where, and whether it only echoes a peer's end."""

    @classmethod
    def of(cls, error):
        told = traceback.TracebackException.from_exception(error)
        cause = told.__cause__ or (None if told.__suppress_context__ else told.__context__)
        more = [f"caused by {_one_line(cause)}"] if cause else []
        more += [f"holds {_one_line(one)}" for one in told.exceptions or ()]
        return cls(
            type(error).__name__,
            str(told)[:LONGEST],
            [Frame(frame.filename, frame.lineno, frame.name) for frame in told.stack],
            more,
            isinstance(error, RuntimeError) and bool(LOST_PEER.search(str(told))),
        )


def write_when_forced(path):
    """Make this process write its stacks to `path` when it crashes, and when `force` is called on it.

    Returns the function with which it writes them by itself.
    """
    file = open(path, "w")  # noqa: SIM115 (it stays open as long as the process lives)
    faulthandler.enable(file, all_threads=True)
    if hasattr(faulthandler, "register"):
        faulthandler.register(signal.SIGUSR1, file, all_threads=True)
    return lambda: faulthandler.dump_traceback(file, all_threads=True)


def force(pid):
    """Make the process `pid` write its stacks even if no Python code can run in it, where the system can."""
    if hasattr(signal, "SIGUSR1"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGUSR1)


def read(path):
    """Return the main thread's frames, innermost last, from a file that a rank wrote."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            threads = THREAD.split(file.read())
    except OSError:
        return []
    frames = []
    for thread in threads:
        frames = [Frame(m["filename"], int(m["line"]), m["name"]) for m in FRAME.finditer(thread)]
        if any(is_launcher(frame) and frame.name == "live" for frame in frames):
            break
    return frames[
        ::-1
    ]  # of the last thread, which is the main one, if its stack is too deep to show its root


def describe(frames):
    """Say where a rank stands: `Cell In[3], line 4, in exchange, waiting in recv`."""
    mine = [frame for frame in frames if not is_library(frame)]
    waiting = waits_in(frames)
    if not mine:
        return f"waiting in {waiting}" if waiting else "not yet in your function"
    return f"{place(mine[-1])}" + (f", waiting in {waiting}" if waiting else "")


def waits_in(frames):
    """Return the name of the `torch.distributed` function that the innermost frames are in, or None."""
    names = [
        frame.name
        for frame in frames
        if os.path.join("torch", "distributed") in frame.filename and not NO_WAIT.match(frame.name)
    ]
    return names[0] if names else None


def place(frame):
    """Name a line as the reader sees it: by its cell, or by its file."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    cell = shell and shell.compile.format_code_name(frame.filename)
    name = " ".join(cell) if cell else _short(frame.filename)
    where = f"{name}, line {frame.line}"
    return where if frame.name == "<module>" else f"{where}, in {frame.name}"


def source(frame):
    """Return the text of a line, stripped; empty if it is not to be had."""
    return linecache.getline(frame.filename, frame.line).strip()


def is_library(frame):
    """True if a frame is not the reader's: Python's, an installed package's, or the launcher's own."""
    roots = (sys.prefix, sys.base_prefix, os.path.dirname(os.__file__))
    return frame.filename.startswith((*roots, "<frozen")) or is_launcher(frame)


def is_launcher(frame):
    """True if a frame belongs to this package."""
    return frame.filename.startswith(HERE)


def _short(filename):
    if "site-packages" in filename:
        return filename.split("site-packages" + os.sep)[-1]
    path = os.path.relpath(filename)
    return os.path.basename(filename) if path.startswith("..") else path


def _one_line(told):
    return next(told.format_exception_only()).strip()
