"""Who is the parent of the ranks? One process a world: it starts them, tells how each ends, and ends all.

On Linux keepers are forked from the fork server, whose life is `serve`: it has torch loaded, holds one thread
and has never touched CUDA, so that forking it is safe where forking the notebook's kernel is not. Elsewhere a
keeper is spawned. Whatever becomes of the kernel, of the server or of a rank, a keeper ends all processes of
its world and all that those have started, even what left their session: Linux hands it to the keeper.
"""

import contextlib
import ctypes
import gc
import importlib
import os
import pickle
import re
import select
import shutil
import signal
import socket
import sys
import tempfile
import time
from multiprocessing.connection import Connection, wait

from allranks import private

LINUX = sys.platform == "linux"
MADV_COLLAPSE, LARGE_PAGE = 25, 1 << 21
PR_SET_PDEATHSIG, PR_SET_NAME, PR_SET_CHILD_SUBREAPER = 1, 15, 36
FIRST = ["torch", "torch.distributed", "torch.multiprocessing", "allranks.launch.rank"]
# What a rank would else import for DistributedDataParallel, DTensor or fully_shard, and that takes a second:
# it is not in the way of a first launch that comes early. What others import comes first, so that no step is
# long.
THEN = [
    "mpmath",
    "sympy",
    "torch.distributed.tensor",
    "torch.distributed.fsdp",
    private.compiler,
    "allranks.nccl",
]
GLANCE = 0.1  # seconds between two looks at ranks: what they have forked may keep their sentinels silent
LOOK = 1.0  # seconds between two looks at the kernel: what it has forked may keep its sockets open
TIDY = 4.0  # seconds that the trackers of a world's ranks have to remove what those left in shared memory
PAUSE = 0.03  # seconds in which a next launch may still say that it wants another world than the standby


