"""What does one rank of a training hold, under any layout?

A layer's matrices are cut over the tensor-parallel ranks, layers over the stages of the pipeline, experts
over the expert-parallel ranks, sequences over the context-parallel ranks; ZeRO shards over data and context
parallel ranks.
"""

import math
from collections import namedtuple

from ..inputs import multiple, one_of, quantity, whole
from ..transformer import expert_parameters, layer_parameters, norm_parameters, router_parameters
from .activations import in_flight, kept_bytes, recomputed_bytes
from .buffers import BUCKET, unsharded_bytes
from .states import STAGES, ZERO, recipe_of, share, zero_states

FIELDS = "stage parameters weights gradients optimizer activations recomputed buffers"


class Breakdown(namedtuple("Breakdown", FIELDS)):
    """Bytes on a rank of pipeline stage `stage`, whose share of the model has `parameters` parameters.

    weights, gradients, optimizer: the states, sharded. activations: kept for backward. recomputed: what comes
    back of one layer in backward. buffers: held in order to communicate.
    """

    @property
    def states(self):
        return self.weights + self.gradients + self.optimizer

    @property
    def total(self):
        return self.states + self.activations + self.recomputed + self.buffers


def pieces(layers, stages, chunks=1):
    """Layers of each piece of a pipeline, `chunks` pieces on each of `stages` ranks, in the model's order.

    Where they cannot be equal, the second, the third … have one layer more, so that the first and the last
    are light, which also have the embedding and the output layer. These two may have no layer at all: Llama 3
    cuts 126 layers into 128 pieces (Grattafiori et al. 2024, section 3.3.2).
    """
    count = whole("stages", stages) * whole("chunks", chunks)
    whole("layers", layers, at_least=max(1, count - 2))
    sizes = [layers // count] * count
    for turn in range(layers % count):
        sizes[(turn + 1) % (count - 1)] += 1
    return sizes


def stage_layers(layers, stages, chunks=1):
    """Layers on each of `stages` ranks: rank r has the `pieces` r, r + p, r + 2p, … of the model."""
    sizes = pieces(layers, stages, chunks)
    return [sum(sizes[stage::stages]) for stage in range(stages)]


def rank_parameters(model, tensor_parallel=1, pipeline_parallel=1, expert_parallel=1, stage=0, chunks=1):
    """Parameters on a rank of `stage`, as (those outside the experts, those of experts).

    Cut over t ranks: matrices, and the biases of their outputs where those are cut; the vocabulary, rounded
    up. Whole on each: norms, routers, positions, biases of the layers that sum over ranks. A tied output
    layer on a stage of its own is a second copy (Narayanan et al. 2021, section 2.3; Shoeybi et al. 2019,
    section 3).
    """
    t, ep = whole("tensor_parallel", tensor_parallel), whole("expert_parallel", expert_parallel)
    whole("stage", stage, 0, whole("pipeline_parallel", pipeline_parallel) - 1)
    multiple("heads", model.heads, "tensor_parallel", t)
    multiple("feed_forward", model.feed_forward, "tensor_parallel", t)
    multiple("experts", model.experts, "expert_parallel", ep)
    layers = stage_layers(model.layers, pipeline_parallel, chunks)[stage]
    row_bias = model.hidden if model.biases else 0
    expert, one_copy = (
        expert_parameters(model),
        2 * norm_parameters(model) + router_parameters(model) + row_bias,
    )
    keys = model.kv_heads * model.head_width
    copied = 2 * keys * (model.hidden + (1 if model.biases else 0))
    matrices = layer_parameters(model) - model.experts * expert - one_copy - copied
    a_layer = one_copy + matrices // t + copied // min(t, model.kv_heads)
    an_expert = (expert - row_bias) // t + row_bias
    vocabulary = math.ceil(model.vocabulary / t) * model.hidden
    last = stage == pipeline_parallel - 1
    others = layers * a_layer
    if stage == 0:
        others += vocabulary + (model.sequence * model.hidden if model.learned_positions else 0)
    if last:
        others += norm_parameters(model)
    if last and not (model.tied and stage == 0):
        others += vocabulary
    experts = layers * (model.experts // ep) * an_expert
    return (others, experts) if model.experts > 1 else (others + experts, 0)


def training_bytes(
    model, *, microbatch=1, data_parallel=1, tensor_parallel=1, pipeline_parallel=1, context_parallel=1,
    expert_parallel=1, zero_stage=0, sequence_parallel=False, recomputation="none", microbatches=None,
    chunks=1, stage=None, held=None, recipe=ZERO, element=2, dropout=True, fused=False, bucket=BUCKET,
):  # fmt: skip
    """Bytes on a rank, as a `Breakdown`: of the rank of `stage`, or, if that is None, of the fullest stage.

    microbatch: sequences in one. microbatches: of a step on a replica, None: as many as the pipeline can
    hold. chunks: of the interleaved schedule. held: micro-batches in flight on `stage`, where the schedule is
    another than 1F1B (`simulate` tells). expert_parallel divides data × context parallel ranks, and ZeRO
    shards experts over what is left. element, dropout, fused: as in `layer_tensors`; unless fused, selective
    recomputation holds the scores of one layer again in backward. Buffers: none in stages 0 and 1, where
    gradients are summed in place; two buckets of `bucket` bytes in stage 2; in stage 3 what `unsharded_bytes`
    says of a layer. Gradients and activations both count, as they do from the second micro-batch on; with a
    single one, activations go as gradients come, and the peak is with the larger of the two.
    """
    one_of("zero_stage", zero_stage, STAGES), quantity("bucket", bucket)
    layout = (tensor_parallel, whole("pipeline_parallel", pipeline_parallel), expert_parallel)
    replicas = whole("data_parallel", data_parallel) * whole("context_parallel", context_parallel)
    whole("expert_parallel", expert_parallel)
    multiple("data_parallel × context_parallel", replicas, "expert_parallel", expert_parallel)
    recipe = recipe_of(recipe)
    where = (model, microbatch, tensor_parallel, sequence_parallel, recomputation)
    how = {"context_parallel": context_parallel, "element": element, "dropout": dropout, "fused": fused}
    again = recomputed_bytes(*where, **how)

    def on(stage):
        others, experts = rank_parameters(model, *layout, stage, chunks)
        mine = others + experts
        dense = zero_states(others, replicas, zero_stage, recipe)
        sparse = zero_states(experts, replicas // expert_parallel, zero_stage, recipe)
        layers = stage_layers(model.layers, pipeline_parallel, chunks)[stage]
        alive = in_flight(stage, pipeline_parallel, microbatches, chunks) if held is None else held
        ends = {"first": stage == 0, "last": stage == pipeline_parallel - 1}
        buffers = 0
        if replicas > 1 and zero_stage == 2:
            buffers = min(2 * bucket, recipe.gradients * mine)
        if replicas > 1 and zero_stage == 3:
            everything = (recipe.weights + recipe.gradients) * mine
            buffers = min(unsharded_bytes(share(mine, max(1, layers)), recipe), everything)
        return Breakdown(
            stage,
            mine,
            *(both + more for both, more in zip(dense, sparse)),
            kept_bytes(*where, layers=layers, held=alive, **ends, **how),
            again,
            buffers,
        )

    if stage is not None:
        return on(whole("stage", stage, 0, pipeline_parallel - 1))
    # Stage 0 has the most micro-batches in flight, 1 is the first with a layer more, the last has the logits.
    stages = sorted({0, min(1, pipeline_parallel - 1), pipeline_parallel - 1})
    return max((on(each) for each in stages), key=lambda breakdown: breakdown.total)
