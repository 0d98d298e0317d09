"""What does a rank do, from its first instruction to its last? It is one function: `live`.

It tells the kernel when it has joined the world, waits until all have, calls the function, and reports
`("returned", last collective)` or `("raised", Failure)`. A rank that returned exits at once, so that a peer
still waiting for it learns so from its closed connections. A rank that failed stays, connections open, until
the kernel ends it: otherwise its peers would fail too, of "connection closed by peer", and drown the cause.
"""

import ctypes
import multiprocessing
import os
import random
import signal
import sys
import threading
from multiprocessing import forkserver

from allranks.launch import bars, packing, stacks

PR_SET_PDEATHSIG = 1


def live(rank, plan, directory, environment, pipe):
    """Be rank `rank` of a world: set up, call the function, send its result, exit."""
    _die_with_the_kernel()
    _redirect_output(os.path.join(directory, f"output-{rank}"))
    stacks.write_on_demand(os.path.join(directory, f"stacks-{rank}"))
    send = _one_at_a_time(pipe.send)
    begin = threading.Event()
    threading.Thread(target=_listen, args=(pipe.recv, send, begin), daemon=True).start()
    bars.report_to(send if rank == 0 else None)
    try:
        device = _become_rank(rank, plan, environment)
        fn, args, kwargs = packing.load(os.path.join(directory, "call"))
        _join_world(rank, plan, device, os.path.join(directory, "store"))
        send(("joined", None))
        begin.wait()
        result = fn(*args, **kwargs)
        _send_result(result, os.path.join(directory, f"result-{rank}"))
        _leave_world(plan)
        send(("returned", stacks.last_collective()))
    except BaseException as error:  # SystemExit and KeyboardInterrupt are answers too
        _flush()
        send(("raised", stacks.Failure.of(error)))
        threading.Event().wait()
    _flush()
    os._exit(0)


def _die_with_the_kernel():
    """Make sure that nothing outlives the notebook, not even when it is killed with SIGKILL."""
    if os.name != "posix":
        return
    os.setsid()  # one group to kill; and Ctrl-C in a terminal reaches the kernel only
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


def _listen(receive, send, begin):
    """Do what the kernel asks; when the kernel is gone, so is this rank and all that it started."""
    while True:
        try:
            question = receive()
        except (EOFError, OSError):
            os.killpg(0, signal.SIGKILL) if os.name == "posix" else os._exit(1)
        if question == "begin":
            begin.set()
        else:
            send(("standing", stacks.last_collective()))


def _redirect_output(path):
    """Send file descriptors 1 and 2 (so C++, NCCL and subprocesses as well) to the file `path`."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
    open_text = {"buffering": 1, "encoding": "utf-8", "errors": "backslashreplace", "closefd": False}
    sys.stdout = open(1, "w", **open_text)
    sys.stderr = open(2, "w", **open_text)


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
        return None
    device = torch.device("cuda", plan.devices[rank])
    torch.cuda.set_device(device)
    return device


def _join_world(rank, plan, device, store):
    import torch.distributed as dist

    dist.init_process_group(
        plan.backend,
        store=dist.FileStore(store, plan.world_size),  # private to this user, where a TCP port is not
        rank=rank,
        world_size=plan.world_size,
        device_id=device if "nccl" in plan.backend else None,
    )


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
    sys.stdout.flush()
    sys.stderr.flush()
    if os.name == "posix":
        ctypes.CDLL(None).fflush(None)  # what C code printed