def serve(requests, kernel, kept, is_prepared=False):
    """Be the fork server: load torch, then fork a keeper for each request, until the kernel is gone.

    A message of the socket `requests` is the directory of a world, and comes with descriptors. `kept` is the
    folder of the outputs that stay as long as the kernel lives. `is_prepared`: `preparations` are done.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Jupyter interrupts the kernel's children too
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for keepers
    call_it("ranks: server")
    fill_standard_descriptors()

    def end_with_the_kernel(*_):
        if os.getppid() != kernel:
            while select.select([requests], [], [], 0)[0] and (unread := requests.recv(8192)):
                if unread != b"leave":
                    shutil.rmtree(unread, ignore_errors=True)  # of a world that nobody has begun
            shutil.rmtree(kept, ignore_errors=True)
            os._exit(0)  # what else Python and torch would do at their end takes a second

    signal.signal(signal.SIGALRM, end_with_the_kernel)  # also while it imports
    signal.siginterrupt(signal.SIGALRM, False)
    signal.setitimer(signal.ITIMER_REAL, LOOK, LOOK)
    for module in FIRST:
        importlib.import_module(module)
    sys.modules["allranks.launch.rank"].rehearse()
    later, message, descriptors = iter(() if is_prepared else preparations()), b"", [None]
    somebody_waits = os.environ.get("ALLRANKS_STANDBY") != "0"
    while descriptors:
        comes_early = somebody_waits and select.select([requests], [], [], 0)[0]
        if next(later, "done") == "done" or comes_early:
            message, descriptors, _, _ = socket.recv_fds(requests, 8192, 253)
            if descriptors:
                _fork_keeper(requests, message.decode(), *map(Connection, descriptors))
    while message != b"leave" or children(os.getpid()):
        end_with_the_kernel()
        time.sleep(GLANCE)
    os._exit(0)


def preparations(but=()):
    """Make launches faster, step by step: what comes first is in time for those who wait.

    `but`: the modules of `THEN` that ranks will not need.

    The last steps merge this process's pages into large ones. It holds 50,000 of 4 kB, each rank is given a
    table of them, which is taken down at its end: otherwise that is most of what a launch costs. Linux has it
    since 6.1.
    """
    for module in THEN:
        if module in but:
            continue
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
        yield
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    with open("/proc/self/maps") as maps:
        regions = [re.match(r"(\w+)-(\w+) rw-p 0+ 00:00 0 +(?:\[heap\])?$", line) for line in maps]
    for region in filter(None, regions):
        start, end = (int(address, 16) for address in region.groups())
        for page in range(-(-start // LARGE_PAGE), end // LARGE_PAGE):
            madvise(page * LARGE_PAGE, LARGE_PAGE, MADV_COLLAPSE)  # or not
            yield


def _fork_keeper(requests, directory, connection, *pipes):
    gc.freeze()  # ranks share what is here, as long as the garbage collector does not touch it
    try:
        if os.fork() == 0:
            requests.close()
            os.setsid()
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            keep(connection, pipes, directory)
    except OSError as error:
        connection.send(("refused", f"{type(error).__name__}: {error}"))
    for end in (connection, *pipes):
        end.close()


def keep(connection, pipes, directory, method="fork"):
    """Be the keeper of the world in `directory`; `connection` leads to the kernel, `pipes` to the ranks."""
    processes = []

    def finish(kernel_is_there=False):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        end_below()
        if not LINUX:
            for process in processes:
                process.kill()
                process.join()
        connection.close()  # which tells the kernel; the end of this process takes some milliseconds more
        if not kernel_is_there:
            shutil.rmtree(directory, ignore_errors=True)
        os._exit(0)

    signal.signal(signal.SIGTERM, lambda *_: finish())
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)  # the server has ended
    try:
        with open(os.path.join(directory, "world"), "rb") as file:
            plan, environment, standby = pickle.load(file)
        until = None
        if standby and not connection.poll(PAUSE):
            until = time.monotonic() + standby  # nobody wants it yet
        elif standby and connection.recv() == "end":
            finish(kernel_is_there=True)
        processes += _start(method, (plan, environment, directory, connection, pipes))
        connection.send(("started", (os.getpid(), [process.pid for process in processes])))
        running = dict(enumerate(processes))
        while until is None or time.monotonic() < until:
            sources = [connection, *(process.sentinel for process in running.values())]
            left = GLANCE if until is None else until - time.monotonic()
            if connection in wait(sources, left):
                if connection.recv() == "end":
                    finish(kernel_is_there=True)
                until = None
            for rank, process in [*running.items()]:
                if process.exitcode is not None:
                    connection.send(("ended", (rank, process.exitcode)))
                    del running[rank]
    except (EOFError, OSError):  # the kernel has gone
        pass
    finish()


def _start(method, arguments):
    """Start the ranks as `torch.multiprocessing.spawn` does; but forked, where that is safe."""
    from torch import multiprocessing

    from allranks.launch import rank

    connection, directory = arguments[3], arguments[2]
    if LINUX:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    call_it("ranks: keeper")
    tempfile.tempdir = directory
    try:
        return multiprocessing.start_processes(
            rank.live, arguments, arguments[0].world_size, join=False, start_method=method
        ).processes
    except OSError as error:
        connection.send(("refused", f"{type(error).__name__}: {error}"))
        raise


def end_below():
    """End everything below this process; the trackers last, which remove shared memory that others left."""
    until = time.monotonic() + TIDY
    while left := children(os.getpid()):
        trackers = [pid for pid in left if _is_tracker(pid)] if time.monotonic() < until else []
        for pid in set(left) - set(trackers):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in left:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG if pid in trackers else 0)
        if left == trackers:
            time.sleep(0.005)


def _is_tracker(pid):
    """True if a process is multiprocessing's tracker of shared memory; it ends after those that it serves."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as command:
        return b"multiprocessing.resource_tracker" in command.read()


def children(pid):
    """The processes that the main thread of a process has started, and that have not been waited for."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as pids:
            return [*map(int, pids.read().split())]
    except OSError:
        return []


def fill_standard_descriptors():
    """Have the descriptors 0, 1 and 2 open: in a program that was started without, pipes would get them."""
    while (file := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(file)


def call_it(name):
    """Name this process, for `ps` and `top`: at most 15 letters."""
    prctl(PR_SET_NAME, name.encode())


def prctl(option, value):
    """Set an attribute of this process, where there are such."""
    if LINUX:
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
