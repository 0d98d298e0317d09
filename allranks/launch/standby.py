"""Why does a launch answer before its ranks could start? They were started while the reader was reading.

After each launch from a notebook, the ranks of the next one are started and connected ahead: a **standby**
world. It is used once, so ranks are fresh processes as ever, and only by a launch that would start the same:
as many ranks, the same backend and environment. Otherwise it is ended, as it is after `SECONDS`, and with the
kernel. `ps` shows the processes that wait as `rank 0`, … below a `ranks: keeper`. ALLRANKS_STANDBY=0 switches
this off, for notebooks that nobody reads while they run: it also lets the first launch wait until the fork
server has loaded what each rank would else import by itself. ALLRANKS_STANDBY=1 switches it on for scripts
too, and for ranks on GPUs, where each that waits holds memory.
"""

import atexit
import contextlib
import os
import sys
import threading

from allranks.launch import notebook
from allranks.launch.blame import LaunchError
from allranks.launch.world import World

SECONDS = 300  # that a world waits for its function

_lock = threading.Lock()
_next = None


def take(plan):
    """Return a world as planned: the one that stands by, if it is such a one, or a new one."""
    standing = _exchange(None)
    if standing:
        if standing.is_ready_for(plan):
            standing.use()
            return standing
        standing.close()
    return World(plan)


def prepare(plan):
    """Let a world as planned stand by for the next launch, where that is wanted and possible."""
    if not _is_wanted(plan):
        return
    with contextlib.suppress(OSError, LaunchError):  # a limit is reached: the next launch will say so
        if last := _exchange(World(plan, SECONDS)):
            last.close()


def end():
    """End the world that stands by, if there is one; the next launch starts its ranks itself."""
    if standing := _exchange(None):
        standing.close()


def _is_wanted(plan):
    setting = os.environ.get("ALLRANKS_STANDBY", "")
    on_gpu = any(device is not None for device in plan.devices)
    by_itself = notebook.is_kernel() and sys.platform == "linux" and not on_gpu
    return setting == "1" or (setting != "0" and by_itself)


def _exchange(world):
    global _next
    with _lock:
        last, _next = _next, world
    return last


def _forget():
    """Leave the world to the process that this one was forked from."""
    global _next, _lock
    _lock = threading.Lock()
    if _next:
        _next.abandon()
    _next = None


atexit.register(end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
