"""Why do ranks start in a tenth of a second? They are forked from a process that has torch loaded.

A fork server holds one thread and has never touched CUDA, so forking it is safe where forking
the notebook's kernel is not. macOS and Windows have no fork that survives torch's libraries:
there every rank is spawned, which takes seconds.
"""

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
from multiprocessing import forkserver, resource_tracker

METHOD = "forkserver" if sys.platform == "linux" else "spawn"
# A forked process inherits the pools of its parent's libraries: give the parent none.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

UNKNOWN = 255  # what multiprocessing says if the fork server ended before a rank

_lock = threading.RLock()


def warm_up():
    """Start the fork server, if this system has one; return at once while it loads torch."""
    if METHOD != "forkserver":
        return
    resource_tracker.ensure_running()  # which would let interrupts through, if it came later
    with _lock, _environment(ONE_THREAD), _without_main(), _without_interrupts():
        multiprocessing.get_context(METHOD).set_forkserver_preload(["allranks.launch.preload"])
        forkserver.ensure_running()


def make(target, arguments):
    """Return one process per tuple in `arguments`, in that order, not yet started."""
    context = multiprocessing.get_context(METHOD)
    return [context.Process(target=target, args=one) for one in arguments]


def start(processes):
    """Start processes; a fork server that died since the last call (out of memory, say) is replaced."""
    with _lock, _without_main():
        warm_up()
        try:
            processes[0].start()
        except (EOFError, ConnectionError):  # it is dying just now
            time.sleep(0.1)
            warm_up()
            processes[0].start()
        for process in processes[1:]:
            process.start()
    return processes


def was_killed():
    """Return whether the fork server is dead, and every rank with it: then nobody knows their exit codes."""
    pid = forkserver._forkserver._forkserver_pid
    for _ in range(20):  # its descriptors close a moment before it is dead
        if pid and os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return True
        time.sleep(0.01)
    return False


@contextlib.contextmanager
def _environment(values):
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


@contextlib.contextmanager
def _without_interrupts():
    """Jupyter interrupts the kernel's children too: the server, still loading torch, must not end of it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _without_main():
    """Hide where `__main__` came from: functions travel by value, so a rank need not run it again."""
    main = sys.modules["__main__"]
    hidden = {name: getattr(main, name) for name in ("__file__", "__spec__") if hasattr(main, name)}
    for name in hidden:
        delattr(main, name)
    main.__spec__ = None
    try:
        yield
    finally:
        del main.__spec__
        for name, value in hidden.items():
            setattr(main, name, value)
