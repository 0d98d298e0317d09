"""How much memory does a layout take? What `memory.training_bytes` says, quickly for many layouts.

States depend on the mesh and the ZeRO stage, activations on the mesh, the recomputation and, in proportion,
on the micro-batch; so most of what one layout needs is known from another.
"""

from .. import memory
from ..inputs import quantity
from ..memory.states import ZERO, recipe_of
from ..memory.training import Breakdown
from .step import most_parameters, once


def memory_of(
    model, layout, *, sequence_parallel=True, recipe=ZERO, dropout=True, fused=False, loss=4, known=None
):
    """`memory.training_bytes` of the fullest stage in `layout`: a `memory.Breakdown`.

    loss: bytes that a logit takes while the last stage computes the loss, of which 4 are counted there.
    known: as in `parts`.
    """
    quantity("loss", loss)
    after = (loss - 4) * layout.microbatch * model.sequence / layout.cp * model.vocabulary / layout.tp
    options = {
        "sequence_parallel": sequence_parallel and layout.tp > 1,
        "recipe": recipe_of(recipe),
        "dropout": dropout,
        "fused": fused,
    }
    if known is None and loss == 4:
        return _breakdown(model, layout, options)
    tp, cp, pp, dp, ep, zero_stage, b, m, recomputation, v = layout
    fullest = None
    for stage in sorted({0, min(1, pp - 1), pp - 1}):
        held = memory.in_flight(stage, pp, m, v)
        key = ("kept", tp, cp, pp, v, recomputation, stage, held)
        one = layout_like(layout, dp=1, ep=1, zero_stage=0, microbatch=1)
        kept = once(known, key, _breakdown, model, one, options, stage, held)
        key = ("states", tp, cp * dp, pp, ep, v, zero_stage, stage)
        states = once(known, key, _breakdown, model, layout_like(layout, microbatch=1), options, stage, 1)
        activations = b * kept.activations + (after if stage == pp - 1 else 0)
        total = states.states + states.buffers + activations + b * kept.recomputed
        if fullest is None or total > fullest[0]:
            fullest = total, activations, kept, states
    _, activations, kept, states = fullest
    return Breakdown(
        states.stage, states.parameters, states.weights, states.gradients, states.optimizer,
        activations, b * kept.recomputed, states.buffers,
    )  # fmt: skip


def layout_like(layout, *, microbatch, dp=None, ep=None, zero_stage=None):
    """`layout` with other numbers where they are given."""
    tp, cp, pp, old_dp, old_ep, old_stage, _, m, recomputation, v = layout
    return type(layout)(
        tp, cp, pp, old_dp if dp is None else dp, old_ep if ep is None else ep,
        old_stage if zero_stage is None else zero_stage, microbatch, m, recomputation, v,
    )  # fmt: skip


def _breakdown(model, layout, options, stage=None, held=None):
    return memory.training_bytes(
        model, microbatch=layout.microbatch, data_parallel=layout.dp, tensor_parallel=layout.tp,
        pipeline_parallel=layout.pp, context_parallel=layout.cp, expert_parallel=layout.ep,
        zero_stage=layout.zero_stage, recomputation=layout.recomputation, microbatches=layout.microbatches,
        chunks=layout.chunks, stage=stage, held=held, **options,
    )  # fmt: skip


def least_bytes(model, layout, recipe=ZERO, known=None):
    """Bytes of the model's states alone on the fullest stage: what `layout` takes at least."""
    tp, cp, pp, dp, ep = layout[:5]
    key = ("parameters", tp, pp, ep, layout.chunks)
    dense, experts = once(known, key, most_parameters, model, layout)
    states = memory.zero_bytes(dense, cp * dp, layout.zero_stage, recipe)
    return states + memory.zero_bytes(experts, cp * dp // ep, layout.zero_stage, recipe)
