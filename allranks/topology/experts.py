"""What does a rank send to its experts in a step, and over which links?

The model: every token goes to `active_experts` of the experts, which are spread evenly over the ranks of a
group and chosen evenly; pairwise all-to-alls; layers spread over the stages as evenly as they go. With tensor
parallelism the sequence is split too, so that a token is handed over once.
"""

from ..collectives import all_to_all_bytes
from ..inputs import multiple, whole
from ..transformer import expert_parameters, parameters
from .placement import Axis, groups, ring_bandwidth, spans
from .volumes import Traffic, traffic


def expert_traffic(model, sizes, expert_parallel, microbatches, microbatch=1, element_bytes=2):
    """The `Traffic` of a rank along ep in one step: 4 all-to-alls a layer and micro-batch.

    To the experts and back (Lepikhin et al. 2021), forward and backward. Each hands out k·b·s·h/(c·t)
    elements, k the active experts. sizes: a dict with tp (t), cp (c) and pp, 1 if they are not there.
    expert_parallel: ranks in a group, which together have all experts.
    """
    t, c, p = (whole(f"the size of {axis}", sizes.get(axis, 1)) for axis in ("tp", "cp", "pp"))
    size = whole("expert_parallel", expert_parallel)
    multiple("experts", model.experts, "expert_parallel", size)
    tokens = whole("microbatch", microbatch) * model.sequence / (c * t)
    nbytes = model.active_experts * tokens * model.hidden * element_bytes
    calls = 4 * -(-model.layers // p) * whole("microbatches", microbatches) if size > 1 else 0
    sent = calls * all_to_all_bytes(nbytes, size)
    return Traffic("ep", ("ep",), size, "all_to_all", calls, calls * (size - 1), nbytes, sent)


def expert_seconds(traffic, members, inside, between):
    """Seconds of this `Traffic` in a group with `members` ranks in each node.

    inside, between: records with α and bandwidth; a rank sends on one of them at a time.
    """
    whole("members", members, 1, traffic.size)
    if traffic.size == 1:
        return 0.0
    link = inside if members == traffic.size else between
    near = (members - 1) / inside.bandwidth + (traffic.size - members) / between.bandwidth
    return traffic.steps * link.α + traffic.calls * near * traffic.nbytes / traffic.size


def shared_parameters(model):
    """Parameters outside the experts of a mixture, which dp and ep hold alike; all of a dense model."""
    return parameters(model) - (_in_experts(model) if model.experts > 1 else 0)


def expert_mesh(mesh, expert_parallel):
    """`mesh` with dp in two: ep, which varies faster, and what is left of dp."""
    size = dict(mesh).get("dp", 1)
    multiple("dp", size, "expert_parallel", whole("expert_parallel", expert_parallel))
    made = []
    for axis in mesh:
        parts = (("ep", expert_parallel), ("dp", size // expert_parallel)) if axis[0] == "dp" else (axis,)
        made += list(parts)
    return tuple(made)


def place_experts(mesh, levels, model, expert_parallel, microbatches, microbatch=1):
    """Place the experts on `levels`: an `Axis` for "ep", and one for "expert dp".

    mesh: as in `placement.place`, with dp; expert_parallel divides its size. Over "expert dp", the rest of
    dp and cp, the gradients of a rank's experts are reduced; over ep tokens travel (see `expert_traffic`).
    Nodes send to each other at the speed of the outermost level that a group extends over.
    """
    whole("experts", model.experts, 2)
    finer, sizes = expert_mesh(mesh, expert_parallel), dict(mesh)
    tokens = expert_traffic(model, sizes, expert_parallel, microbatches, microbatch)
    sizes["dp"] //= expert_parallel
    held = _in_experts(model) / expert_parallel
    reduced = traffic(model, sizes, microbatches, microbatch, parameters=held)[3]
    made = []
    for name, over, each in (("ep", ("ep",), tokens), ("expert dp", ("cp", "dp"), reduced)):
        if each.size == 1:
            made.append(Axis(name, 1, None, (), True, 0, None, 0.0))
            continue
        mine, node = groups(finer, [axis for axis, _ in finer if axis in over]), levels[0].ranks
        reach = [spans(group, levels) for group in mine]
        counts = tuple((level.name, reach.count(i)) for i, level in enumerate(levels))
        outermost, bandwidth = levels[max(reach)], ring_bandwidth(mine, levels)
        on_rail = all(rank % node == group[0] % node for group in mine for rank in group)
        seconds = each.steps * outermost.α + each.sent / bandwidth
        if name == "ep":
            members = min(sum(rank // node == group[0] // node for rank in group) for group in mine)
            seconds = expert_seconds(each, members, levels[0], outermost)
            bandwidth = each.sent / (seconds - each.steps * outermost.α)
        made.append(Axis(name, each.size, outermost.name, counts, on_rail, each.sent, bandwidth, seconds))
    return tuple(made)


def _in_experts(model):
    return model.layers * model.experts * expert_parameters(model)
