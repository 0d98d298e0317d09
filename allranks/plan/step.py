"""How long does a step take in a layout, and what does the time go into?

The model: matrix products run at a stated share of the peak; a message of n bytes takes α + βn seconds on the
link its axis is placed on; of the communication only that of data parallelism overlaps with compute; every
stage is as slow as the slowest. The parts add up.
"""

from collections import namedtuple

from .. import memory, schedules, topology, transformer
from ..inputs import quantity, whole
from ..memory.states import ZERO, recipe_of
from ..topology.experts import expert_seconds, expert_traffic
from .layouts import illegal
from .placement import MEGATRON_ORDER, paths

FIELDS = "compute recomputation imbalance tensor context expert pipeline bubble data optimizer"


class Parts(namedtuple("Parts", FIELDS)):
    """Seconds of a step. Their sum is `seconds`.

    compute: what the model needs, shared evenly by all devices. recomputation: what is computed twice.
    imbalance: what the slowest stage computes beyond the mean. tensor, context, expert: communication inside
    the layers. pipeline: sends between stages. bubble: waiting for the pipeline to fill and drain. data:
    gradients and weights, as far as no compute hides them. optimizer: reading and writing its states.
    """

    @property
    def seconds(self):
        return sum(self)

    @property
    def limit(self):
        """The name of the largest part."""
        return self.largest()[0]

    def largest(self):
        """The names of the parts that are not 0, the largest first."""
        named = [(seconds, name) for seconds, name in zip(self, FIELDS.split()) if seconds > 0]
        return [name for _, name in sorted(named, key=lambda pair: -pair[0])]


def once(known, key, function, *inputs):
    """function(*inputs), from the dict `known` if it is there under `key`; without a dict, computed."""
    if known is None:
        return function(*inputs)
    if key not in known:
        known[key] = function(*inputs)
    return known[key]


