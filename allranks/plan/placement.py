"""Which links do the groups of an axis use, if ranks fill node after node? In closed form, for any size.

The model of `topology.place` on two levels, nodes and a network that is nowhere oversubscribed.
"""

from collections import namedtuple

MEGATRON_ORDER = ("tp", "cp", "dp", "pp")
LLAMA_ORDER = ("tp", "cp", "pp", "dp")


class Path(namedtuple("Path", "size members α bandwidth hop call")):
    """What a group of `size` ranks has, of which `members` are in one node.

    α: seconds a message takes at least. bandwidth: bytes/s that each rank sends in a ring. hop: bytes/s from
    each to the next, as in a pipeline. call: seconds that starting a collective takes.
    """


class Reached(namedtuple("Reached", "α bandwidth")):
    """A link as collectives use it."""


def reached(rates, inside, between):
    """The two links at the shares of their bandwidth that `rates` have: as they are, if `rates` is None."""
    if rates is None:
        return inside, between
    near, far = rates.wire
    return Reached(inside.α, near * inside.bandwidth), Reached(rates.hop * between.α, far * between.bandwidth)


def mesh_of(layout, order=MEGATRON_ORDER):
    """The axes of `layout` from the fastest to the slowest, as (name, size): a tuple.

    order: of tp, cp, dp, pp; that of Megatron-LM, or that of Llama 3 (Grattafiori et al. 2024, section
    3.3.2). Experts are spread over the first ranks of cp, and, if they are not enough, of dp: "ep cp" and
    "ep dp" are the parts of cp and dp that they extend over.
    """
    if sorted(order) != sorted(MEGATRON_ORDER):
        raise ValueError(f"order must have each of {', '.join(MEGATRON_ORDER)} once, not {order!r}")
    near = min(layout.ep, layout.cp)
    far = layout.ep // near
    sizes = {
        "tp": (("tp", layout.tp),),
        "cp": (("ep cp", near), ("cp", layout.cp // near)),
        "dp": (("ep dp", far), ("dp", layout.dp // far)),
        "pp": (("pp", layout.pp),),
    }
    return tuple(axis for name in order for axis in sizes[name])


def beside(mesh, axis, devices):
    """Which of the first `devices` devices are in device 0's group along `axis` of `mesh`: a list, with 0."""
    stride = 1
    for name, size in mesh:
        if name == axis:
            return [rank for rank in range(0, size * stride, stride) if rank < devices]
        stride *= size
    raise ValueError(f"axis must be one of {', '.join([name for name, _ in mesh])}, not {axis!r}")


def path(mesh, axes, devices_per_node, inside, between):
    """The `Path` of the groups along `axes`, names of `mesh`.

    inside, between: records with α and bandwidth, as in `hardware.LINKS`. A ring leaves a node once, and
    there are as many rings as the group has members in the node, so that a rank sends members ×
    between.bandwidth, and at most inside.bandwidth. Where the mesh does not line up with the nodes, one
    member a node is assumed, the slowest case.
    """
    stride = size = members = 1
    aligned = True
    for axis, count in mesh:
        if axis in axes:
            size *= count
            members *= min(count, max(1, devices_per_node // stride))
        stride *= count
        aligned = aligned and (stride % devices_per_node == 0 or devices_per_node % stride == 0)
    if stride <= devices_per_node:
        members = size
    elif not aligned:
        members = 1
    if members == size:
        return Path(size, members, inside.α, inside.bandwidth, inside.bandwidth, 0.0)
    if members == 1:
        return Path(size, members, between.α, between.bandwidth, between.bandwidth, 0.0)
    ring, hop = (min(inside.bandwidth, rings * between.bandwidth) for rings in (members, 1))
    return Path(size, members, between.α, ring, hop, 0.0)


GROUPS = {  # which axes of `mesh_of` a group extends over
    "tp": ("tp",),
    "cp": ("ep cp", "cp"),
    "pp": ("pp",),
    "dp": ("ep cp", "cp", "ep dp", "dp"),
    "ep": ("ep cp", "ep dp"),
    "expert dp": ("cp", "dp"),
}


def paths(layout, order, devices_per_node, inside, between, rates=None):
    """A dict from "tp", "cp", "pp", "ep" to their `Path`; "dp": over which weights are shared, cp included.

    "expert dp": over which the weights of experts are. Without `rates` every hop of a ring that leaves its
    node takes the network's α; with them only those between nodes do, and starting a collective takes a time.
    """
    mesh = mesh_of(layout, order)
    ways = {name: path(mesh, axes, devices_per_node, inside, between) for name, axes in GROUPS.items()}
    return ways if rates is None else {name: _in_hops(ways[name], inside, rates) for name in ways}


def _in_hops(way, inside, rates):
    size, members, α, bandwidth, hop, _ = way
    between = 0.0 if members == size else 1 / members
    return Path(size, members, between * α + (1 - between) * inside.α, bandwidth, hop, rates.call)
