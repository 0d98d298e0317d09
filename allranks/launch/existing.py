"""What if the ranks exist already? torchrun, Slurm or Kubernetes started them, and `launch` runs in each.

Such a process has RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT in its environment, and LOCAL_RANK and
LOCAL_WORLD_SIZE unless it is alone on its machine. Then `launch` starts nothing: it joins the world once,
calls the function, and hands every rank the results of all.
"""

import atexit
import io
import os
import sys
from datetime import timedelta

from allranks import private
from allranks.launch import notebook, packing, stacks
from allranks.launch.plan import make_plan
from allranks.launch.rank import seed

NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")

_joined = False  # the world, by `launch` and not by the program


def found():
    """True if this process is a rank that somebody else has started.

    A notebook's kernel is none: there, RANK and its fellows are left from an experiment.
    """
    return all(name in os.environ for name in NEEDED) and not notebook.is_kernel()


def run(fn, args, kwargs, *, world_size, timeout, backend):
    """Call the function on this rank, with copies and seeded; return the results of all ranks, on every one.

    An exception is the function's own, with a note that names the rank, and torchrun's report shows it unless
    it only echoes another rank's; ending the other ranks is the work of whoever started them. `timeout` is
    how long a collective may take.
    """
    import torch

    rank, existing = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if world_size not in (None, existing):
        raise ValueError(
            f"world_size={world_size} was requested, but this process is rank {rank} of {existing}: RANK and "
            "WORLD_SIZE in its environment say so, as torchrun sets them. Leave world_size out to use these "
            f"{existing} ranks; in a notebook, delete the two variables so that launch starts its own ranks."
        )
    _join(rank, timeout, backend)
    try:
        fn, args, kwargs = _copied(fn, args, kwargs)
        seed(rank, torch.manual_seed)
        return _shared(fn(*args, **kwargs), existing)
    except Exception as error:
        error.add_note(f"on rank {rank} of {existing}, which launch did not start")
        _report(error)
        raise


def _copied(*call):
    """The function and its arguments as a fresh process would get them: what it changes stays there."""
    file = io.BytesIO()
    packing.save_call(*call, file)
    file.seek(0)
    return packing.load(file)


def _report(error):
    """Tell torchrun, whose report names the rank that told it first; an echo is not to be that."""
    from torch.distributed.elastic.multiprocessing import errors

    if not stacks.Failure.of(error).echo:
        errors.get_error_handler().record_exception(error)


def _join(rank, timeout, backend):
    """Join the world as `launch` would set it up, unless the program has done so; keep to the deadline."""
    global _joined
    import torch
    import torch.distributed as dist

    if dist.is_initialized():
        if _joined:
            private.set_timeout(timedelta(seconds=timeout))
        return
    local, here = int(os.environ.get("LOCAL_RANK", 0)), int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    if not 0 <= local < here:
        raise ValueError(
            f"LOCAL_RANK is {local}, but LOCAL_WORLD_SIZE, the number of ranks on this machine, is {here} "
            "(1 if it is not set): set both as torchrun does, ranks from 0 on each machine."
        )
    plan = make_plan(here, backend)
    index = plan.devices[local]
    device = None if index is None else torch.device("cuda", index)
    if device:
        torch.cuda.set_device(device)
    dist.init_process_group(
        plan.backend,
        timeout=timedelta(seconds=timeout),
        device_id=device if "nccl" in plan.backend else None,
    )
    atexit.register(_leave)
    _joined = True


def _leave():
    """End the threads of the group, or C++ aborts this process; after a failure NCCL would wait for peers."""
    import torch.distributed as dist

    failed = hasattr(sys, "last_value")  # an exception that nobody caught
    if dist.is_initialized() and not (failed and "nccl" in dist.get_backend()):
        dist.destroy_process_group()


def _shared(result, existing):
    """The results of all ranks, in their order, tensors on the CPU."""
    import torch.distributed as dist

    packed = io.BytesIO()
    packing.save(result, packed)
    everybodys = [None] * existing
    dist.all_gather_object(everybodys, packed.getvalue())
    return [packing.load(io.BytesIO(each)) for each in everybodys]
