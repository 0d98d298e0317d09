"""Which link does each axis of a mesh use, and what does that cost in a step?

The model: ranks are numbered through node after node, rack after rack, pod after pod, and the first axis of
the mesh varies fastest. A ring passes its members in the order of their ranks, so it leaves each block
once; the library opens as many such rings as the group has ranks in the block, so that all their links
share the load (NCCL does). A block's links are shared by all the groups that leave it at once. Nothing
overlaps: seconds along axes add up.
"""

from collections import namedtuple

from ..inputs import quantity, whole
from .volumes import traffic


class Level(namedtuple("Level", "name ranks α bandwidth oversubscription")):
    """A level of the network, the innermost a node: blocks of `ranks` ranks.

    The ranks of a block are joined by one kind of link. α: seconds a message takes at least. bandwidth:
    bytes/s that one rank sends over this level. oversubscription: how many times less a block of the level
    below sends over this one than all its ranks could (1: as much).
    """

    __slots__ = ()


class Axis(namedtuple("Axis", "axis size level groups on_rail sent bandwidth seconds")):
    """Where the groups of an axis are, and what a step costs there.

    level: the outermost level that a group extends over, None for an axis of size 1. groups: (level, how
    many groups extend over it and no further), for every level. on_rail: whether neighbours in a group have
    the same place in their nodes. sent: bytes a rank sends in a step. bandwidth: bytes/s at which the
    slowest group sends. seconds: of a step.
    """

    __slots__ = ()


def _checked(levels):
    if not isinstance(levels, (tuple, list)) or not all(isinstance(each, Level) for each in levels):
        raise ValueError(f"the levels must be a list of Level, not {levels!r}")
    inner = 1
    for level in levels:
        whole(f"the ranks of level {level.name}", level.ranks, inner)
        if level.ranks % inner:
            raise ValueError(f"a {level.name} must hold a multiple of {inner} ranks, not {level.ranks}")
        quantity(f"α of level {level.name}", level.α)
        quantity(f"the bandwidth of level {level.name}", level.bandwidth, positive=True)
        if quantity(f"the oversubscription of level {level.name}", level.oversubscription) < 1:
            raise ValueError(
                f"the oversubscription of level {level.name} must be at least 1, not {level.oversubscription}"
            )
        inner = level.ranks
    if not levels:
        raise ValueError("levels must hold at least one Level, not none")
    return levels


def _world_size(mesh):
    pairs = isinstance(mesh, (tuple, list)) and all(isinstance(each, (tuple, list)) for each in mesh)
    if not pairs or any(len(each) != 2 for each in mesh):
        raise ValueError(f"the mesh must be a list of pairs (axis, size), not {mesh!r}")
    world_size = 1
    for i, (axis, size) in enumerate(mesh):
        world_size *= whole(f"the size of {axis}", size)
        if axis in [other for other, _ in mesh[:i]]:
            raise ValueError(f"the axes of the mesh must have different names, and {axis!r} is there twice")
    return world_size


def coordinates(rank, mesh):
    """Where `rank` is along each axis of `mesh`, a sequence of (axis, size), fastest axis first.

    With (("tp", 2), ("cp", 2), ("pp", 2), ("dp", 2)), ranks 0 and 1 differ in tp, 0 and 8 in dp
    (Grattafiori et al. 2024, figure 5).
    """
    whole("rank", rank, 0, _world_size(mesh) - 1)
    place = []
    for _, size in mesh:
        place.append(rank % size)
        rank //= size
    return tuple(place)


def groups(mesh, axes):
    """The groups along `axes`, a name or several: tuples of the ranks that differ along these axes alone."""
    axes = (axes,) if isinstance(axes, str) else tuple(axes)
    world_size, names = _world_size(mesh), [axis for axis, _ in mesh]
    for axis in axes:
        if axis not in names:
            raise ValueError(
                f"the axis must be one of {', '.join(repr(name) for name in names)}, not {axis!r}"
            )
    stride, along, others = 1, [0], [0]
    for axis, size in mesh:
        if axis in axes:
            along = [start + i * stride for i in range(size) for start in along]
        else:
            others = [start + i * stride for i in range(size) for start in others]
        stride *= size
    assert len(along) * len(others) == world_size
    return [tuple(start + step for step in along) for start in others]


