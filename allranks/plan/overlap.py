"""Which communication runs beside which computing, and how much of it does that hide?

The model: a collective hides behind matrix products that neither need it nor make it, for as long as these
take. Axes have links of their own, so that two of them can hide behind one product. What is not hidden is
exposed: the step waits for it.
"""

from .. import memory


def behind(seconds, compute, overlap):
    """Seconds of a communication of `seconds` that `overlap` times `compute` seconds hide."""
    return min(seconds, overlap * compute)


def hidden_tensor(model, layout, seconds, sequence_parallel, speed, overlap):
    """Seconds of a step's tensor-parallel communication, of `seconds` in all, that backward hides.

    The two matrices of a layer that are cut by columns have it: the gradient of their input is reduced beside
    the product for their weights' gradient, and with sequence parallelism their input is gathered again
    beside the product for its own gradient, which computes as much (Korthikanti et al. 2022, section 4.2.2;
    Megatron Core 0.20, tensor_parallel/layers.py, LinearWithGradAccumulationAndAsyncCommunication). In
    forward and in what is recomputed nothing hides. speed: FLOP/s of the ranks that share a micro-batch.
    """
    if layout.tp == 1:
        return 0.0
    full = layout.recomputation == "full"
    calls, hiding = ((14 if full else 10), 2) if sequence_parallel else ((6 if full else 4), 1)
    layers = -(-model.layers // layout.pp) * layout.microbatches
    one = seconds / (calls * layers)
    queries_keys_values = (model.heads + 2 * model.kv_heads) * model.head_width
    up = (2 if model.gated else 1) * model.active_experts * model.feed_forward
    tokens = layout.microbatch * model.sequence
    products = [2 * tokens * model.hidden * columns / speed for columns in (queries_keys_values, up)]
    return layers * hiding * sum(behind(one, product, overlap) for product in products)


def hidden_pipeline(layout, seconds, compute, overlap):
    """Seconds of a step's sends between stages, of `seconds` in all, that `compute` seconds hide.

    None in 1F1B, which waits for each. Interleaved, the next piece computes meanwhile (Megatron-LM's
    overlap_p2p_comm, which it turns on then): only the v - 1 wraps from the last rank to the first of the
    first group forward, and of the last backward, pass through p ranks that have nothing else to do.
    """
    if layout.chunks == 1:
        return 0.0
    waits = (layout.chunks - 1) * layout.pp / (layout.chunks * layout.microbatches)
    return behind(max(0.0, 1 - waits) * seconds, compute, overlap)


def data_seconds(model, layout, parameters, ways, recipe, forward, backward, overlap, bucket=None):
    """Seconds in which a step reduces gradients and gathers weights, and how many of these are hidden.

    parameters: of a rank, as (those outside the experts, those of experts). forward, backward: seconds of a
    micro-batch on the slowest stage, beside which a `memory.zero_windows` runs. Stage 3 gathers layer by
    layer, the others all at once, or in buckets: of bucket[0] bytes, or bucket[1] for
    each rank if that is more. Of a layer-by-layer window one layer is always exposed: nothing computes before
    the first is gathered, or after the gradients of the last are made.
    """
    beside = {"forward": forward, "backward": backward}
    amounts = (layout.zero_stage, recipe, layout.microbatches, -(-model.layers // layout.pp))
    took = {}
    for mine, way in zip(parameters, (ways["dp"], ways["expert dp"])):
        if mine and way.size > 1:
            for window in memory.zero_windows(mine, way.size, *amounts):
                calls = window.calls
                if bucket and layout.zero_stage < 3:
                    calls *= -(-window.sent // (calls * max(bucket[0], bucket[1] * way.size)))
                seconds = calls * ((way.size - 1) * way.α + way.call) + window.sent / way.bandwidth
                key = (window.times, window.beside)
                took[key] = took.get(key, 0.0) + seconds
    total = sum(times * seconds for (times, _), seconds in took.items())
    alone = 1 / amounts[-1] if layout.zero_stage == 3 else 0.0
    hidden = sum(
        times * behind((1 - alone) * seconds, beside[phase], overlap)
        for (times, phase), seconds in took.items()
    )
    return total, hidden
