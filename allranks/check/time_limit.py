"""How long may a reader's function run in the notebook itself? On ranks `launch` ends it, here an alarm does.

Only seconds count in which the reader's own lines are running: a check computes what it expects, and waits
for ranks, for as long as it likes.
"""

import contextlib
import os
import signal
import threading

from allranks.launch import stacks
from allranks.launch.patience import Patience

SECONDS = 20.0  # a right answer takes less than one
LOOK = 0.5  # seconds between two looks at what is running


class StillRunning(BaseException):
    """A function took too long; no `except Exception` of its own stops this. `places` is where it stood."""

    def __init__(self, seconds, place):
        super().__init__(f"it was still running after {seconds:g} s")
        self.places = [place]


@contextlib.contextmanager
def limited():
    """A block in which a reader's function that runs for too long raises StillRunning.

    Alarms reach the main thread alone, and where a program has set its own, that one stays.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or not hasattr(signal, "setitimer") or any(signal.getitimer(signal.ITIMER_REAL)):
        yield
        return
    patience = None

    def look(_, frame):
        nonlocal patience
        frames = _readers(frame)
        if not frames:
            patience = None
        elif patience is None:
            patience = Patience(SECONDS, [os.getpid()])
        elif not patience.left():
            raise StillRunning(SECONDS, stacks.innermost(frames))

    before = signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, LOOK, LOOK)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _readers(frame):
    """The reader's frames that the check has called, innermost last; none if `launch` has its deadline."""
    frames = []
    while frame and frame.f_globals.get("__name__") != "allranks.check":
        frames.append(stacks.Frame(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    return [] if any(map(stacks.is_launcher, frames)) else stacks.outside(frames[::-1])