def spans(group, levels):
    """Index of the innermost of `levels` of which one block holds all ranks of `group`."""
    low, high = min(group), max(group)
    for i, level in enumerate(levels):
        if low // level.ranks == high // level.ranks:
            return i
    raise ValueError(f"rank {high} must be below {levels[-1].ranks}, the ranks of the {levels[-1].name}")


def ring_bandwidth(all_groups, levels):
    """Bytes/s at which each rank of the slowest group sends, when rings run in all these groups at once.

    A ring leaves each block of each level that it extends over once. Its part of the block's links: as many
    as it has ranks there, and no more than the block's links, reduced by the oversubscription, divided by
    the rings that leave.
    """
    slowest = None
    if any(_shares_a_block(group, levels[0].ranks) for group in all_groups):
        slowest = levels[0].bandwidth
    for below, level in _pairs(levels):
        leaving, fewest = {}, below.ranks
        for group in all_groups:
            if group[0] // below.ranks == group[-1] // below.ranks:
                continue
            members = {}
            for rank in group:
                block = rank // below.ranks
                members[block] = members.get(block, 0) + 1
            fewest = min(fewest, min(members.values()))
            for block in members:
                leaving[block] = leaving.get(block, 0) + 1
        if leaving:
            shared = below.ranks / level.oversubscription / max(leaving.values())
            here = min(fewest, shared) * level.bandwidth
            slowest = here if slowest is None else min(slowest, here)
    return slowest


def _pairs(sequence):
    """Each element with the next one (MicroPython has no `itertools.pairwise`)."""
    return [(sequence[i], sequence[i + 1]) for i in range(len(sequence) - 1)]


def _shares_a_block(group, ranks):
    return any(one // ranks == other // ranks for one, other in _pairs(group))


def _pipe_bandwidth(all_groups, levels, wraps):
    """Bytes/s at which ranks send to the next of their group, at once; last to first too if it `wraps`."""
    pairs = [pair for group in all_groups for pair in _pairs(group + (group[:1] if wraps else ()))]
    slowest = None
    if any(one // levels[0].ranks == other // levels[0].ranks for one, other in pairs):
        slowest = levels[0].bandwidth
    for below, level in _pairs(levels):
        leaving = {}
        for one, other in pairs:
            if one // below.ranks != other // below.ranks:
                leaving[one // below.ranks] = leaving.get(one // below.ranks, 0) + 1
        if leaving:
            here = min(1, below.ranks / level.oversubscription / max(leaving.values())) * level.bandwidth
            slowest = here if slowest is None else min(slowest, here)
    return slowest


def place(mesh, levels, model, microbatches, **options):
    """Place `mesh` on `levels`: an `Axis` for each of its axes, in their order.

    mesh: a sequence of (axis, size), the axis that varies fastest first. Each axis costs steps · α +
    sent/bandwidth seconds a step, with α of the outermost level that its groups extend over. What is sent
    is `traffic(model, …)`; `options` go there. The group of dp extends over cp too.
    """
    _checked(levels)
    world_size = _world_size(mesh)
    whole("the product of the mesh's sizes", world_size, 1, levels[-1].ranks)
    sent_along = {each.axis: each for each in traffic(model, dict(mesh), microbatches, **options)}
    node = levels[0].ranks
    placed = []
    for axis, size in mesh:
        each = sent_along[axis]
        mine = groups(mesh, [name for name, _ in mesh if name in each.over])
        if each.size == 1:
            placed.append(Axis(axis, size, None, (), True, 0, None, 0.0))
            continue
        reach = [spans(group, levels) for group in mine]
        counts = tuple((level.name, reach.count(i)) for i, level in enumerate(levels))
        outermost = levels[max(reach)]
        if axis == "pp":
            bandwidth = _pipe_bandwidth(mine, levels, options.get("chunks", 1) > 1)
        else:
            bandwidth = ring_bandwidth(mine, levels)
        on_rail = all(rank % node == group[0] % node for group in mine for rank in group)
        seconds = each.steps * outermost.α + each.sent / bandwidth
        placed.append(Axis(axis, size, outermost.name, counts, on_rail, each.sent, bandwidth, seconds))
    return tuple(placed)


def layout_seconds(mesh, levels, model, microbatches, **options):
    """Seconds of communication in a step of `place`d axes, one after the other."""
    return sum(axis.seconds for axis in place(mesh, levels, model, microbatches, **options))
