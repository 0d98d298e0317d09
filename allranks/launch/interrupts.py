"""What does an interrupt do while `launch` runs? It is noted, and acted upon where nothing is half done.

An exception between any two lines of the kernel's side could leave a process or a file behind. So Ctrl-C and
the interrupt button only leave a note, which the waiting loop reads; where the reader's own code runs
(`__getstate__`, say), the first one raises as usual.
"""

import contextlib
import signal
import threading

from allranks import private


class Interrupts:
    """`with Interrupts() as interrupts:` until its end, `interrupts.came()` says whether there was one."""

    def __init__(self):
        self.pressed = self.raises = False
        self.before = self.work = None

    def __enter__(self):
        if threading.current_thread() is not threading.main_thread():
            self.work = private.work_of_this_thread()  # which the main thread may cancel
        elif callable(signal.getsignal(signal.SIGINT)):  # else it is ignored, or not Python's
            self.before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_):
        if self.before is not None:
            signal.signal(signal.SIGINT, self.before)

    def came(self):
        """True if the reader has asked to stop."""
        return self.pressed or private.is_abandoned(self.work)

    @contextlib.contextmanager
    def raised(self):
        """A block in which the reader's code runs, and an interrupt raises KeyboardInterrupt."""
        self.raises = True
        try:
            yield
        finally:
            self.raises = False

    def _note(self, *_):
        self.pressed = True
        if self.raises:
            self.raises = False  # once: what cleans up afterwards is not to be interrupted
            raise KeyboardInterrupt
