"""What does a notebook call? One function, which checks what it is asked before anything starts."""

import math
import os
import signal
import sys
import threading
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from numbers import Real

from allranks.launch import existing, on_ray, packing
from allranks.launch.blame import Interrupted
from allranks.launch.plan import make_plan
from allranks.launch.world import World


def launch(fn, /, *args, world_size=None, timeout=60.0, backend=None, cluster=None, **kwargs):
    """Run `fn(*args, **kwargs)` on `world_size` fresh processes, 4 unless said otherwise; return their
    results, indexed by rank.

    In each process the default process group is ready, so `fn` is ordinary `torch.distributed` code.
    The backend is NCCL when there is a GPU for every rank, else gloo on the CPU; `backend` is 'nccl',
    'gloo', or 'cuda:gloo' for ranks that share GPUs. Each rank has the environment that torchrun gives
    (RANK, WORLD_SIZE, …), its own seed (the rank), one compute thread unless OMP_NUM_THREADS says
    otherwise, and its GPU as the current device. Arguments are copies, and so is what a function reads from
    the notebook: changes stay on the rank; only the result comes back, its tensors on the CPU.

    Where torchrun or Slurm has started the ranks, each of which calls `launch`, it uses those (see
    `existing`); with `cluster='ray'` the ranks are workers of Ray Train, on all its machines (see `on_ray`).

    Raises RankFailed if a rank raises or dies, RanksTimedOut if one still runs after `timeout` seconds,
    and ValueError or TypeError, before anything starts, for what is not possible.
    """
    _check(fn, timeout, cluster)
    _import_torch()
    if existing.found():
        return existing.run(fn, args, kwargs, world_size=world_size, timeout=float(timeout), backend=backend)
    world_size = 4 if world_size is None else world_size
    if cluster == "ray":
        return on_ray.run(fn, args, kwargs, world_size=world_size, timeout=float(timeout), backend=backend)
    with World(make_plan(world_size, backend), float(timeout)) as world:
        packing.save_call(fn, args, kwargs, world.path("call"))
        world.run()
        return [packing.load(world.path(f"result-{r}")) for r in world.ranks]


def _check(fn, timeout, cluster):
    if "ALLRANKS_WORLD" in os.environ:
        raise RuntimeError(
            "launch was called on a rank: a rank is already one process of a world. Call launch in the "
            "notebook; for fewer ranks, use dist.new_group."
        )
    if not callable(fn):
        raise TypeError(
            f"launch needs a function, and was given {type(fn).__name__}: "
            "write launch(f, x) to run f(x) on every rank, not launch(f(x))."
        )
    if any(asks(fn) for asks in (isasyncgenfunction, iscoroutinefunction, isgeneratorfunction)):
        raise TypeError(
            f"launch needs a function that returns its result, and {getattr(fn, '__name__', fn)} is a "
            "generator or coroutine function: call it in an ordinary one, by list(…) or asyncio.run(…)."
        )
    if not isinstance(timeout, Real) or isinstance(timeout, bool) or not 0 < timeout < math.inf:
        raise ValueError(
            f"timeout={timeout!r}: give a number of seconds above 0; every launch has a deadline."
        )
    if cluster not in (None, "ray"):
        raise ValueError(
            f"cluster={cluster!r} is not 'ray' (ranks are placed by Ray Train). Leave it out for ranks on "
            "this machine, and under torchrun, Slurm or Kubernetes: there launch uses the ranks it finds."
        )


def _import_torch():
    """Import torch, with an interrupt that comes meanwhile put off: half an import cannot be repeated."""
    if "torch" in sys.modules or threading.current_thread() is not threading.main_thread():
        return
    pressed = []
    before = signal.signal(signal.SIGINT, lambda *_: pressed.append(True))
    try:
        import torch  # noqa: F401
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed:
        raise Interrupted("no rank was started")
