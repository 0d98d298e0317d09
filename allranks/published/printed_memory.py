"""How much memory would a source print for its run, and how far is the planner off?

The model: what `memory.training_bytes` counts, on the rank whose memory the source prints, and what the
source's software holds besides. Each addition is a tensor of known size that the source's code keeps, except
`outside`, which is fitted where nothing is known of it.
"""

import math
from collections import OrderedDict, namedtuple

from ..memory import ddp_bucket_bytes, in_flight, stage_layers, training_bytes
from ..memory.states import recipe_of
from ..transformer import layer_parameters
from .predict import ready

FIELDS = "unit outside first summed loss kept whole boundary rotated outputs"


class Counts(namedtuple("Counts", FIELDS, defaults=(2**30, 0, False, False, 12, None, 0, 0, False, 0))):
    """What a source prints as memory, and what its software holds beyond states and activations.

    unit: bytes of what it prints. outside: bytes that are not in tensors. first: whether it prints the memory
    of the first stage, not of the fullest. summed: whether gradients in bf16 are summed in 4 bytes beside
    them. loss: bytes of a logit while the loss is computed. kept: elements a token that each layer keeps for
    backward in addition, cut over tensor-parallel ranks; a function of the model. whole: tensors of tokens ×
    hidden that tensor parallelism gathers or has not yet cut, one layer at a time. boundary: such tensors,
    cut like the sequence, that a stage keeps for each micro-batch in flight. rotated: whether context
    parallelism gathers the keys and values of a whole sequence, with as many heads as queries have. outputs:
    bytes of a logit that the last stage of a pipeline keeps of each micro-batch until the step ends.
    """


def unfused(model):
    """The output of SiLU, and keys and values again: queries stay a slice of the tensor they were cut from.

    nanotron, models/llama.py: GLUActivation; CausalSelfAttention copies keys and values (torch.cat) before
    it rotates them, and rotates queries in place.
    """
    return model.feed_forward + 2 * model.kv_heads * model.head_width


COUNTS = {
    # What is printed: allocated memory is reset after backward (logging.py, log_memory), so the number that
    # grows with the micro-batch is the reserved memory, which rank 0 writes (helpers.py, log_throughput).
    # loss: logits in 2 bytes and in 4, and less their maximum in 4 (tensor_parallel/functional.py). whole:
    # two buffers for gathered tensors, and an output before its reduce-scatter; inputs are gathered again in
    # backward by default (tp_recompute_allgather). boundary: outputs, which engine.py keeps.
    "playbook": Counts(first=True, summed=True, loss=10, kept=unfused, whole=3, boundary=1),
    # What is printed: reserved memory of the fullest rank (benchmarks/llama3_h100_202412_torchtitan.md).
    # loss: logits in 2 bytes, their log-softmax and two gradients in 4 each. whole: the gathered inputs of
    # attention and feed-forward, and two gradients of one of them, which are added up. boundary: outputs
    # (torch/distributed/pipelining/stage.py, fwd_cache) and buffers for their gradients. rotated:
    # config_manager.py, context_parallel_rotate_method, and model.py, repeat_kv. outputs: stage.py,
    # output_chunks, which are merged at the end.
    "torchtitan": Counts(loss=14, whole=4, boundary=2, rotated=True, outputs=2),
    # What is printed: nvidia-smi. outside: fitted; a CUDA context, NCCL's buffers, libraries and fragments.
    "bigscience": Counts(summed=True, outside=13 * 2**30, loss=8),
    # What is printed: nvidia-smi, of the first stage, for it grows by 0.6 GB with a sequence in a micro-batch
    # if there is a pipeline, and by 1.3 GB if the same device has the logits. outside: fitted to runs that
    # are not kept out; 1113 MiB of it are a CUDA context, says the page, and up to 10^9 bytes a bucket that
    # DeepSpeed 0.5.8 flattens (zero/stage2.py, allreduce_bucket).
    "bigscience-1b3": Counts(first=True, outside=5 * 2**30, loss=8),
}


def first_layers(model, stages):
    """Layers of the first stage where stages are balanced: by their products, the output layer's among them.

    So nanotron divides a model (models/base.py, build_model): a stage gets layers until it has a p-th of all
    products. Where ten layers have just that, the public code adds an eleventh; memory and time are of ten.
    """
    head = model.vocabulary * model.hidden / layer_parameters(model)
    return min(model.layers, math.ceil((model.layers + head) / stages))


