"""When have ranks had their time? Seconds in which a rank only waited for a processor are not its own.

Linux counts them for each process. So ranks that share few processors with each other, or with others' work,
are not taken for ranks that hang; those that wait for each other sleep, and wait for no processor.
"""

import time

LEAST = 0.5  # seconds that are worth more patience, or a tenth of a deadline that is shorter than 5 s
MOST = 5  # times as long as allowed, at the most


class Patience:
    """The deadline, `end` on the monotonic clock, of processes that may take so many seconds."""

    def __init__(self, seconds, pids):
        self.pids = list(pids)
        self.end = time.monotonic() + seconds
        self.least = min(LEAST, seconds / 10)
        self.last = self.end + (MOST - 1) * seconds
        self.waited = {pid: waited(pid) for pid in self.pids}

    def grows(self):
        """Put the deadline off by what a process has waited since the last time; False if that is little."""
        before, self.waited = self.waited, {pid: waited(pid) for pid in self.pids}
        seconds = max((self.waited[pid] - before[pid] for pid in self.pids), default=0)
        now = time.monotonic()
        self.end = min(now + seconds, self.last)
        return seconds >= self.least and self.end > now


def waited(pid):
    """Seconds in which a process could have run and had no processor; 0 where the system does not say."""
    try:
        with open(f"/proc/{pid}/schedstat") as counts:
            return int(counts.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0
