"""Why is everything imported once for a submission? Ranks are forked from the runner's own fork.

`launch` starts a server of its own, a second Python, because a notebook's kernel has threads. A runner has
none yet when it has imported the checks and nothing of the submission.
"""

import gc
import importlib
import os
import signal
import socket
import threading

from allranks.launch import keeper, output, server

PR_SET_DUMPABLE = 4
NOT_NEEDED = {"lab_01": keeper.THEN}  # no optimizer and no DTensor: nothing that takes a second


class Forked(server.Server):
    """The server of `launch`, forked from this process as it is now; it closes the files `not_for_ranks`."""

    def __init__(self, not_for_ranks):
        self.settings = server._settings()
        keeper.fill_standard_descriptors()
        self.requests, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        kernel, kept = os.getpid(), output.kept()
        pid = os.fork()
        if pid == 0:
            for descriptor in (*not_for_ranks, self.requests.fileno()):
                os.close(descriptor)
            os.setsid()
            os.environ |= server.ONE_THREAD | {"PYTHONWARNINGS": ""}
            keeper.prctl(PR_SET_DUMPABLE, 1)
            keeper.serve(there, kernel, kept, is_prepared=True)
        there.close()
        self.process = _Child(pid)


class _Child:
    """The part of `subprocess.Popen` that a server needs, of a process that was forked."""

    def __init__(self, pid):
        self.pid, self.returncode = pid, None

    def poll(self):
        if self.returncode is None and os.waitpid(self.pid, os.WNOHANG)[0]:
            self.returncode = 0
        return self.returncode

    def wait(self):
        if self.returncode is None:
            os.waitpid(self.pid, 0)
            self.returncode = 0


def fork_server(lab, *not_for_ranks):
    """Have ranks forked from what this process loads now, where that is safe; else `launch` does as ever.

    A module of checks may have a function `preload`, for what most of its ranks would import.
    """
    getattr(importlib.import_module(f"allranks.check.{lab}"), "preload", lambda: None)()
    for _ in keeper.preparations(NOT_NEEDED.get(lab, ())):
        pass
    gc.freeze()  # what is loaded now stays
    gc.enable()
    if keeper.LINUX and threading.active_count() == len(os.listdir("/proc/self/task")) == 1:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        server._server = Forked(not_for_ranks)
