"""What does a rank do, from its first instruction to its last? It is one function: `live`.

It tells the kernel when it has joined the world, waits until all have, calls the function, and reports
that it `returned`, or `raised` a `stacks.Failure`. A rank that returned stays until all have, but at most
`LINGER`, and as long as peers lack a processor: one may still be connecting a group that this rank has done
with, and one that waits for it in vain learns so from its closed connections. A rank that failed stays,
connections open, until its keeper ends it: otherwise its peers would fail too, of "connection closed by
peer", and drown the cause.
"""

import atexit
import contextlib
import ctypes
import gc
import io
import logging
import multiprocessing
import os
import queue
import random
import re
import signal
import sys
import tempfile
import threading
import time
from multiprocessing import util

from allranks import private
from allranks.launch import bars, carried, keeper, packing, pickling, recorder, stacks
from allranks.launch.patience import Patience

LINGER = 1.0  # seconds
WRITTEN = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)

handlers = {}  # a signal handler that C calls must not be collected


def live(rank, plan, environment, directory, to_keeper, pipes):
    """Be rank `rank` of a world: set up, wait, call the function, send its result, exit."""
    pipe = _keep_one(rank, to_keeper, pipes)
    private.forget_exit_functions()  # of the fork server
    atexit.register(logging.shutdown)
    _die_with_the_kernel(rank)
    try:
        _redirect_output(os.path.join(directory, f"output-{rank}"))
    except FileNotFoundError:  # nobody wants this world any more
        os._exit(0)
    write_stacks = stacks.write_when_forced(os.path.join(directory, f"stacks-{rank}"))
    send = _one_at_a_time(pipe.send)
    record = os.path.join(directory, f"collectives-{rank}")
    _report_abort(send)

    def stand():
        try:
            write_stacks()
            recorder.write(record)
        finally:
            send(("standing", None))

    begun = queue.SimpleQueue()
    answers = {"begin": begun.put, "where": stand}
    threading.Thread(target=_listen, args=(pipe.recv, answers), daemon=True).start()
    bars.report_to(send if rank == 0 else None)
    try:
        device = become_rank(rank, plan, environment, directory)
        _join_world(rank, plan, device, os.path.join(directory, "store"))
        send(("joined", None))
        fn, args, kwargs = _load_call(begun.get(), os.path.join(directory, "call"))
        result = _call(fn, args, kwargs)
        packing.save_result(result, os.path.join(directory, f"result-{rank}"))
        private.run_exit_functions()
        _leave_world(plan)
        digest = recorder.write(record)
        _flush()
        send(("returned", digest))
        if plan.rules:
            threading.Event().wait()
        time.sleep(LINGER / 2)  # most worlds have ended by then
        Patience(LINGER / 2, keeper.children(os.getppid())).wait()
    except BaseException as error:  # SystemExit and KeyboardInterrupt are answers too
        _flush()
        send(("raised", stacks.Failure.of(error)))
        threading.Event().wait()
    os._exit(0)


def _keep_one(rank, to_keeper, pipes):
    """Close what other processes of this world use."""
    if keeper.LINUX:  # elsewhere each rank has copies of its own, and of no use
        for number, pipe in enumerate(pipes):
            if number != rank:
                pipe.close()
        to_keeper.close()
    return pipes[rank]


def _die_with_the_kernel(rank):
    """Make sure that this process ends when its keeper does, and has what a program usually starts with."""
    if os.name == "posix":
        os.setsid()  # Ctrl-C in a terminal reaches the kernel only
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    keeper.call_it(f"rank {rank}")
    if keeper.LINUX:
        keeper.prctl(keeper.PR_SET_PDEATHSIG, signal.SIGKILL)
        # What this rank starts itself (DataLoader workers) is forked: to spawn it would take seconds.
        multiprocessing.set_start_method("fork", force=True)


def _one_at_a_time(send):
    """Two threads of a rank write into its pipe."""
    lock = threading.Lock()

    def locked(message):
        with lock:
            send(message)

    return locked


def _report_abort(send):
    """Tell the kernel of a SIGABRT, and stay: gloo aborts one of two ranks whose tensors differ in size."""

    def report(number):
        with contextlib.suppress(OSError):  # the function may have closed the pipe
            send(("died", -number))
        threading.Event().wait()

    call_on_abort(report)


