"""Which layouts of a model fit a machine, and which is the fastest? All of them, priced and sorted."""

from ..inputs import one_of, quantity
from ..interleaving import group_size
from ..memory.states import STAGES, ZERO
from ..transformer import RECOMPUTATION
from .footprint import least_bytes, memory_of
from .listed import layouts
from .pricing import plan_of
from .step import priced

OMITTED = (
    "Without `rates`, every matrix product reaches the stated share of the peak; small ones reach less.",
    "Each axis has its links to itself, at their full bandwidth: no congestion, no oversubscription.",
    "Every message pays the latency of NCCL's protocol Simple, which suits large ones: small ones pay less.",
    "Inside the layers only backward hides communication, as in Megatron Core; chunked products would hide"
    " more.",
    "Without `rates`, what is hidden slows no product down, though both share memory and multiprocessors.",
    "Stages wait as if all were as slow as the slowest; schedules are 1F1B and interleaved 1F1B, whose pieces"
    " wait a little longer for each other where they are not equal.",
    "Tokens visit the experts evenly, and none is dropped.",
    "Norms, activations, the embedding's and the loss's communication, reading data, saving and failures take"
    " no time.",
    "Memory has no fragments, no workspace of libraries, and no driver's part: give a smaller capacity.",
    "A logit takes 4 bytes, unless `loss` says otherwise; published stacks hold 8 to 18 bytes at a time.",
    "Offload, ZeRO within a node only, and mixed layouts of attention and experts are not tried.",
)


def plans(
    model, accelerator, devices, batch, *, capacity=None, zero_stages=STAGES, recomputations=RECOMPUTATION,
    chunks=1, at_most=None, sequence_parallel=True, recipe=ZERO, dropout=True, fused=False, loss=4, **options
):  # fmt: skip
    """Every `Plan` of `model` on `devices` devices that fits, the fastest first.

    accelerator: a record such as `hardware.ACCELERATORS` has. batch: sequences of a step. capacity: bytes of
    a device to fill, None: all of its memory. zero_stages, recomputations, at_most (a dict from axis to
    size): what to try. chunks: pieces of the model on each rank of a pipeline. sequence_parallel, recipe,
    dropout, fused: as in `memory.training_bytes`; with fused attention selective recomputation has nothing
    to drop, and is not tried. loss: as in `memory_of`. Options of `priced`: inside and between (the links),
    devices_per_node, efficiency, overlap, attended, dtype, order. What the numbers leave out is in `OMITTED`.
    """
    capacity = accelerator.memory if capacity is None else quantity("capacity", capacity)
    zero_stages, recomputations = tuple(zero_stages), tuple(recomputations)
    for each in recomputations:
        one_of("recomputations", each, RECOMPUTATION)
    tried = [each for each in RECOMPUTATION if each in recomputations and not (fused and each == "selective")]
    shared = {"sequence_parallel": sequence_parallel, "recipe": recipe}
    found, full, known = [], {}, {}
    for layout in layouts(
        model, devices, batch, chunks=chunks, sequence_parallel=sequence_parallel, zero_stages=zero_stages,
        recomputations=tried, at_most=at_most,
    ):  # fmt: skip
        # More sequences at once, or less recomputation, never take less memory, if they interleave in groups
        # of p: a larger group keeps more.
        mesh, kept = layout[:6], RECOMPUTATION.index(layout.recomputation)
        if mesh not in full:
            full[mesh] = -1 if least_bytes(model, layout, recipe, known) <= capacity else len(RECOMPUTATION)
        if kept <= full[mesh]:
            continue
        held = memory_of(model, layout, dropout=dropout, fused=fused, loss=loss, known=known, **shared)
        if held.total > capacity:
            if chunks == 1 or group_size(layout.pp, layout.microbatches) <= layout.pp:
                full[mesh] = kept
            continue
        took = priced(
            model, layout, accelerator, dropout=dropout, fused=fused, known=known, **shared, **options
        )
        found.append(plan_of(model, layout, held, took, accelerator, capacity, options))
    return sorted(found, key=lambda plan: (plan.seconds, plan.memory.total, plan.layout))
