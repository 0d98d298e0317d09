"""The ten mixed problems at the end of the part on optimisation."""

from allranks import batches, collectives, compression, local_updates, muon, parameter_server
from allranks.check import exercise
from allranks.check.answers import near


@exercise
def noise(answer):
    """The noise scale from 6,000 steps at 512 and 3,000 at 2,048."""
    right = 1024
    assert batches.least_steps(6000, 512, right) == batches.least_steps(3000, 2048, right)
    near(
        answer,
        right,
        {2048: "At the noise scale a run takes twice the fewest steps: how many are the fewest?"},
    )
    return "1,024 examples, and no batch takes fewer than 2,000 steps."


@exercise
def rate(answer):
    """The learning rate on 64 GPUs with 128 sequences, accumulated twice, after 0.1 at 256."""
    right = batches.linear_rate(64 * 128 * 2, 0.1, 256)
    near(
        answer,
        right,
        {
            right / 2: "Two micro-batches are accumulated: the step has twice as many examples.",
            0.1 * 8: "That is the square root; the rule is linear.",
        },
    )
    return "6.4, which is why there is a warm-up."


@exercise
def dense_again(answer):
    """The ranks at which sparse fp32 values with indices send as much as dense bf16 gradients."""
    right = 250
    assert compression.sparse_share(0.002, right, value_bytes=2, index_bytes=4 + 4 - 2) == 1
    near(
        answer,
        right,
        {
            500: "That is with dense gradients in four bytes; they travel in two.",
            125: "A dense gradient travels around the ring twice.",
            1000: "That leaves out the indices, which take four bytes each.",
        },
    )
    return "250 ranks; on more, the sparse gradient sends more."


@exercise
def low_rank(answer):
    """How many times fewer elements PowerSGD of rank 4 sends for 4096 × 11008."""
    sent = compression.power_sgd_elements([(4096, 11008)], 4)
    right = 4096 * 11008 / sent
    near(
        answer,
        right,
        {
            4 * right: "That is for a rank of 1; here every factor has four columns.",
            1 / right: "Turn the fraction around.",
        },
    )
    return f"{right:.0f} times fewer: {sent:,} elements."


@exercise
def alone(answer):
    """The fewest steps alone for 10 billion parameters in 16 bits, 0.8 s a step, over 2 Gbit/s on average."""
    right = 100
    assert local_updates.bits_per_step(10e9, 16, right) / 0.8 == 2e9
    near(
        answer,
        right,
        {
            80: "A step takes 0.8 s, so the link has 1.6 Gbit for each.",
            12.5: "That counts gigabytes; a link is rated in bits.",
        },
    )
    return "100 steps, if fragments and overlap keep the link busy all the time."


@exercise
def kept(answer):
    """GB a rank for 10 billion parameters with DiLoCo, sharded over 8 ranks of a data centre."""
    right = (16 + 4 + 4) * 10e9 / 8 / 1e9
    near(
        answer,
        right,
        {
            20: "That is without the outer optimizer.",
            25: "That counts the copy but not the outer momentum.",
            240: "That is without sharding; the eight ranks share the states.",
        },
    )
    return "30 GB, 50 % more than without the outer optimizer."


@exercise
def server(answer):
    """How many times as much one server of 24 workers sends as a worker that is a server, too."""
    right = 24 / (collectives.ring_all_reduce_bytes(1, 24))
    near(
        answer,
        right,
        {
            24: "That assumes a worker sends the weights once; one that serves a slice sends more.",
            12: "Almost: 2(p − 1)/p is not 2.",
        },
    )
    return f"{right:.1f} times, which grows with every worker."


@exercise
def stale(answer):
    """The largest rate of five workers in turn, relative to that of fresh gradients."""
    right = parameter_server.largest_rate(4) / parameter_server.largest_rate(0)
    near(
        answer,
        right,
        {
            parameter_server.largest_rate(5) / 2: "Five workers in turn: a gradient is four updates old.",
            parameter_server.largest_rate(
                4
            ): "That is the rate times the curvature; fresh gradients may have 2.",
            1 / 5: "That is one over the workers; staleness costs more than that.",
        },
    )
    return f"{right:.2f}: five workers push five times as often, at a sixth of the rate."


@exercise
def repeated(answer):
    """Newton–Schulz in percent of the FLOPs, on 64 ranks that all orthonormalise the same matrices."""
    right = 100 * muon.overhead(8192, 2**22, copies=64)
    near(
        answer,
        right,
        {
            right / 64: "That is without repeating: each rank does all of it for a 64th of the tokens.",
            right / 100: "That is right as a share; give it in per cent.",
        },
    )
    return f"{right:.1f} %; with owners it would be {right / 64:.2f} %."


@exercise
def top_k(answer):
    """Seconds to compress and send the largest thousandth of 1 billion gradients on 64 ranks."""
    dense = collectives.ring_all_reduce_bytes(2e9, 64) * 8 / 10e9
    right = 0.1 + compression.sparse_share(0.001, 64, 2, 4) * dense
    near(
        answer,
        right,
        {
            dense: "That is the dense all-reduce.",
            right - 0.1: "That leaves out compressing, which takes 0.1 s.",
            0.1 + 0.001 * dense: "That is for one rank's list; the lists of all ranks are gathered.",
            0.1 + 0.064 * dense: "An index of four bytes comes with each value of two.",
        },
    )
    return f"{right:.2f} s instead of {dense:.2f} s; with 100 local steps, sending would take 0.03 s a step."
