"""How long does a step take in a layout, and what does the time go into?

The model: matrix products run at a stated share of the peak; a message of n bytes takes α + βn seconds on the
link its axis is placed on; communication hides behind compute where `overlap` says that it can; every stage
is as slow as the slowest. The parts add up.
"""

import math
from collections import namedtuple

from .. import memory, topology, transformer
from ..inputs import one_of, quantity, whole
from ..interleaving import flushed_bubble
from ..memory.states import ZERO, recipe_of
from ..topology.tokens import expert_seconds, expert_traffic
from .layer import kernels
from .legal import illegal
from .overlap import data_seconds, hidden_pipeline, hidden_tensor
from .placement import MEGATRON_ORDER, paths, reached

FIELDS = "compute recomputation imbalance tensor context expert pipeline bubble data optimizer"
SENT = ("tensor", "context", "expert", "pipeline", "data")


class Parts(namedtuple("Parts", FIELDS)):
    """Seconds of a step. Their sum is `seconds`.

    compute: what the model needs, shared evenly by all devices. recomputation: what is computed twice.
    imbalance: what the slowest stage computes beyond the mean. tensor, context, expert: communication inside
    the layers. pipeline: sends between stages. bubble: waiting for the pipeline to fill and drain. data:
    gradients and weights. optimizer: reading and writing its states. Of all communication only what is
    *exposed* counts: what no compute hides.
    """

    @property
    def seconds(self):
        return sum(self)

    @property
    def exposed(self):
        """Seconds of communication that the step waits for."""
        return sum(getattr(self, name) for name in SENT)

    @property
    def limit(self):
        """The name of the largest part."""
        return self.largest()[0]

    def largest(self):
        """The names of the parts that are not 0, the largest first."""
        named = [(seconds, name) for seconds, name in zip(self, FIELDS.split()) if seconds > 0]
        return [name for _, name in sorted(named, key=lambda pair: -pair[0])]


class Communication(namedtuple("Communication", SENT)):
    """Seconds in which a rank communicates in a step, hidden or exposed; the names are those of `Parts`."""

    @property
    def seconds(self):
        return sum(self)


Work = namedtuple("Work", "compute repeated slowest forward piece")
"""FLOPs or seconds of a micro-batch on a stage. compute: what the model needs, and repeated: what is computed
twice, both as a mean over the stages. slowest: of the stage with the most of both; forward: of its first
forward. piece: of the piece with the most layers."""


def once(known, key, function, *inputs):
    """function(*inputs), from the dict `known` if it is there under `key`; without a dict, computed."""
    if known is None:
        return function(*inputs)
    if key not in known:
        known[key] = function(*inputs)
    return known[key]


def parts(model, layout, accelerator, **options):
    """The `Parts` of a step of `model` in `layout`, in seconds; the options are those of `priced`."""
    return priced(model, layout, accelerator, **options)[0]


