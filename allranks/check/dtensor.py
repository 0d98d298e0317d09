"""The exercise of the chapter DTensor."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Placement, distribute_tensor

from allranks import launch
from allranks.check import exercise
from allranks.check.stubs import is_filled
from allranks.model import rank_device
from allranks.trace import trace

SECONDS, RANKS = 20.0, 4
SHAPES = {"x": (8, 12), "up": (12, 16), "down": (16, 12)}


def _run(placed):
    """What a rank sends in two products, its share of the matrices, and whether the result is right."""
    torch.manual_seed(0)
    device = rank_device()
    mesh = init_device_mesh(device, (RANKS,))
    whole = [torch.randn(shape, device=device) for shape in SHAPES.values()]
    x, up, down = (distribute_tensor(t, mesh, [how]) for t, how in zip(whole, placed, strict=True))
    with trace() as counted:
        y = F.gelu(x @ up) @ down
    x0, up0, down0 = whole
    right = torch.allclose(y.full_tensor(), F.gelu(x0 @ up0) @ down0, rtol=1e-4, atol=1e-4)
    held = [t.to_local().numel() / t.numel() for t in (up, down)]
    dist.barrier()
    return list(counted.calls), held, right


@exercise
def placed(answer):
    """`answer`: placements of x, up and down: no collective, and a quarter of each matrix on a rank."""
    is_filled(answer, "three placements")
    assert isinstance(answer, tuple | list) and len(answer) == 3, (
        "Give three placements: of x, of up and of down."
    )
    for name, each in zip(SHAPES, answer, strict=True):
        is_filled(each, "a placement")
        assert isinstance(each, Placement), (
            f"{name} has {each!r}; expected a placement, for example Shard(0)."
        )
        assert not each.is_partial(), (
            f"{name} is an input, so it cannot be a pending sum: shard or replicate it."
        )
        assert not each.is_shard() or each.dim in (0, 1), f"{name} has no dim {each.dim}, only 0 and 1."
    calls, held, right = launch(_run, answer, world_size=RANKS, timeout=SECONDS)[0]
    for name, share in zip(("up", "down"), held, strict=True):
        assert share == 1 / RANKS, f"A rank holds {share:g} of {name}; it should hold {1 / RANKS:g}."
    assert not calls, (
        f"A rank holds a quarter of each matrix, but the products need communication: {', '.join(calls)}. "
        "Which dim of up is also a dim of the intermediate result and of down?"
    )
    assert right, "There is no collective, but the result differs from one process's."
    return "No collective: each rank holds a quarter of each matrix, and a pending sum remains at the end."