def memory_parts(run):
    """Bytes that a source would print for `run`, by what they are: a dict from a name to bytes.

    Of the rank that the source prints: the first stage's, or the fullest's. ValueError as in `predicted`.
    """
    counts = COUNTS.get(run.source, Counts())
    (model, layout, _), options = ready(run)
    stages = [0] if counts.first else sorted({0, min(1, layout.pp - 1), layout.pp - 1})
    found = [_held(run, counts, model, layout, options, stage) for stage in stages]
    return max(found, key=lambda parts: sum(parts.values()))


def memory_error(prediction):
    """How much more memory than printed the planner expects, as the prediction's source defines memory."""
    run = prediction.run
    unit = COUNTS.get(run.source, Counts()).unit
    return sum(memory_parts(run).values()) / (run.memory_gib * unit) - 1


def _held(run, counts, model, layout, options, stage):
    tp, pp = layout.tp, layout.pp
    if counts.first and run.source == "playbook":
        model = model._replace(layers=pp * first_layers(model, pp))  # as many on each stage as on the first
    found = training_bytes(
        model, microbatch=layout.microbatch, data_parallel=layout.dp, tensor_parallel=tp,
        pipeline_parallel=pp, context_parallel=layout.cp, expert_parallel=layout.ep,
        zero_stage=layout.zero_stage, recomputation=layout.recomputation, chunks=layout.chunks,
        microbatches=layout.microbatches, stage=stage, recipe=recipe_in_memory(run, counts, layout, options),
        sequence_parallel=options["sequence_parallel"], dropout=options["dropout"], fused=options["fused"],
    )  # fmt: skip
    tokens = layout.microbatch * model.sequence / layout.cp
    flying = in_flight(stage, pp, layout.microbatches, layout.chunks)
    layers = stage_layers(model.layers, pp, layout.chunks)[stage]
    whole = 2 * tokens * model.hidden
    shard = whole / tp if options["sequence_parallel"] else whole
    parts = OrderedDict()
    parts["weights, gradients, optimizer"] = found.states
    parts["activations"] = found.activations
    parts["recomputed"] = found.recomputed
    parts["buffers"] = found.buffers
    if run.source == "playbook" and layout.zero_stage == 0 and layout.dp > 1:
        parts["buffers"] += ddp_bucket_bytes(found.parameters)
    if counts.kept:
        parts["kept by unfused kernels"] = 2 * tokens * counts.kept(model) / tp * flying * layers
    parts["gathered or not yet cut"] = counts.whole * whole * (1 - 1 / tp)
    if counts.rotated and layout.cp > 1:
        parts["gathered or not yet cut"] += 4 * tokens * layout.cp * model.heads * model.head_width / tp
    if pp > 1:
        parts["at the boundary of stages"] = counts.boundary * shard * flying
    if stage == pp - 1:
        parts["loss"] = (loss_bytes(run, counts) - 4) * tokens * model.vocabulary / tp
    if stage == pp - 1 > 0:
        others = layout.microbatches - 1
        parts["loss"] += counts.outputs * others * tokens * model.vocabulary / tp
    parts["outside tensors"] = counts.outside
    return OrderedDict((name, nbytes) for name, nbytes in parts.items() if nbytes)


def loss_bytes(run, counts):
    """Bytes of a logit while the loss is computed: 4 more where torch computes it on cut logits.

    Then four tensors of 4 bytes live at once, of the size of the logits (torch/distributed/tensor/parallel/
    loss.py, _nll_loss_and_log_softmax_backward).
    """
    return counts.loss + (4 if run.source == "torchtitan" and run.tp > 1 else 0)


def recipe_in_memory(run, counts, layout, options):
    """The `memory.Recipe` of a run: as the planner's, but for what a source keeps twice, or not at all."""
    recipe = recipe_of(options["recipe"])
    if run.dtype == "bf16" and counts.summed:
        return recipe._replace(gradients=6, gradient_copy=0)
    if run.source == "torchtitan" and layout.zero_stage == 3:  # the fp32 shards are the weights
        return recipe._replace(master=2)
    return recipe
