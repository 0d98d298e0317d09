"""What does a notebook call? One function, which checks what it is asked before anything starts."""

import inspect
import math
import os
from numbers import Real

from allranks.launch import carried, existing, hints, notebook, on_ray, packing, server, standby
from allranks.launch.blame import Interrupted, NotStarted
from allranks.launch.interrupts import Interrupts
from allranks.launch.plan import make_plan

SECONDS = 60.0  # that a function may take, unless said otherwise
FOREVER = 1e9  # seconds; libraries count in whole numbers that more would not fit into


def launch(fn, /, *args, world_size=None, timeout=SECONDS, backend=None, rules=None, cluster=None, **kwargs):
    """Run `fn(*args, **kwargs)` on `world_size` fresh processes, 4 unless said otherwise; return their
    results, indexed by rank.

    In each process the default process group is ready, so `fn` is ordinary `torch.distributed` code.
    The backend is NCCL when there is a GPU for every rank, else gloo on the CPU; `backend` is 'nccl',
    'gloo', or 'cuda:gloo' for ranks that share GPUs. Each rank has the environment that torchrun gives
    (RANK, WORLD_SIZE, …), its own seed (the rank), one compute thread unless OMP_NUM_THREADS says
    otherwise, and its GPU as the current device. As at the end of a program, files that `fn` left open are
    written, and what it gave to `atexit` runs. Arguments are copies, and so is what a function reads from
    the notebook: changes stay on the rank; only the result comes back, its tensors on the CPU.
    As with `torch.save`, tensors travel without their `.grad`.
    Ranks have the notebook's environment, working directory, `sys.path`, default dtype, print options and
    root logger. They import modules anew: what a cell has set in an imported module is not there.

    With `rules='nccl'` the ranks stay on the CPU, under gloo, and are held to what NCCL demands: a program
    that would hang there, or reads too early, raises `allranks.nccl.RuleBroken` (see `allranks.nccl`).
    ALLRANKS_RULES=nccl in the environment asks for it in every launch that leaves `rules` out.

    Where torchrun or Slurm has started the ranks, each of which calls `launch`, it uses those (see
    `existing`); with `cluster='ray'` the ranks are workers of Ray Train, on all its machines (see `on_ray`).

    Raises RankFailed if a rank raises or dies, or if ranks entered collectives that do not fit together;
    RanksTimedOut if one still runs `timeout` seconds after all had started, without those that it waited for
    a processor (see `patience`); and ValueError or TypeError, before anything starts, for what is not
    possible.
    """
    given = {
        "world_size": world_size,
        "timeout": timeout,
        "backend": backend,
        "rules": rules,
        "cluster": cluster,
    }
    _check(fn, args, kwargs, given)
    timeout = float(min(timeout, FOREVER))
    if existing.found():
        return existing.run(fn, args, kwargs, world_size=world_size, timeout=timeout, backend=backend)
    world_size = 4 if world_size is None else world_size
    if cluster == "ray":
        return on_ray.run(fn, args, kwargs, world_size=world_size, timeout=timeout, backend=backend)
    with Interrupts() as interrupts:
        # This imports torch, and an interrupted import cannot be repeated.
        plan = make_plan(world_size, backend, rules or _default_rules(backend))
        if interrupts.came():
            raise Interrupted("no rank was started")
        return _run(fn, args, kwargs, plan, timeout, interrupts)


def _default_rules(backend):
    rules = None if backend in ("nccl", "cuda:gloo") else os.environ.get("ALLRANKS_RULES") or None
    if rules not in (None, "nccl"):
        raise ValueError(
            f"ALLRANKS_RULES={rules!r} in the environment is not 'nccl' (gloo's ranks are held to NCCL's "
            "rules). Unset it for none."
        )
    return rules


def _run(fn, args, kwargs, plan, timeout, interrupts):
    with interrupts.raised():
        place, manner = carried.place(), carried.manner()
        carried.warn_of_edits()

    def attempt():
        world = standby.take(plan)
        try:
            with interrupts.raised():
                packing.save_call(fn, args, kwargs, world.path("call"), manner)
            world.run(place, timeout, interrupts)
            with interrupts.raised():
                return world.results()
        finally:
            world.close()

    try:
        return attempt()
    except NotStarted:  # the fork server was ended just now, and gave no reason
        server.forget()
        return attempt()
    finally:
        standby.prepare(plan)


def _check(fn, args, kwargs, given):
    timeout, cluster = given["timeout"], given["cluster"]
    allowed = {"backend": "'nccl', 'gloo' or 'cuda:gloo'", "rules": "'nccl'", "cluster": "'ray'"}
    for key, words in allowed.items():
        if not isinstance(given[key], str | None):
            raise TypeError(
                f"{key} is of type {type(given[key]).__name__}, but launch takes {words} there: leave it out "
                "for none. If your function has a parameter of this name, give that one by position."
            )
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
    kinds = (inspect.isasyncgenfunction, inspect.iscoroutinefunction, inspect.isgeneratorfunction)
    if any(is_one(one) for is_one in kinds for one in (fn, type(fn).__call__)):
        raise TypeError(
            f"launch needs a function that returns its result, but {hints.name_of(fn)} is a generator or "
            "coroutine function: call it in an ordinary function, with list(…) or asyncio.run(…)."
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
    if given["rules"] and (cluster or existing.found()):
        raise ValueError(
            f"rules={given['rules']!r} is for ranks that launch starts itself, but others start these. "
            "Leave it out, or run the program with torchrun -m allranks.nccl."
        )
    _check_keywords(fn, args, kwargs, given)


def _check_keywords(fn, args, kwargs, given):
    """Refuse arguments that the function does not take; warn of one that it takes and `launch` has taken."""
    try:
        signature = inspect.signature(fn)
        outermost = inspect.signature(fn, follow_wrapped=False)  # a decorator may add or take arguments
    except (TypeError, ValueError):  # of a builtin: nobody knows
        return
    name = hints.name_of(fn)
    try:
        by_position = signature.bind_partial(*args).arguments
    except TypeError:  # which `bind` says below
        by_position = ()
    shared = [
        key
        for key, value in given.items()
        if key in signature.parameters and key not in by_position and value not in (None, SECONDS)
    ]
    taken = "".join(
        f"{key}={given[key]!r} went to launch, but {name} has a parameter of this name too: give that one by "
        f"position, or launch functools.partial({name}, {key}=…). "
        for key in shared
    )
    try:
        outermost.bind(*args, **kwargs)
    except TypeError as error:
        own = ", ".join(given)
        raise TypeError(f"{name}: {error}. {taken}What launch takes itself is {own}.") from None
    if taken:
        notebook.warn(taken)
