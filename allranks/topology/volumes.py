"""What does a rank of a transformer in training send along each axis of the mesh, in one step?

The model: tensor (tp), context (cp), pipeline (pp) and data parallelism (dp) of a dense decoder; rings for
the collectives; activations of `element_bytes`; layers spread over the stages as evenly as they go. Left
out: the embedding and the loss, and expert parallelism.
"""

from collections import namedtuple

from .. import collectives, transformer
from ..inputs import multiple, one_of, quantity, whole

AXES = ("tp", "cp", "pp", "dp")


class Traffic(namedtuple("Traffic", "axis over size collective calls steps nbytes sent")):
    """What a rank sends along an axis in a step.

    axis: "tp", "cp", "pp" or "dp". over: the axes that its group extends over; size: ranks in that group.
    collective, calls: what is called, and how often. steps: messages that follow one another. nbytes: of
    the message of one call, as nccl-tests counts it. sent: bytes that a rank sends in all calls.
    """

    __slots__ = ()


def traffic(
    model,
    sizes,
    microbatches,
    microbatch=1,
    chunks=1,
    element_bytes=2,
    gradient_bytes=2,
    sharded_boundary=False,
    sequence=None,
    parameters=None,
    sequence_parallel=False,
    recomputation="none",
):
    """The `Traffic` of a rank along tp, cp, pp and dp, in one step.

    sizes: dict from axis to its size t, c, p, d (1 if it is not there). A step has `microbatches`
    micro-batches of b = `microbatch` sequences of s = `sequence`
    tokens (as the model says, if left out), s/c of each on a rank. For each of them:
    tp: 4 all-reduces of bsh/c elements a layer, 8(bsh/c)(t-1)/t elements sent (Narayanan et al. 2021,
    section 3.2); with sequence parallelism 4 all-gathers and 4 reduce-scatters, which send the same, and 2
    all-gathers more, because backward needs inputs of which a rank keeps its part only: 10 for 8
    (Korthikanti et al. 2022, section 4.2.2).
    cp: an all-gather of K and V a layer forward and a reduce-scatter of their gradients backward
    (Grattafiori et al. 2024, section 3.3.2, gather K and V; the backward pass is ours).
    Full recomputation repeats what forward sends of these two: 12 for 8, with sequence parallelism 14.
    pp: bsh/c elements to the next stage and as many to the one before (Narayanan et al. 2021, section 3.2),
    for each of v = `chunks` pieces of the model (2.2.2); a t-th of it with `sharded_boundary` (the
    scatter/gather of their section 4.1).
    dp: one all-reduce of the gradients, `parameters`/(t·p) a rank, 2(cd-1)/cd of them sent, over cp and dp,
    because the ranks of cp hold the same weights; ZeRO stages 1 and 2 send the same (Rajbhandari et al.
    2020, section 7).
    """
    for axis in sizes:
        one_of("the axis", axis, AXES)
    t, c, p, d = (whole(f"the size of {axis}", sizes.get(axis, 1)) for axis in AXES)
    m, b, v = whole("microbatches", microbatches), whole("microbatch", microbatch), whole("chunks", chunks)
    s = model.sequence if sequence is None else whole("sequence", sequence)
    quantity("element_bytes", element_bytes, positive=True)
    quantity("gradient_bytes", gradient_bytes, positive=True)
    multiple("heads", model.heads, "tp", t), multiple("sequence", s, "cp", c)
    whole("pp × chunks", p * v, 1, model.layers + 2)
    one_of("sequence_parallel", sequence_parallel, (False, True))
    again = 1 if one_of("recomputation", recomputation, transformer.RECOMPUTATION) == "full" else 0
    if parameters is None:
        parameters = transformer.parameters(model)
    layers = -(-model.layers // p)
    activation = b * s // c * model.hidden * element_bytes
    kv_heads = -(-model.kv_heads // t)
    keys_and_values = 2 * b * s * kv_heads * model.head_width * element_bytes
    boundaries = 0 if p == 1 else 2 * v - 1 if p == 2 else 2 * v
    boundary = activation / t if sharded_boundary else activation
    gradients = quantity("parameters", parameters) / (t * p) * gradient_bytes

    def along(axis, over, size, collective, calls, nbytes, steps_of_a_call, bytes_of_a_call):
        calls = calls if size > 1 else 0
        sent = calls * bytes_of_a_call(nbytes, size)
        return Traffic(axis, over, size, collective, calls, calls * steps_of_a_call, nbytes, sent)

    reduce, gather, both = (
        collectives.ring_all_reduce_bytes, collectives.ring_all_gather_bytes, "all_gather, reduce_scatter"
    )  # fmt: skip
    tensor = ("all_reduce", (4 + 2 * again) * layers * m, activation, 2 * (t - 1), reduce)
    if sequence_parallel:
        tensor = (both, (10 + 4 * again) * layers * m, activation, t - 1, gather)
    return (
        along("tp", ("tp",), t, *tensor),
        along("cp", ("cp",), c, both, (2 + again) * layers * m, keys_and_values, c - 1, gather),
        along("pp", ("pp",), p, "send", boundaries * m, boundary, 1, lambda nbytes, size: nbytes),
        along("dp", ("cp", "dp"), c * d, "all_reduce", 1, gradients, 2 * (c * d - 1), reduce),
    )
