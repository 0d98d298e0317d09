"""What do tokens on their way to experts send, and for how long? The all-to-alls of a mixture in a step.

The model: every token goes to `active_experts` of the experts, which are spread evenly over the ranks of a
group and chosen evenly; pairwise all-to-alls; layers spread over the stages as evenly as they go. With tensor
parallelism the sequence is split too, so that a token is handed over once.
"""

from ..collectives import all_to_all_bytes
from ..inputs import multiple, whole
from .volumes import Traffic


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
