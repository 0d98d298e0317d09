"""The exercises of the chapter Three axes: data, tensor and pipeline."""

import math

import torch
import torch.distributed as dist

from allranks import launch, topology
from allranks.check import exercise
from allranks.check.stubs import is_returned
from allranks.parallel.combine import groups_of

SECONDS = 20.0
SIZES = {"dp": 2, "pp": 2, "tp": 2}
LIMIT = 1.0


@exercise
def build(answer):
    """`answer()` makes this rank's groups of a 2×2×2 mesh: "dp", "pp", "tp", and "replica" (pp and tp)."""

    def on_rank():
        groups = answer()
        dist.barrier()
        return groups and {name: dist.get_process_group_ranks(group) for name, group in groups.items()}

    mesh = tuple(reversed(SIZES.items()))
    wanted = {**{axis: axis for axis in SIZES}, "replica": ("pp", "tp")}
    for rank, groups in enumerate(launch(on_rank, world_size=8, timeout=SECONDS)):
        is_returned(groups)
        for name, axes in wanted.items():
            assert name in groups, f"Rank {rank} has no group {name!r}."
            right = next(list(group) for group in topology.groups(mesh, axes) if rank in group)
            assert sorted(groups[name]) == right, (
                f"Group {name!r} of rank {rank} has ranks {sorted(groups[name])}; expected {right}."
            )
    return "All eight ranks have four groups, with the right members."


def _pieces(groups):
    """A model's gradient, and what a rank of a 2×2×2 mesh with ZeRO-2 has of it, as (tensor, is_cut)."""
    place = {axis: dist.get_rank(group) for axis, group in groups.items()}
    generator = torch.Generator().manual_seed(0)
    whole, mine = [], []
    for stage in range(2):
        matrix, norm = torch.randn(8, 6, generator=generator), torch.randn(8, generator=generator)
        whole += [matrix, norm]
        if stage == place["pp"]:
            of_tp = matrix.chunk(2, dim=1)[place["tp"]]
            mine = [(of_tp.chunk(2)[place["dp"]].clone(), True), (norm.chunk(2)[place["dp"]].clone(), False)]
    return torch.cat([t.flatten() for t in whole]).norm(), whole, mine


def _right_parts(whole, groups, scale):
    """What `_pieces` gives of a gradient that one process has scaled."""
    place = {axis: dist.get_rank(group) for axis, group in groups.items()}
    matrix, norm = whole[2 * place["pp"] : 2 * place["pp"] + 2]
    of_tp = matrix.chunk(2, dim=1)[place["tp"]].chunk(2)[place["dp"]]
    return [scale * of_tp, scale * norm.chunk(2)[place["dp"]]]


@exercise
def clip(answer):
    """`answer(gradients, groups, limit)` clips (tensor, is_cut) pairs, cut by dp too; it returns the norm."""

    limits = (LIMIT, 100.0)

    def on_rank():
        groups, found = groups_of(SIZES), []
        for limit in limits:
            norm, whole, mine = _pieces(groups)
            got = answer(mine, groups, limit)
            right = _right_parts(whole, groups, min(1.0, limit / norm.item()))
            same = all(torch.allclose(a, b, rtol=1e-4) for (a, _), b in zip(mine, right, strict=True))
            found.append((None if got is None else float(got), norm.item(), same))
        dist.barrier()
        return found

    for rank, found in enumerate(launch(on_rank, world_size=8, timeout=SECONDS)):
        for limit, (got, norm, same) in zip(limits, found, strict=True):
            is_returned(got, "the norm")
            assert math.isclose(got, norm, rel_tol=1e-4), (
                f"Rank {rank} finds a norm of {got:.3f}; one process finds {norm:.3f}."
            )
            assert same, (
                f"The norm is right, but with a limit of {limit:g} rank {rank}'s gradients differ from "
                "one process's: scale them in place, by limit/norm if that is below 1."
            )
    return "Norm and gradients equal one process's on all eight ranks."
