"""When have ranks had their time? Seconds in which one only waited for a processor are not its own.

Linux counts them for each thread. So ranks that share few processors with each other, or with others' work,
are not taken for ranks that hang; those that wait for each other sleep, and wait for no processor.
"""

import contextlib
import glob
import time

LEAST = 0.5  # seconds that are worth more patience, or a tenth of a deadline that is shorter than 5 s
MOST = 5  # times as long as allowed, at the most


class Patience:
    """The deadline of processes that may take so many seconds."""

    def __init__(self, seconds, pids):
        self.pids = list(pids)
        self.end = time.monotonic() + seconds  # on the monotonic clock
        self.least = min(LEAST, seconds / 10)
        self.last = self.end + (MOST - 1) * seconds
        self.waited = waited(self.pids)

    def left(self):
        """The seconds until the deadline, or until it is put off; 0 if it is over."""
        if time.monotonic() >= self.end:
            self._grow()
        return max(0, self.end - time.monotonic())

    def wait(self):
        """Return when the processes have had their time."""
        while left := self.left():
            time.sleep(left)

    def _grow(self):
        """Put the deadline off by what a thread has waited since the last time, unless that is little."""
        before, self.waited = self.waited, waited(self.pids)
        seconds = max((each - before.get(thread, 0) for thread, each in self.waited.items()), default=0)
        if seconds >= self.least:
            self.end = min(time.monotonic() + seconds, self.last)


def waited(pids):
    """Seconds in which each thread of processes could have run and had no processor, where the system says.

    They are by the thread's path in `/proc`: no two have the same.
    """
    found = {}
    for pid in pids:
        for path in glob.glob(f"/proc/{pid}/task/*/schedstat"):
            with contextlib.suppress(OSError, ValueError, IndexError), open(path) as counts:
                found[path] = int(counts.read().split()[1]) / 1e9
    return found
