"""The exercises of the chapter Three axes measured."""

from allranks import schedules
from allranks.check import exercise
from allranks.check.stubs import is_filled
from allranks.collectives import ring_all_reduce_bytes
from allranks.transformer import PRESETS, parameters

STAGES, BATCH, GPUS, TENSOR = 64, 3072, 3072, 8  # the last row of Narayanan et al. 2021, Table 1
REPLICAS, PARTS = 24, 64  # row 145.6: 1536 GPUs, tp 8, pp 8


@exercise
def bubble(answer):
    """`answer`: the idle share of a step in Table 1's last row, with 1F1B and micro-batches of one."""
    microbatches = BATCH * TENSOR * STAGES // GPUS
    expected = schedules.bubble_of_total("one_f_one_b", STAGES, microbatches)
    is_filled(answer)
    for wrong, hint in (
        (
            schedules.bubble_of_ideal("one_f_one_b", STAGES, microbatches),
            "That is idle time over *working* time.",
        ),
        (schedules.bubble_of_total("one_f_one_b", STAGES, BATCH), "The batch is shared by n/(t·p) replicas."),
        (100 * expected, "A share is a number between 0 and 1."),
    ):
        assert abs(answer - wrong) > 2e-3 * wrong, hint
    assert abs(answer / expected - 1) < 0.01, "(p−1)/(m+p−1), where m is the batch of one replica."
    return f"{expected:.1%} of the time, with {microbatches} micro-batches in 64 stages."


@exercise
def gigabytes_along_dp(answer):
    """`answer`: GB (1e9) a GPU of row 145.6 of Table 1 sends along dp in a step, gradients in 2 bytes."""
    part = 2 * parameters(PRESETS["megatron-146b"]) / PARTS
    expected = ring_all_reduce_bytes(part, REPLICAS) / 1e9
    is_filled(answer)
    for factor, hint in (
        (PARTS, "That is for the whole model. A rank averages only the part that it holds."),
        (8, "A part is an eighth of each layer *and* an eighth of the layers."),
        (1 / 2, "An all-reduce is a reduce-scatter and an all-gather: that is one of them, or 1 byte each."),
        (2, "That is 4 bytes for each gradient."),
        (REPLICAS, "A rank sends twice its part, about, however many replicas there are."),
    ):
        assert abs(answer / (expected * factor) - 1) > 0.06, hint
    assert abs(answer / expected - 1) < 0.06, "2 (d−1)/d of the bytes of a part, and a part is Ψ/(t·p)."
    return f"{expected:.1f} GB, once a step, however many micro-batches there are."
