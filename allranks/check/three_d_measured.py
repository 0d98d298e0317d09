"""The exercises of the chapter Three axes measured."""

from allranks import schedules
from allranks.check import exercise
from allranks.check.stubs import is_number
from allranks.collectives import ring_all_reduce_bytes
from allranks.transformer import PRESETS, parameters

STAGES, BATCH, GPUS, TENSOR = 64, 3072, 3072, 8  # the last row of Narayanan et al. 2021, Table 1
REPLICAS, PARTS = 24, 64  # row 145.6: 1536 GPUs, tp 8, pp 8


@exercise
def bubble(answer):
    """`answer`: the idle share of a step in Table 1's last row, with 1F1B and micro-batches of one."""
    microbatches = BATCH * TENSOR * STAGES // GPUS
    expected = schedules.bubble_of_total("one_f_one_b", STAGES, microbatches)
    is_number(answer)
    for wrong, hint in (
        (
            schedules.bubble_of_ideal("one_f_one_b", STAGES, microbatches),
            "That is idle time over *working* time.",
        ),
        (
            schedules.bubble_of_total("one_f_one_b", STAGES, BATCH),
            ("That gives each replica the whole batch; n/(t·p) replicas share it."),
        ),
        (100 * expected, "A share is a number between 0 and 1."),
    ):
        assert abs(answer - wrong) > 2e-3 * wrong, hint
    assert abs(answer / expected - 1) < 0.01, (
        f"{answer:g} is not right: how many micro-batches does one replica have?"
    )
    return f"{expected:.1%} of the time, with {microbatches} micro-batches in 64 stages."


@exercise
def gigabytes_along_dp(answer):
    """`answer`: GB (1e9) a GPU of row 145.6 of Table 1 sends along dp in a step, gradients in 2 bytes."""
    part = 2 * parameters(PRESETS["megatron-146b"]) / PARTS
    expected = ring_all_reduce_bytes(part, REPLICAS) / 1e9
    is_number(answer)
    for factor, hint in (
        (PARTS, "That is for the whole model. A rank averages only the part that it holds."),
        (8, "A rank's part is an eighth of each layer *and* an eighth of the layers."),
        (1 / 2, "That is only one half of the all-reduce, or 1 byte each."),
        (2, "That is 4 bytes for each gradient."),
        (REPLICAS, "However many replicas there are, a rank sends about twice its part."),
    ):
        assert abs(answer / (expected * factor) - 1) > 0.06, hint
    assert abs(answer / expected - 1) < 0.06, (
        f"{answer:g} GB is not right: how large is a rank's part, and how often is it sent?"
    )
    return f"{expected:.1f} GB, once a step, however many micro-batches there are."
