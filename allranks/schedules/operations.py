"""What is a pipeline schedule? For each rank, the list of operations that it executes, in order.

The model's layers are cut into `stages * chunks` virtual stages; a batch is cut into micro-batches. An
operation is one pass of one micro-batch through one virtual stage.
"""

from collections import namedtuple

FORWARD, INPUT_GRAD, WEIGHT_GRAD, BACKWARD = "F", "B", "W", "BW"

Operation = namedtuple("Operation", "kind microbatch stage")
"""One step of one rank. kind: "F" forward, "B" input gradient, "W" weight gradient, "BW" both, not split.

microbatch: 0 … microbatches-1. stage: the virtual stage, 0 … stages*chunks-1; 0 holds the first layers.
"""

Schedule = namedtuple("Schedule", "name stages microbatches chunks orders")
"""A schedule for `stages` ranks: `orders[rank]` is the tuple of operations of that rank, in their order."""

NAMES = {"F": "the forward", "B": "the input gradient", "W": "the weight gradient", "BW": "the backward"}


def described(operation):
    """The operation in words, for a message: "the forward of micro-batch 2 on stage 0"."""
    kind, microbatch, stage = operation
    return f"{NAMES.get(kind, repr(kind))} of micro-batch {microbatch} on stage {stage}"


def homes(schedule):
    """The rank of every forward: item `stage * microbatches + microbatch` of a list, None if missing."""
    microbatches = schedule.microbatches
    home = [None] * (schedule.stages * schedule.chunks * microbatches)
    for rank, order in enumerate(schedule.orders):
        for kind, microbatch, stage in order:
            if kind == "F":
                home[stage * microbatches + microbatch] = rank
    return home