def call_on_abort(function):
    """Have `function(SIGABRT)` called when C code calls abort(); when it returns, the process dies of it.

    A handler of Python's own would not be called, since abort() does not return to the interpreter.
    """
    if keeper.LINUX:
        handlers["SIGABRT"] = ctypes.CFUNCTYPE(None, ctypes.c_int)(function)
        ctypes.CDLL(None).signal(signal.SIGABRT, handlers["SIGABRT"])


def _listen(receive, answers):
    """Do what the kernel asks; when the kernel is gone, so is this rank."""
    while True:
        try:
            question, *details = receive()
        except (EOFError, OSError):
            os._exit(1)
        answers[question](*details)


def _redirect_output(path):
    """Send file descriptors 1 and 2 (so C++, NCCL and subprocesses as well) to the file `path`."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
    open_text = {"buffering": 1, "encoding": "utf-8", "errors": "backslashreplace", "closefd": False}
    sys.stdout = open(1, "w", **open_text)  # noqa: SIM115
    sys.stderr = open(2, "w", **open_text)  # noqa: SIM115


def become_rank(rank, plan, environment, directory):
    """Apply the environment, the seed, the thread count and the device; return the device or None."""
    os.environ.clear()
    os.environ.update(environment, RANK=str(rank), LOCAL_RANK=str(rank))
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # no line with the time when torch.profiler starts
    if plan.devices[rank] is None:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    if hasattr(time, "tzset"):
        time.tzset()
    tempfile.tempdir = directory
    util.get_temp_dir()  # what multiprocessing writes on this rank goes with the world
    tempfile.tempdir = None
    import torch
    import torch.distributed as dist

    dist.set_debug_level_from_env()  # torch read the fork server's environment when it was imported
    torch.set_num_threads(_threads(os.environ["OMP_NUM_THREADS"]))
    if plan.devices[rank] is None:
        seed(rank, torch.default_generator.manual_seed)  # the devices' generators take milliseconds
        private.use_the_cpu()
        return None
    seed(rank, torch.manual_seed)
    device = torch.device("cuda", plan.devices[rank])
    torch.cuda.set_device(device)
    return device


def seed(rank, seed_torch):
    """Seed all generators with the rank."""
    random.seed(rank)
    seed_torch(rank)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(rank)


def _threads(setting):
    """The number of threads in OMP_NUM_THREADS, which may list one for each level: `4,2`; 1 if it is none."""
    number = re.match(r"\s*(\d+)", setting)
    return max(1, int(number[1])) if number else 1


def _join_world(rank, plan, device, store):
    import torch.distributed as dist

    store = dist.FileStore(store, plan.world_size)  # private to this user, where a TCP port is not
    dist.init_process_group(
        plan.backend,
        store=store,
        rank=rank,
        world_size=plan.world_size,
        device_id=device if "nccl" in plan.backend else None,
    )
    if plan.rules:
        from allranks import nccl

        nccl.enforce(store, rank, plan.world_size)


def _load_call(place, file):
    """Go where the kernel stands, and return the function with its arguments."""
    carried.go(place)
    pickling.become_main()
    manner, fn, args, kwargs = packing.load(file)
    pickling.fill_main()
    carried.behave(manner)
    return fn, args, kwargs


def rehearse():
    """In the fork server: do what every rank will do, so that it finds it done."""
    file = io.BytesIO()
    packing.save_call(_threads, ("1",), {}, file, carried.manner())
    file.seek(0)
    manner, *_ = packing.load(file)
    carried.behave(manner)


def _call(fn, args, kwargs):
    """Return what the function returns; a process that it forked, and that comes back too, ends here."""
    pid = os.getpid()
    try:
        return fn(*args, **kwargs)
    finally:
        if os.getpid() != pid:
            os._exit(0)


def _leave_world(plan):
    """NCCL wants to be told; gloo's connections close with the process."""
    import torch.distributed as dist

    if "nccl" in plan.backend and dist.is_initialized():
        dist.destroy_process_group()
    if plan.rules:
        from allranks import nccl

        nccl.leave()


def _flush():
    """Write what is still in buffers: a file that the function left open would lose it."""
    files = [
        each for each in gc.get_objects() if issubclass(type(each), WRITTEN)
    ]  # a dead proxy has no __class__
    for stream in (sys.stdout, sys.stderr, *files):
        with contextlib.suppress(Exception):  # the function may have closed or replaced it
            stream.flush()
    if os.name == "posix":
        ctypes.CDLL(None).fflush(None)  # what C code printed
