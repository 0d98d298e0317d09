"""Why do ranks start in less than a tenth of a second? They are forked from a process that has torch loaded.

This is the kernel's end of that fork server, asked over a socket that has no name in any folder. macOS and
Windows have no fork that survives torch's libraries: there ranks are spawned, which takes seconds.
"""

import atexit
import contextlib
import json
import os
import socket
import subprocess
import sys
import threading

from allranks.launch import carried, keeper, output

METHOD = "fork" if sys.platform == "linux" else "spawn"
# A forked process inherits the pools of its parent's libraries: give the parent none.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
# Variables that Python and torch read when they start: ranks get others only from another server.
READ_AT_START = ("PYTHON", "TORCH", "PYTORCH", "LD_", "MALLOC_", "OMP_", "GOMP_", "KMP_", "MKL_")
# The last one torch sets itself, when a first optimizer makes it import its compiler.
READ_BY_RANKS = {"OMP_NUM_THREADS", "TORCH_DISTRIBUTED_DEBUG", "PYTHONWARNINGS", "TORCHINDUCTOR_CACHE_DIR"}
MAIN = (
    "import json, socket, sys; requests = socket.socket(fileno=int(sys.argv[1]));"
    "path, *rest = json.loads(requests.recv(1 << 20)); sys.path[:] = path;"
    "from allranks.launch.keeper import serve; serve(requests, *rest)"
)

_lock = threading.RLock()
_server = None


class Server:
    """A fork server, and the socket that leads to it."""

    def __init__(self):
        self.settings = _settings()
        keeper.fill_standard_descriptors()
        self.requests, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with there:
            self.process = subprocess.Popen(
                [sys.executable, "-c", MAIN, str(there.fileno())],
                pass_fds=[there.fileno()],
                stdin=subprocess.DEVNULL,
                env={**os.environ, **ONE_THREAD, "PYTHONWARNINGS": ""},
                start_new_session=True,  # Jupyter ends a kernel with its process group; this cleans up
            )
        self.requests.send(json.dumps([carried.path(), os.getpid(), output.kept()]).encode())

    def is_of_use(self):
        """True if it lives, and was started with the variables of now."""
        return self.process.poll() is None and self.settings == _settings()

    def leave(self):
        """End it when its last world has ended."""
        with contextlib.suppress(OSError):
            self.requests.send(b"leave")
        self.requests.close()
        if self.process.poll() is None:
            threading.Thread(target=self.process.wait, daemon=True).start()


def warm_up():
    """Start the fork server, if this system has one; return at once while it loads torch."""
    if METHOD == "fork":
        _current()


def request(directory, ends):
    """Have a keeper made for the world in `directory`, with these ends of pipes; return at once."""
    if METHOD == "spawn":
        _spawn_keeper(directory, ends)
        return
    descriptors = [end.fileno() for end in ends]
    with _lock:
        try:
            socket.send_fds(_current().requests, [directory.encode()], descriptors)
        except OSError:  # it has ended just now
            forget()
            socket.send_fds(_current().requests, [directory.encode()], descriptors)


def pid():
    """The process id of the fork server; None where there is none."""
    return _server and _server.process.pid


def is_alive():
    """True if there is a fork server, and nobody has ended it."""
    return _server is not None and _server.process.poll() is None


def forget():
    """Let the next world have a new fork server."""
    global _server
    with _lock:
        if _server:
            _server.leave()
        _server = None


def _current():
    global _server
    with _lock:
        if _server and not _server.is_of_use():
            forget()
        if not _server:
            _server = Server()
        return _server


def _settings():
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith(READ_AT_START) and name not in READ_BY_RANKS
    }


def _abandon():
    """Leave the server to itself: this process ends; or it was forked, and the server is not its child."""
    global _server, _lock
    _lock = threading.RLock()
    if _server:
        _server.requests.close()
        _server.process.returncode = 0
    _server = None


atexit.register(_abandon)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon)


def _spawn_keeper(directory, ends):
    from torch import multiprocessing

    connection, *pipes = ends
    context = multiprocessing.get_context("spawn")
    with _without_main():
        context.Process(target=keeper.keep, args=(connection, pipes, directory, "spawn")).start()


@contextlib.contextmanager
def _without_main():
    """Hide where `__main__` came from: functions travel by value, so a rank need not run it again."""
    main = sys.modules["__main__"]
    hidden = {name: getattr(main, name) for name in ("__file__", "__spec__") if hasattr(main, name)}
    for name in hidden:
        delattr(main, name)
    main.__spec__ = None
    try:
        yield
    finally:
        del main.__spec__
        for name, value in hidden.items():
            setattr(main, name, value)