def parts(
    model, layout, accelerator, *, inside, between, devices_per_node=8, efficiency=0.6, overlap=1.0,
    dtype="bf16", recipe=ZERO, sequence_parallel=True, order=MEGATRON_ORDER, known=None,
):  # fmt: skip
    """The `Parts` of a step of `model` in `layout`, in seconds.

    compute: 3 times the forward FLOPs at `efficiency` · peak. tensor, context: `topology.traffic`; full
    recomputation repeats the forward's half of it. expert: an all-to-all to the experts and one back, in
    forward and in backward, the same. pipeline: `topology.traffic`, a t-th of it if the sequence is split.
    bubble: `schedules.bubble_seconds` of 1F1B or, with chunks, interleaved, for micro-batches with their
    communication. data: `memory.zero_sent_bytes`, less what hides behind `overlap` times the compute of one
    micro-batch (stage 1; stage 0 its backward) or of all (stages 2 and 3). optimizer: its states read and
    written, gradients read and weights written, at the memory's bandwidth.
    inside, between: the links in a node of `devices_per_node` and between nodes. order: see `mesh_of`. known:
    a dict that keeps what layouts have in common, for calls with the same model and options.
    """
    quantity("efficiency", efficiency, positive=True), quantity("overlap", overlap)
    if efficiency > 1 or overlap > 1:
        raise ValueError(f"efficiency and overlap must be at most 1, not {efficiency} and {overlap}")
    if dtype not in accelerator.peak:
        listed = ", ".join(repr(each) for each in sorted(accelerator.peak))
        raise ValueError(f"dtype on {accelerator.name} must be one of {listed}, not {dtype!r}")
    whole("devices_per_node", devices_per_node)
    why = illegal(model, layout, sequence_parallel)
    if why:
        raise ValueError(why)
    recipe = recipe_of(recipe)
    tp, cp, pp, dp, ep, stage, b, m, recomputation, v = layout
    mesh = (tp, cp, pp, dp, ep, v)

    links = (order, devices_per_node, inside, between)
    ways = once(known, ("ways", mesh), paths, layout, *links)
    speed = accelerator.peak[dtype] * efficiency * tp * cp
    work = once(known, ("work", pp, v, b, recomputation), flops_of_stages, model, layout)
    compute, twice, slowest = (flops / speed for flops in work)

    inputs = (model, layout, ways, sequence_parallel, inside, between)
    sent = once(known, ("sent", mesh, b, m), layer_communication, *inputs)
    again = 1.5 if recomputation == "full" else 1
    tensor, context, expert, pipeline = again * sent[0], again * sent[1], again * sent[2], sent[3]

    waiting = slowest + (tensor + context + expert + pipeline) / m
    name = "interleaved" if v > 1 else "one_f_one_b"
    bubble = schedules.bubble_seconds(name, pp, chunks=v, forward=waiting, input_grad=0, weight_grad=0)
    loads = once(known, ("parameters", tp, pp, ep, v), most_parameters, model, layout)
    reduced = once(known, ("data", mesh, m, stage), data_seconds, model, layout, loads, ways, recipe)
    hides = overlap * slowest * (m if stage >= 2 else 1 if stage == 1 else 2 / 3)
    touched = recipe.gradients + recipe.weights + 2 * recipe.optimizer
    replicas = cp * dp if stage >= 1 else 1
    mine = loads[0] / replicas + loads[1] / max(1, replicas // ep)
    return Parts(
        m * compute, m * twice, max(0.0, m * (slowest - compute - twice)), tensor, context, expert, pipeline,
        bubble, max(0.0, reduced - hides), touched * mine / accelerator.bandwidth,
    )  # fmt: skip


def flops_of_stages(model, layout):
    """FLOPs of a micro-batch on a stage: the model's, what is computed twice, and both on the slowest stage.

    The first two are means over the stages. The slowest has the most layers, or is the last, which has the
    output layer too.
    """
    pp, b = layout.pp, layout.microbatch
    layers = memory.stage_layers(model.layers, pp, layout.chunks)
    logits = transformer.logits_flops(model, b)
    repeated = transformer.recomputation_flops(model, b, layout.recomputation)
    a_layer = 3 * transformer.layer_flops(model, b) + repeated // model.layers
    slowest = max(max(layers) * a_layer, layers[-1] * a_layer + 3 * logits)
    return 3 * transformer.forward_flops(model, b) / pp, repeated / pp, slowest


def layer_communication(model, layout, ways, sequence_parallel, inside, between):
    """Seconds that a rank communicates in a step along tp, cp, ep and pp, without any recomputation."""
    sizes = {"tp": layout.tp, "cp": layout.cp, "pp": layout.pp, "dp": layout.dp}
    amounts = (layout.microbatches, layout.microbatch, layout.chunks)
    took = {"tp": 0.0, "cp": 0.0, "pp": 0.0}
    for each in topology.traffic(model, sizes, *amounts, sharded_boundary=sequence_parallel):
        if each.axis != "dp" and each.size > 1:
            way = ways[each.axis]
            took[each.axis] = each.steps * way.α + each.sent / (
                way.hop if each.axis == "pp" else way.bandwidth
            )
    sizes = {"tp": layout.tp if sequence_parallel else 1, "cp": layout.cp, "pp": layout.pp}
    tokens = expert_traffic(model, sizes, layout.ep, layout.microbatches, layout.microbatch)
    expert = expert_seconds(tokens, ways["ep"].members, inside, between)
    return took["tp"], took["cp"], expert, took["pp"]


def most_parameters(model, layout):
    """Parameters on a rank of the stage with the most, as (those outside the experts, those of experts)."""
    stages = sorted({0, min(1, layout.pp - 1), layout.pp - 1})
    where = (model, layout.tp, layout.pp, layout.ep)
    return max((memory.rank_parameters(*where, stage, layout.chunks) for stage in stages), key=sum)


def data_seconds(model, layout, parameters, ways, recipe):
    """Seconds in which a step reduces gradients and gathers weights, nothing hidden.

    parameters: of a rank, as `most_parameters` says. Stage 3 gathers layer by layer, the others all at once.
    """
    stage, m = layout.zero_stage, layout.microbatches
    calls = (2, 2, 1 + m, 3 * m * -(-model.layers // layout.pp))[stage]
    took = 0.0
    for mine, way in zip(parameters, (ways["dp"], ways["expert dp"])):
        if mine and way.size > 1:
            sent = memory.zero_sent_bytes(mine, way.size, stage, recipe, m)
            took += calls * (way.size - 1) * way.α + sent / way.bandwidth
    return took
