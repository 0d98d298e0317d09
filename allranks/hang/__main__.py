"""How does a program leave dumps that has never heard of this book? torchrun starts it through this module:

torchrun --nproc-per-node 4 -m allranks.hang program.py [its arguments]
torchrun --nproc-per-node 4 -m allranks.hang -m package.module [its arguments]

Each rank writes hang/rank_N ($ALLRANKS_HANG/rank_N if that is set) when the program returns, raises, aborts,
or is told to stop, by torchrun, by a scheduler or by Ctrl-C; SIGKILL alone leaves no time for it. A rank that
is sent SIGUSR1 writes it and goes on. A rank that waits in a collective runs no Python, so signals take
another way: C code notes them in a pipe, and a thread reads it.
"""

import atexit
import contextlib
import ctypes
import os
import runpy
import signal
import sys
import threading

import torch.distributed as dist

from allranks import hang
from allranks.hang import dumps
from allranks.launch.rank import call_on_abort

USAGE = (
    "usage: torchrun --nproc-per-node N -m allranks.hang PROGRAM.py [ARGUMENTS], or … -m MODULE [ARGUMENTS]"
)

writing = threading.RLock()  # two threads may, and an abort interrupts either
ended = threading.Event()  # the program, by an exception: what a signal would dump then is no news


def main(arguments):
    """Run a program, and dump what its ranks have entered when it ends, or when a signal asks for it."""
    as_module = arguments[:1] == ["-m"]
    arguments = arguments[as_module:]
    if not arguments or arguments[0].startswith("-"):
        raise SystemExit(USAGE)
    if not as_module and not os.path.exists(arguments[0]):
        raise SystemExit(f"there is no {arguments[0]}; {USAGE}")
    folder = os.path.abspath(os.environ.get("ALLRANKS_HANG", hang.FOLDER))
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise SystemExit(f"{folder} is a file, but dumps need a folder: set ALLRANKS_HANG to another name")
    # Where NCCL's watchdog writes its own.
    os.environ.setdefault("TORCH_FR_DUMP_TEMP_FILE", os.path.join(folder, dumps.PREFIX))
    _watch(folder)
    _before_groups_end(folder)
    sys.argv = arguments
    try:
        if as_module:
            runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = os.path.dirname(
                os.path.abspath(arguments[0])
            )  # as if Python had been given the program
            runpy.run_path(arguments[0], run_name="__main__")
    except BaseException as error:
        is_exit = isinstance(error, SystemExit) and not error.code
        _write(folder, None if is_exit else error, is_last=True)
        raise
    if dist.is_initialized():
        _write(folder)


def _watch(folder):
    """Dump at a signal, whatever the main thread waits for."""
    reading, end = os.pipe()
    os.set_blocking(end, False)
    signal.set_wakeup_fd(end, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, lambda *_: None)  # Python has to handle it, or nothing is written into the pipe

    def listen():
        while number := os.read(reading, 1):
            _write(folder)
            if number[0] == signal.SIGTERM:
                _default(signal.SIGTERM)
                os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=listen, daemon=True).start()
    call_on_abort(lambda _: _write(folder))
    atexit.register(_default, signal.SIGABRT)  # no Python when it is being taken down


def _default(number):
    """Let a signal do again what it does by default; Python's own function asks for the main thread."""
    ctypes.CDLL(None).signal(number, None)


def _before_groups_end(folder):
    """A group that has been destroyed has no members any more: dump before that."""
    original = dist.destroy_process_group

    def destroy_process_group(group=None):
        if group is None or group is dist.group.WORLD:
            _write(folder)
        original(group)

    dist.destroy_process_group = dist.distributed_c10d.destroy_process_group = destroy_process_group


def _write(folder, error=None, is_last=False):
    with writing:
        if not ended.is_set():
            with contextlib.suppress(OSError):  # a full disk is no reason to fail
                hang.write(folder, error)
        if is_last:
            ended.set()


main(sys.argv[1:])
