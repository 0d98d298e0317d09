"""Who talks to whom on a mesh of eight ranks, by the members of each group."""

import torch.distributed as dist

from allranks.check import exercise
from allranks.check.lab_07.common import agreed, must, on_ranks
from allranks.check.labs import hidden, is_written

AXES = "pp", "dp", "tp"
HIDDEN = (
    (4, 2, 1),
    (1, 4, 2),
    (2, 1, 4),
    (8, 1, 1),
    (1, 8, 1),
    (1, 1, 8),
    (2, 4, 1),
)  # one for each submission


def members(rank, sizes):
    """The ranks along each axis through `rank`; the last axis is the innermost."""
    found, stride = {}, 1
    for name, size in reversed(list(zip(AXES, sizes, strict=True))):
        place = rank // stride % size
        found[name] = [rank + (n - place) * stride for n in range(size)]
        stride *= size
    return found


def must_be_groups(groups, sizes):
    """Refuse groups with other members than those of the mesh."""
    must(isinstance(groups, dict), f"groups_of returns {type(groups).__name__}; expected a dict.")
    for name, expected in members(dist.get_rank(), sizes).items():
        must(name in groups, f"groups_of has no {name!r}; expected a group of ranks {expected}.")
        must(
            isinstance(groups[name], dist.ProcessGroup),
            f"{name!r} is {type(groups[name]).__name__}; expected a process group of ranks {expected}.",
        )
        found = dist.get_process_group_ranks(groups[name])
        must(
            found == expected,
            f"on a mesh of {'×'.join(map(str, sizes))}, {name!r} has ranks {found}; expected {expected}.",
        )


def _judge(groups_of):
    for sizes in ((2, 2, 2), (4, 1, 2), (1, 2, 4), *hidden(lambda draw: [draw.choice(HIDDEN)])):
        with agreed():
            must_be_groups(groups_of(*sizes), sizes)


@exercise
def groups(groups_of):
    """`groups_of(pp, dp, tp)` on eight ranks, in three shapes."""
    is_written(groups_of)
    on_ranks(_judge, groups_of, world_size=8)
    return "Every rank knows its groups, along each axis of three meshes."
