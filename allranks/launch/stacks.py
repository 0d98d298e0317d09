"""Where does a rank stand? In the reader's own lines, with the collective that it waits in.

A rank writes its stack with faulthandler, which needs no cooperation: it works in a deadlock, in a
C loop, and while the process dies of a segmentation fault. The kernel reads it and keeps the lines
that belong to the reader.
"""

import contextlib
import faulthandler
import functools
import importlib.util
import linecache
import os
import re
import signal
import traceback
from collections import namedtuple

from allranks.launch import notebook

PACKAGE = os.path.dirname(notebook.HERE) + os.sep  # where a reader calls it is the place to name
OURS = (notebook.HERE, os.path.join(os.path.dirname(notebook.HERE), "nccl"))
FRAME = re.compile(r'^  File "(?P<filename>.*)", line (?P<line>\d+) in (?P<name>.*)$', re.MULTILINE)
THREAD = re.compile(r"^(?:Current thread|Thread) 0x", re.MULTILINE)
# An echo has a form of gloo's, TensorPipe's, or of an exception of c10d's own, and says this:
ORIGIN = re.compile(r"gloo/\S+\.(?:cc|cpp|h):\d+|originated at tensorpipe/|^Application timeout caused")
LOST_PEER = re.compile(
    r"closed by (remote )?peer|reset by peer|connection refused|socket closed|broken pipe|pair closure|"
    r"read error|write error|communicator was aborted|remote process exited|failed to recv|\beof\b|"
    r"connectFullMesh failed",
    re.IGNORECASE,
)
GAVE_UP = re.compile(r"timed? ?out|timeout", re.IGNORECASE)
LIBRARY = os.path.dirname(os.__file__) + os.sep  # Python's own
PACKAGES = re.compile(r"[/\\](site|dist)-packages[/\\]")  # of Python, of an environment, of a user
GLOG = re.compile(r"^(\[rank\d+\]:)?\[[IWEF]\d{4} [\d:.]+ \S+:\d+\] ")  # before what torch's C++ checks say
LONGEST = 10_000  # characters of an exception's message that are kept
NO_WAIT = re.compile(r"wrapper$|get_|is_|_|<")  # functions of torch.distributed in which nothing waits

Frame = namedtuple("Frame", "filename line name")  # innermost last, as in a traceback


class Failure(namedtuple("Failure", "kind message frames more echo")):
    """An exception on a rank, in plain data.

    `echo` is 'lost' or 'gave up' if it only says that a peer has ended, or has not come in time; 'own words'
    are the reader's, about such an echo ('lost, in own words'); it is empty if the rank is itself the cause.
    """

    @classmethod
    def of(cls, error):
        try:
            return cls._in_full(error)
        except Exception:  # of the reader's own: to ask this exception for its notes or its cause raises too
            message = ""
            with contextlib.suppress(Exception):
                message = _writable(str(error)[:LONGEST])
            return cls(
                type(error).__name__, message, _frames(traceback.extract_tb(error.__traceback__)), [], ""
            )

    @classmethod
    def _in_full(cls, error):
        told = traceback.TracebackException.from_exception(error)
        cause = told.__cause__ or (None if told.__suppress_context__ else told.__context__)
        more = [f"caused by {_one_line(cause)}"] if cause else []
        more += [f"holds {_one_line(one)}" for one in told.exceptions or ()]
        notes = getattr(error, "__notes__", None)
        more += [_writable(str(note)) for note in (notes if isinstance(notes, list) else ())]
        return cls(
            type(error).__name__,
            GLOG.sub("", _writable(str(told)[:LONGEST])).strip(),
            _frames(told.stack),
            more,
            _echo(error),
        )


def _frames(stack):
    return [Frame(frame.filename, frame.lineno, frame.name) for frame in stack]


