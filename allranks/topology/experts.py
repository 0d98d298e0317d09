"""Over which links do the tokens and the gradients of experts travel? The model is that of `tokens`."""

from ..inputs import multiple, whole
from ..transformer import expert_parameters, parameters
from .placement import Axis, groups, ring_bandwidth, spans
from .tokens import expert_seconds, expert_traffic
from .volumes import traffic


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
