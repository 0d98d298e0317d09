"""Which backend, and which device for each rank? One NCCL rank per GPU when there are enough, else gloo.

The plan is made before any process starts, so an impossible request costs nothing. NCCL 2.30 and later lets
ranks share a GPU where `NCCL_MULTI_RANK_GPU_ENABLE=1` is in the environment: then a GPU is enough for all.
"""

import operator
import os
from collections import namedtuple

MAX_WORLD_SIZE = 64
SHARE = "NCCL_MULTI_RANK_GPU_ENABLE"  # NCCL's own name

Plan = namedtuple("Plan", "world_size backend devices rules", defaults=(None,))
Plan.__doc__ = """What the ranks of a world will be.

`backend` is what `init_process_group` receives; `devices[rank]` is a CUDA index, or None for the CPU.
`rules` is 'nccl' where gloo's ranks are held to NCCL's rules, else None.
"""


def make_plan(world_size, backend, rules=None):
    """Return the `Plan` for `world_size` ranks, or raise an error that says what is possible."""
    world_size = _whole_number(world_size)
    if rules not in (None, "nccl"):
        raise ValueError(
            f"rules={rules!r} is not 'nccl' (gloo's ranks are held to NCCL's rules). Leave it out for none."
        )
    if rules and backend not in (None, "gloo"):
        raise ValueError(
            f"rules='nccl' is for ranks on the CPU, under gloo, but backend={backend!r} was requested: NCCL "
            "enforces its own rules. Leave one of the two out."
        )
    if rules:
        return Plan(world_size, "gloo", (None,) * world_size, rules)
    if backend not in (None, "gloo", "nccl", "cuda:gloo"):
        raise ValueError(
            f"backend={backend!r} is not one of 'nccl' (a GPU per rank), 'gloo' (ranks on the CPU), "
            "'cuda:gloo' (ranks share the GPUs). Leave it out to get the right one for this machine."
        )
    if backend == "gloo":
        return Plan(world_size, "gloo", (None,) * world_size)
    gpus = _count_gpus()
    devices = tuple(rank % gpus for rank in range(world_size)) if gpus else ()
    if backend == "cuda:gloo":
        if gpus == 0:
            raise ValueError(
                "backend='cuda:gloo' puts ranks on GPUs, and there is none here. Use backend='gloo'."
            )
        return Plan(world_size, "cpu:gloo,cuda:gloo", devices)
    if gpus >= world_size or (gpus and os.environ.get(SHARE) == "1"):
        return Plan(world_size, "cpu:gloo,cuda:nccl", devices)
    if backend == "nccl":
        shared = f", or let ranks share a GPU: backend='cuda:gloo', or NCCL 2.30 or later with {SHARE}=1."
        raise ValueError(
            f"backend='nccl' needs one GPU per rank: {world_size} ranks were requested and "
            f"{'1 GPU is' if gpus == 1 else f'{gpus} GPUs are'} here (NCCL refuses two ranks on one GPU). "
            f"Ask for fewer ranks, or use backend='gloo' for ranks on the CPU{shared if gpus else '.'}"
        )
    return Plan(world_size, "gloo", (None,) * world_size)


def _whole_number(world_size):
    try:
        number = operator.index(world_size)
    except TypeError:
        raise TypeError(f"world_size={world_size!r} is not a whole number of ranks.") from None
    if not 1 <= number <= MAX_WORLD_SIZE:
        raise ValueError(
            f"world_size={number}: a world has 1 to {MAX_WORLD_SIZE} ranks here. Every rank is a process on "
            "this one machine, connected to every other; a larger world needs several machines and torchrun."
        )
    return number


def _count_gpus():
    import torch

    return torch.cuda.device_count() if torch.distributed.is_nccl_available() else 0
