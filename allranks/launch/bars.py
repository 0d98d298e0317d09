"""One progress bar for the whole world: rank 0's, drawn where the world was launched.

Where output has to be the same at every run (see `output.is_ordered`) there is no bar at all.
"""

import contextlib
import math
import os
import time

from allranks.launch import output

INTERVAL = 0.1  # seconds between two reports

_send = None  # in rank 0 of a launched world: the way to the kernel
_launched = False  # in every rank of a launched world


def progress(iterable, desc=None, total=None):
    """Iterate over `iterable` and show how far rank 0 is; the other ranks show nothing.

    `total` is the number of items, where `len(iterable)` does not say it; `desc` stands before the bar. Works
    on ranks that `launch` started, under torchrun, and in one process.
    """
    if total is None:
        with contextlib.suppress(
            TypeError, NotImplementedError
        ):  # a DataLoader of a stream only seems to have one
            total = len(iterable)
    total = int(total) if total is not None and 0 <= total < math.inf else None  # it may be a tensor
    desc = desc if desc is None else str(desc)
    if _launched:
        return _reported(iterable, desc, total)
    hidden = output.is_ordered() or os.environ.get("RANK", "0") != "0"
    return _bar(iterable, desc=desc, total=total, disable=hidden)


def report_to(send):
    """Called in a rank: from now on `progress` reports through `send`, or is silent if that is None."""
    global _send, _launched
    _send, _launched = send, True


class Display:
    """In the kernel: the bars of one world, by their number."""

    def __init__(self):
        self.bars = {}

    def update(self, number, done, total, desc, finished):
        if number not in self.bars:
            self.bars[number] = _bar(desc=desc, total=total, disable=output.is_ordered())
        self.bars[number].update(done - self.bars[number].n)
        if finished:
            self.bars.pop(number).close()

    def close(self):
        for bar in self.bars.values():
            bar.close()


def _reported(iterable, desc, total):
    number, last, done = time.monotonic(), 0.0, 0
    try:
        for item in iterable:
            if _send and time.monotonic() - last > INTERVAL:
                _send(("progress", (number, done, total, desc, False)))
                last = time.monotonic()
            yield item
            done += 1
    finally:
        if _send:
            _send(("progress", (number, done, total, desc, True)))


def _bar(iterable=None, **options):
    from tqdm.auto import tqdm

    return tqdm(iterable, leave=False, **options)