def _echo(error):
    """What an exception echoes: itself, what it was raised from, or what was being handled."""
    told, own_words, seen = error, "", set()
    while told is not None and id(told) not in seen:  # `raise error from error` makes a circle
        seen.add(id(told))
        if isinstance(told, RuntimeError) and (
            ORIGIN.search(str(told)) or type(told).__module__.startswith("torch.distributed")
        ):
            if LOST_PEER.search(str(told)):
                return f"lost{own_words}"
            if GAVE_UP.search(str(told)):
                return f"gave up{own_words}"
        told = told.__cause__ or (None if told.__suppress_context__ else told.__context__)
        own_words = ", in own words"
    return ""


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


def is_stopped(pid):
    """True if a signal has stopped the process `pid` (SIGSTOP, Ctrl-Z), or a debugger."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] in "Tt"
    except OSError:
        return False


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
    return frames[::-1]  # of the last thread, the main one, if its stack is too deep to show its root


def describe(frames):
    """Say where a rank stands: `Cell In[3], line 4, in exchange, waiting in recv`."""
    mine = [frame for frame in frames if not is_library(frame)]
    waiting = waits_in(frames)
    if not mine:
        return f"waiting in {waiting}" if waiting else _without_a_line(frames)
    return innermost(outside(mine) or mine) + (f", waiting in {waiting}" if waiting else "")


def _without_a_line(frames):
    """Say where a rank stands that is in no line of the reader's: `launch(model, x)` has none."""
    if not frames:
        return "did not answer"
    calls = [number for number, frame in enumerate(frames) if is_launcher(frame) and frame.name == "_call"]
    if not calls:
        return "not yet in your function"
    return f"in {place(frames[-1])}" if frames[calls[0] + 1 :] else "in your function"


def outside(frames):
    """Return the frames of code that is in no package: neither installed, nor this one."""
    return [frame for frame in frames if not (is_library(frame) or frame.filename.startswith(PACKAGE))]


def innermost(frames):
    """Name the line of the last frame, and its function: in Python 3.11 a comprehension has a frame too."""
    *_, last = frames
    named = [frame for frame in frames if not frame.name.endswith("comp>")] or frames
    return place(last._replace(name=named[-1].name))


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
    where = f"{notebook.cell(frame.filename) or _short(frame.filename)}, line {frame.line}"
    return where if frame.name == "<module>" else f"{where}, in {frame.name}"


def source(frame):
    """Return the text of a line, stripped; empty if it is not to be had."""
    return linecache.getline(frame.filename, frame.line).strip()


def is_library(frame):
    """True if a frame is not the reader's: Python's, an installed package's, or the launcher's own."""
    is_start = frame.filename == "<string>" and frame.name == "<module>"  # of a process that Python started
    return (
        is_start or frame.filename.startswith("<frozen") or is_installed(frame.filename) or is_launcher(frame)
    )


@functools.cache
def is_installed(filename):
    """True if a file belongs to Python, or to a package that is installed."""
    return filename.startswith((LIBRARY, _torch())) or bool(PACKAGES.search(filename))


@functools.cache
def _torch():
    """The folder of torch, which one that was built from source has outside all packages."""
    return os.path.dirname(importlib.util.find_spec("torch").origin) + os.sep


def is_launcher(frame):
    """True if a frame belongs to this package."""
    return frame.filename.startswith(OURS)


def _short(filename):
    if filename.startswith(_torch()):
        return os.path.join("torch", filename.removeprefix(_torch()))
    if "site-packages" in filename:
        return filename.split("site-packages" + os.sep)[-1]
    try:
        path = os.path.relpath(filename)
    except (FileNotFoundError, ValueError):  # the working directory was deleted; Windows: another drive
        return os.path.basename(filename)
    return os.path.basename(filename) if path.startswith("..") or filename.startswith(LIBRARY) else path


def _one_line(told):
    return _writable(next(told.format_exception_only()).strip())


def _writable(text):
    """Escape what is no character, and what no kernel could show: half of a pair, from a file's name say."""
    return text.encode("utf-8", "backslashreplace").decode()
