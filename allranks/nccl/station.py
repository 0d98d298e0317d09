"""How do a rank's operations wait for their turn? The rank's side of the judge, and the judge's own thread.

A rank reports what it issues and when it waits. One thread of it runs what the judge lets run, in the judge's
order, which is the same for both ends of every message: so nothing that has started ever waits in vain.
"""

import contextlib
import ctypes
import gc
import os
import socket
import tempfile
import threading
from multiprocessing.connection import Client, Listener, wait

import torch

from allranks.streams import Broken, Judge

KEY = "allranks/nccl"  # in the store of the process group: where the judge listens


class RuleBroken(RuntimeError):
    """A program does what gloo forgives and NCCL does not."""


class Station:
    """This rank's connection to the judge, who is a thread of rank 0. `device`: the rank's own, or None."""

    def __init__(self, store, rank, world_size, device):
        self.rank, self.thread = rank, None
        if rank == 0:
            folder = tempfile.mkdtemp(prefix="nccl-", dir="/tmp")  # a socket's path is at most 107 letters
            listener = Listener(os.path.join(folder, "judge"), "AF_UNIX", backlog=world_size)
            self.thread = threading.Thread(target=preside, args=(listener, folder, world_size), daemon=True)
            self.thread.start()
            store.set(KEY, listener.address)
        self.pipe = Client(store.get(KEY).decode(), "AF_UNIX")
        self.pipe.send((rank, device and f"{device} of {socket.gethostname()}"))
        self.lock, self.operations, self.number, self.verdict = threading.Lock(), {}, 0, None
        self.on_their_way = []  # what gloo has yet to send of messages that NCCL would have buffered
        self.communicators = set()  # that a program makes where torch makes them only when they are needed
        self.runner = threading.Thread(target=self.run, daemon=True)
        self.runner.start()

    def issue(self, operation, group, members):
        """Report an operation, whose parts will run when their other ends have come."""
        kind, peer, *_ = operation.parts[0]
        alone = kind in ("send", "recv") and len(operation.parts) == 1
        self.communicators.add((group, frozenset((self.rank, peer)) if alone else None))
        with self.lock:
            if self.verdict:
                raise self.verdict
            operation.number = self.number = self.number + 1
            self.operations[self.number] = operation
            self.pipe.send(("issue", self.number, group, members, operation.parts))

    def keep(self, work):
        """Hold what sends a message that NCCL would have buffered: without its `work` gloo drops it."""
        self.on_their_way = [other for other in self.on_their_way if not other.is_completed()] + [work]

    def wait(self, operation):
        """Return when `operation` is done; raise what has become of it otherwise."""
        if not operation.done.is_set():
            with self.lock:
                self.pipe.send(("wait", operation.number))
            operation.done.wait()
        self.operations.pop(operation.number, None)
        if operation.error:
            raise operation.error

    def run(self):
        """Run what may run; when the judge has found a rule broken, end what waits."""
        with contextlib.suppress(EOFError, OSError):
            while True:
                number, *verdict = self.pipe.recv()
                if number is None:
                    self.end(*verdict)
                else:
                    self.operations[number].run(*verdict)

    def end(self, sentence):
        with self.lock:
            self.verdict = RuleBroken(sentence)
            for operation in list(self.operations.values()):
                operation.fail(self.verdict)

    def leave(self):
        """Tell the judge that this rank's program has ended."""
        with self.lock, contextlib.suppress(OSError):
            self.pipe.send(("leave",))

    def stay(self):
        """Return when all ranks have left, and nothing of this one can be in the way of Python's end.

        A thread that comes back from C++ while Python ends aborts the process ("terminate called without an
        active exception"): the one that runs operations, or one of gloo's, which asks Python to delete a
        tensor if it is the last to hold it. So this waits for the former, and has tensors kept for ever.
        """
        self.runner.join()  # the judge closes its connection
        if self.thread:
            self.thread.join()
        for each in gc.get_objects():
            if issubclass(type(each), torch.Tensor):
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))


def preside(listener, folder, world_size):
    """Be the judge until all ranks have left. One that died has left as well, and nobody is blamed for it."""
    judge = Judge(world_size, buffered=int(os.environ.get("NCCL_BUFFSIZE", 0)))
    pipes, devices = {}, {}
    for _ in range(world_size):
        pipe = listener.accept()
        rank, device = pipe.recv()
        pipes[rank] = pipe
        devices.setdefault(device or rank, []).append(rank)
    listener.close()
    os.rmdir(folder)
    ranks, over = {pipe: rank for rank, pipe in pipes.items()}, False
    for device, shared in devices.items():
        if len(shared) > 1:
            over = True
            sentence = f"NCCL needs a device for each rank: ranks {', '.join(map(str, sorted(shared)))}"
            judge.verdicts += [(rank, None, f"{sentence} are on {device}") for rank in shared]
    while ranks:
        for rank, *verdict in judge.verdicts:
            with contextlib.suppress(OSError):  # it may have died
                pipes[rank].send(verdict)
        judge.verdicts.clear()
        for pipe in wait(list(ranks)):
            try:
                what, *details = pipe.recv()
            except (EOFError, OSError):
                del ranks[pipe]
                continue
            rank = ranks.pop(pipe) if what == "leave" else ranks[pipe]
            try:
                if not over:
                    getattr(judge, what)(rank, *details)
            except Broken as broken:
                over = True
                judge.verdicts += [(rank, None, str(broken)) for rank in broken.ranks]
