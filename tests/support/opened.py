"""What this process has open now: to compare with what it has later.

A worker of pytest keeps things of the tests before: threads that are about to end, and descriptors of objects
that wait for the garbage collector. So only what is new is told, and none of it by its number alone.
"""

import contextlib
import os
import threading

OWN = "/proc/self/fd"


def now():
    """{(kind, …)} of each thread and each descriptor, with what it refers to."""
    found = {("thread", thread.ident, thread.name) for thread in threading.enumerate()}
    for number in os.listdir(OWN):
        with contextlib.suppress(OSError):  # that of the listing itself
            found.add(("descriptor", number, os.readlink(f"{OWN}/{number}")))
    return found


def since(before):
    """What there is now and was not there `before`."""
    return now() - before
