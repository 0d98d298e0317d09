"""What is a pipeline schedule? For each rank, the list of operations that it executes, in order.

The model's layers are cut into `stages * chunks` virtual stages; a batch is cut into micro-batches. An operation
is one pass of one micro-batch through one virtual stage.
"""

from collections import namedtuple

FORWARD, INPUT_GRAD, WEIGHT_GRAD, BACKWARD = "F", "B", "W", "BW"

Operation = namedtuple("Operation", "kind microbatch stage")
"""kind: "F" forward, "B" input gradient, "W" weight gradient, "BW" both gradients in one (a backward not split).

microbatch: 0 … microbatches-1. stage: the virtual stage, 0 … stages*chunks-1, of which 0 holds the first layers.
"""

Schedule = namedtuple("Schedule", "name stages microbatches chunks orders")
"""A schedule for `stages` ranks: `orders[rank]` is the tuple of operations of that rank, in their order."""