def priced(
    model, layout, accelerator, *, inside, between, devices_per_node=8, efficiency=0.6, overlap=1.0,
    attended=1.0, dtype="bf16", recipe=ZERO, sequence_parallel=True, order=MEGATRON_ORDER, rates=None,
    scattered=False, balanced=False, dropout=True, fused=False, known=None,
):  # fmt: skip
    """The `Parts` of a step of `model` in `layout` and all its `Communication`, in seconds.

    compute: 3 times the forward FLOPs at `efficiency` · peak or, with `rates` (`plan.rates`), the `kernels`
    of each layer; then `efficiency` does nothing, and collectives and the slowest device are as `rates` says.
    dropout, fused: as in `memory.training_bytes`, for `rates` alone. attended: the share of a sequence's s²
    pairs that attention computes on the busiest rank, 1 if no mask is skipped (`attention.attended`). tensor,
    context: `topology.traffic`. expert: an all-to-all to the experts and one back, in forward and in
    backward, the same; full recomputation repeats the forward's half. pipeline: `topology.traffic`, a t-th of
    it if the sequence is split, or if it is `scattered`: then the tensor-parallel ranks gather what they got
    (Narayanan et al. 2021, section 4.1). bubble: `flushed_bubble`, as of 1F1B or, with chunks, interleaved
    1F1B, for pieces of the most layers, with their communication: exact where pieces are equal. data:
    `memory.zero_windows`. optimizer: its states read and written, gradients read and weights written, at the
    memory's bandwidth; and, if `rates.added`, the gradients of each micro-batch read and added to their sum.
    balanced: whether the last stage has fewer layers because it has the logits too, so that no stage is
    slower than it must be; memory is still counted for even stages.
    overlap: the share of compute beside which communication runs, where it can (`plan.overlap`); with 0 all
    is exposed. inside, between: the links in a node of `devices_per_node` and between nodes. order: see
    `mesh_of`. known: a dict that keeps what layouts have in common, for calls with the same model and
    options.
    """
    quantity("efficiency", efficiency, positive=True), quantity("overlap", overlap)
    quantity("attended", attended)
    if max(efficiency, overlap, attended) > 1:
        listed = f"{efficiency}, {overlap} and {attended}"
        raise ValueError(f"efficiency, overlap and attended must be at most 1, not {listed}")
    one_of(f"dtype on {accelerator.name}", dtype, sorted(accelerator.peak))
    whole("devices_per_node", devices_per_node)
    why = illegal(model, layout, sequence_parallel)
    if why:
        raise ValueError(why)
    recipe = recipe_of(recipe)
    tp, cp, pp, dp, ep, stage, b, m, recomputation, v = layout
    mesh = (tp, cp, pp, dp, ep, v)

    inside, between = reached(rates, inside, between)
    links = (order, devices_per_node, inside, between)
    ways = once(known, ("ways", mesh), paths, layout, *links, rates)
    if rates is None:
        speed = accelerator.peak[dtype] * efficiency * tp * cp
        flops = once(
            known, ("work", pp, v, b, recomputation), flops_of_stages, model, layout, attended, balanced
        )
        work = Work(*[each / speed for each in flops])
    else:
        how = (dtype, attended, sequence_parallel, dropout, fused)
        took = once(known, ("kernels", tp, cp, ep, b), kernels, model, layout, accelerator, rates, *how)
        key = ("seconds", tp, cp, pp, ep, v, b, recomputation)
        work = once(known, key, seconds_of_stages, model, layout, took, balanced)
        speed = transformer.layer_flops(model, b) / took.forward

    inputs = (model, layout, ways, sequence_parallel, scattered, inside, between)
    sent = once(known, ("sent", mesh, b, m, recomputation == "full"), layer_communication, *inputs)
    loads = once(known, ("parameters", tp, pp, ep, v), most_parameters, model, layout)
    data, hidden = data_seconds(
        model, layout, loads, ways, recipe, work.forward, work.slowest - work.forward, overlap,
        None if rates is None else rates.bucket,
    )  # fmt: skip
    total = Communication(*sent, data)
    tensor = total.tensor - hidden_tensor(model, layout, total.tensor, sequence_parallel, speed, overlap)
    context, slack, added = total.context, 0, 0
    if rates is not None:
        tensor, context = (1 - rates.chunked) * tensor, (1 - rates.chunked) * context
        hidden *= 1 - rates.contention
        slack = rates.slack * math.log2(layout.devices)
        if rates.added and stage < 3 and m > 1:
            added = m * (recipe.weights + 2 * recipe.gradients) * sum(loads)
    pipeline = total.pipeline - hidden_pipeline(layout, total.pipeline, m * work.slowest, overlap)

    inside_layers = tensor + context + total.expert
    waiting = v * work.piece + (inside_layers + total.pipeline) / m
    bubble = flushed_bubble(pp, m, waiting, v)
    touched = recipe.gradients + recipe.weights + 2 * recipe.optimizer
    replicas = cp * dp if stage >= 1 else 1
    mine = loads[0] / replicas + loads[1] / max(1, replicas // ep)
    took = Parts(
        m * work.compute, m * work.repeated,
        max(0.0, m * (work.slowest - work.compute - work.repeated)) + slack * m * work.slowest,
        tensor, context, total.expert, pipeline, bubble, data - hidden,
        (touched * mine + added) / accelerator.bandwidth,
    )  # fmt: skip
    return took, total


def flops_of_stages(model, layout, attended=1.0, balanced=False):
    """The `Work` of a micro-batch of `layout` in FLOPs, of whose pairs of tokens attention has `attended`."""
    b = layout.microbatch
    core = attended * transformer.attention_core_flops(model, b)
    layer = transformer.layer_flops(model, b) - transformer.attention_core_flops(model, b) + core
    logits = transformer.logits_flops(model, b)
    return work_of_stages(model, layout, (layer, 2 * layer), core, (logits, 2 * logits), balanced)


def seconds_of_stages(model, layout, took, balanced=False):
    """The `Work` of a micro-batch of `layout` in seconds, of whose layers the `Kernels` are `took`."""
    logits = (took.logits, took.logits_backward)
    return work_of_stages(model, layout, (took.forward, took.backward), took.core, logits, balanced)


def work_of_stages(model, layout, layer, core, logits, balanced=False):
    """The `Work` of `layout`, of what a layer and the logits take, as (forward, backward), and the core.

    The slowest stage has the most layers, or is the last, which has the output layer too.
    """
    layers = memory.stage_layers(model.layers, layout.pp, layout.chunks)
    pieces = memory.pieces(model.layers, layout.pp, layout.chunks)
    again = {"none": 0, "selective": core, "full": layer[0]}[layout.recomputation]

    def passes(count, ends):
        return count * (sum(layer) + again) + ends * sum(logits)

    splits = [(max(layers), layers[-1])]
    if balanced and layout.pp > 1 and layout.chunks == 1:
        splits = [(-(-(model.layers - last) // (layout.pp - 1)), last) for last in range(layers[-1] + 1)]
    slowest, count, ends = min(
        max((passes(others, 0), others, 0), (passes(last, 1), last, 1)) for others, last in splits
    )
    return Work(
        (model.layers * sum(layer) + sum(logits)) / layout.pp,
        model.layers * again / layout.pp,
        slowest,
        count * layer[0] + ends * logits[0],
        slowest if balanced and layout.chunks == 1 else passes(max(pieces), 0),
    )


def layer_communication(model, layout, ways, sequence_parallel, scattered, inside, between):
    """Seconds that a rank communicates in a step along tp, cp, ep and pp."""
    sizes = {"tp": layout.tp, "cp": layout.cp, "pp": layout.pp, "dp": layout.dp}
    split = sequence_parallel or scattered
    amounts = (layout.microbatches, layout.microbatch, layout.chunks)
    took = {"tp": 0.0, "cp": 0.0, "pp": 0.0}
    for each in topology.traffic(
        model, sizes, *amounts, sharded_boundary=split, sequence_parallel=sequence_parallel,
        recomputation=layout.recomputation,
    ):  # fmt: skip
        if each.axis != "dp" and each.size > 1:
            way = ways[each.axis]
            bandwidth = way.hop if each.axis == "pp" else way.bandwidth
            took[each.axis] = each.steps * way.α + each.calls * way.call + each.sent / bandwidth
            if each.axis == "pp" and scattered and not sequence_parallel and layout.tp > 1:
                near, others = ways["tp"], layout.tp - 1
                took["pp"] += each.calls * (others * near.α + near.call) + others * each.sent / near.bandwidth
    sizes = {"tp": layout.tp if sequence_parallel else 1, "cp": layout.cp, "pp": layout.pp}
    tokens = expert_traffic(model, sizes, layout.ep, layout.microbatches, layout.microbatch)
    again = 1.5 if layout.recomputation == "full" else 1
    expert = again * expert_seconds(tokens, ways["ep"].members, inside, between)
    return took["tp"], took["cp"], expert, took["pp"]


def most_parameters(model, layout):
    """Parameters on a rank of the stage with the most, as (those outside the experts, those of experts)."""
    stages = sorted({0, min(1, layout.pp - 1), layout.pp - 1})
    where = (model, layout.tp, layout.pp, layout.ep)
    return max((memory.rank_parameters(*where, stage, layout.chunks) for stage in stages), key=sum)
