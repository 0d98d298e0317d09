"""What does a rank do, from its first instruction to its last? It is one function: `live`.

It tells the kernel when it has joined the world, waits until all have, calls the function, and reports
that it `returned`, or `raised` a `stacks.Failure`. A rank that returned stays until all have, but at most
`LINGER`: a peer may still be connecting a group that this rank has done with, and one that waits for it in
vain learns so from its closed connections. A rank that failed stays, connections open, until the kernel ends
it: otherwise its peers would fail too, of "connection closed by peer", and drown the cause.
"""

import contextlib
import ctypes
import multiprocessing
import os
import random
import signal
import sys
import threading
from multiprocessing import forkserver

from allranks.launch import bars, packing, recorder, stacks

PR_SET_PDEATHSIG = 1
LINGER = 1.0  # seconds

handlers = {}  # a signal handler that C calls must not be collected


def live(rank, plan, directory, environment, pipe):
    """Be rank `rank` of a world: set up, call the function, send its result, exit."""
    _die_with_the_kernel()
    _redirect_output(os.path.join(directory, f"output-{rank}"))
    write_stacks = stacks.write_when_forced(os.path.join(directory, f"stacks-{rank}"))
    send = _one_at_a_time(pipe.send)
    begin, end = threading.Event(), threading.Event()
    record = os.path.join(directory, f"collectives-{rank}")
    _report_abort(send)

    def stand():
        write_stacks()
        recorder.write(record)
        send(("standing", None))

    answers = {"begin": begin.set, "where": stand, "end": end.set}
    threading.Thread(target=_listen, args=(pipe.recv, answers), daemon=True).start()
    bars.report_to(send if rank == 0 else None)
    try:
        device = _become_rank(rank, plan, environment)
        fn, args, kwargs = packing.load(os.path.join(directory, "call"))
        _join_world(rank, plan, device, os.path.join(directory, "store"))
        send(("joined", None))
        begin.wait()
        result = _call(fn, args, kwargs)
        _send_result(result, os.path.join(directory, f"result-{rank}"))
        _leave_world(plan)
        recorder.write(record)
        _flush()
        send(("returned", None))
        end.wait(LINGER)
    except BaseException as error:  # SystemExit and KeyboardInterrupt are answers too
        _flush()
        send(("raised", stacks.Failure.of(error)))
        threading.Event().wait()
    os._exit(0)


def _die_with_the_kernel():
    """Make sure that nothing outlives the notebook, not even when it is killed with SIGKILL."""
    if os.name != "posix":
        return
    os.setsid()  # one group to kill; and Ctrl-C in a terminal reaches the kernel only
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # see server._without_interrupts
    if sys.platform == "linux":
        _die_with_parent()
        os.register_at_fork(after_in_child=_die_with_parent)  # DataLoader workers
        # The fork server lives as long as somebody holds this: only the kernel should.
        os.close(forkserver._forkserver._forkserver_alive_fd)
        # What this rank starts itself (DataLoader workers) is forked, not asked of the fork server.
        multiprocessing.set_start_method("fork", force=True)


def _die_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _one_at_a_time(send):
    """Two threads of a rank write into its pipe."""
    lock = threading.Lock()

    def locked(message):
        with lock:
            send(message)

    return locked


def _report_abort(send):
    """Tell the kernel of a SIGABRT, and stay: gloo aborts one of two ranks whose tensors differ in size.

    A handler of Python's own would not be called, since abort() does not return to the interpreter.
    """

    def report(number):
        send(("died", -number))
        threading.Event().wait()

    if sys.platform == "linux":
        handlers["SIGABRT"] = ctypes.CFUNCTYPE(None, ctypes.c_int)(report)
        ctypes.CDLL(None).signal(signal.SIGABRT, handlers["SIGABRT"])


def _listen(receive, answers):
    """Do what the kernel asks; when the kernel is gone, so is this rank and all that it started."""
    while True:
        try:
            question = receive()
        except (EOFError, OSError):
            os.killpg(0, signal.SIGKILL) if os.name == "posix" else os._exit(1)
        answers[question]()


def _redirect_output(path):
    """Send file descriptors 1 and 2 (so C++, NCCL and subprocesses as well) to the file `path`."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
    open_text = {"buffering": 1, "encoding": "utf-8", "errors": "backslashreplace", "closefd": False}
    sys.stdout = open(1, "w", **open_text)  # noqa: SIM115
    sys.stderr = open(2, "w", **open_text)  # noqa: SIM115


def _become_rank(rank, plan, environment):
    """Apply the environment, the seed, the thread count and the device; return the device or None."""
    os.environ.clear()
    os.environ.update(environment)
    import torch
    import torch.distributed as dist

    dist.set_debug_level_from_env()  # torch read the fork server's environment when it was imported
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    random.seed(rank)
    torch.manual_seed(rank)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(rank)
    if plan.devices[rank] is None:
        _stay_on_the_cpu()
        return None
    device = torch.device("cuda", plan.devices[rank])
    torch.cuda.set_device(device)
    return device


def _stay_on_the_cpu():
    """Let `fully_shard` take the CPU: it asks what torch was built for, not what this rank may use."""
    import torch

    if torch._C._get_accelerator().type != "cpu":
        torch._C._get_accelerator = lambda *_: torch.device("cpu")


def _join_world(rank, plan, device, store):
    import torch.distributed as dist

    dist.init_process_group(
        plan.backend,
        store=dist.FileStore(store, plan.world_size),  # private to this user, where a TCP port is not
        rank=rank,
        world_size=plan.world_size,
        device_id=device if "nccl" in plan.backend else None,
    )


def _call(fn, args, kwargs):
    """Return what the function returns; a process that it forked, and that comes back too, ends here."""
    pid = os.getpid()
    try:
        return fn(*args, **kwargs)
    finally:
        if os.getpid() != pid:
            os._exit(0)


def _send_result(result, path):
    try:
        packing.save(result, path)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise TypeError(f"the result, a {type(result).__name__}, cannot be sent back: {reason}") from None


def _leave_world(plan):
    """NCCL wants to be told; gloo's connections close with the process."""
    import torch.distributed as dist

    if "nccl" in plan.backend and dist.is_initialized():
        dist.destroy_process_group()


def _flush():
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # the function may have closed or replaced it
            stream.flush()
    if os.name == "posix":
        ctypes.CDLL(None).fflush(None)  # what C code printed
