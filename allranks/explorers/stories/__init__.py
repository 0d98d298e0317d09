"""Which states of an explorer tell its story? Set-up, surprise, limit, and a last one to play on from.

A step's settings are complete together with the controls' own; its sentence has no number, for the picture
beside it says all of them. tests/explorers/test_explorer_stories.py shows that each sentence is true.
"""

from collections import namedtuple

from .costs import OF_COSTS
from .layouts import OF_LAYOUTS
from .ranks import OF_RANKS

Step = namedtuple("Step", "title settings words")
"""One state: the words of its button, the settings, and what is to be seen."""


STORIES = {
    "pipeline": (
        Step(
            "One micro-batch",
            {"schedule": "gpipe", "beside": "", "microbatches": 1},
            "The batch is not cut: while one rank works, all the others wait.",
        ),
        Step(
            "More micro-batches",
            {"schedule": "gpipe", "beside": ""},
            "Micro-batches keep all ranks busy. They still wait while the pipeline fills and drains.",
        ),
        Step(
            "The surprise",
            {},
            "1F1B is no faster than GPipe. It saves memory: a rank holds fewer micro-batches.",
        ),
        Step(
            "Shorter stages",
            {"schedule": "interleaved", "beside": "one_f_one_b"},
            "Two short stages on each rank fill the pipeline sooner and halve the waiting; memory grows.",
        ),
        Step(
            "The limit",
            {"schedule": "zero_bubble", "beside": "one_f_one_b", "memory_limit": 3},
            "With room for fewer micro-batches than ranks, even a searched schedule waits longer than 1F1B.",
        ),
        Step(
            "Your turn",
            {"beside": "", "stages": 8},
            "On eight ranks, bring the bubble below a tenth of the step with as little memory as you can.",
        ),
    ),
    "all_reduce": (
        Step("Before", {"world_size": 4, "step": 0}, "Each rank has its own values; all need the sum."),
        Step(
            "Halfway",
            {"world_size": 4},
            "Each rank has one finished chunk. The second half of the rounds only passes these on.",
        ),
        Step(
            "The surprise",
            {"world_size": 16, "step": 30},
            "With four times as many ranks, each rank sends only a quarter more bytes.",
        ),
        Step(
            "The limit",
            {"world_size": 16, "nbytes": 1000, "step": 30},
            "A small message pays for rounds, not for bytes, and the ring has many rounds.",
        ),
        Step(
            "Fast links inside",
            {"algorithm": "two_level", "beside": "ring", "world_size": 16, "step": 3},
            "Rings run inside the nodes first, so less data travels over the slow links between nodes.",
        ),
        Step(
            "Your turn",
            {"step": 0},
            "Find the size where the curves meet, then double the latency. Which way does this point move?",
        ),
    ),
    "zero": (
        Step(
            "Full copies",
            {"stage": 0, "phase": 0},
            "In plain data parallelism, every rank holds the same weights and the same optimizer states.",
        ),
        Step(
            "Stage 1",
            {"stage": 1, "phase": 4},
            "Each rank updates only its own slice, so it need not hold the rest of the optimizer states.",
        ),
        Step(
            "The surprise",
            {"stage": 2, "phase": 2},
            "Stage 2 shards the gradients too, and sends no more bytes than stage 0.",
        ),
        Step(
            "Stage 3",
            {"stage": 3, "phase": 1},
            "The weights are sharded too, and gathered for one layer at a time. Traffic grows by half.",
        ),
        Step(
            "The limit",
            {"stage": 3, "ranks": 1024, "phase": 4},
            "On very many ranks the slices are so thin that the one gathered layer takes the most memory.",
        ),
        Step(
            "Your turn",
            {"stage": 1, "ranks": 8, "parameters": 70 * 10**9, "phase": 0},
            "No device can hold this. Change the stage, then the number of ranks, until one can.",
        ),
    ),
    "memory": (
        Step(
            "One device",
            {"data": 1, "stage": 0},
            "At sixteen bytes a parameter, the model's states alone do not fit.",
        ),
        Step(
            "Shard the states",
            {"stage": 1},
            "Eight ranks share the optimizer states. Now the model fits, and activations take the most.",
        ),
        Step(
            "The surprise",
            {"stage": 1, "tiles": False},
            "Attention without tiles keeps its scores, which are larger than all other activations together.",
        ),
        Step(
            "Recompute",
            {"stage": 1, "recomputation": "full"},
            "Recomputed in the backward pass, the activations are no longer the largest part.",
        ),
        Step(
            "The limit",
            {"stage": 3, "recomputation": "full", "sequence": 2**17},
            "With a very long sequence, even the activations kept for recomputation do not fit.",
        ),
        Step(
            "Your turn",
            {"model": "llama3-70b", "microbatch": 1, "stage": 0, "data": 1, "device": "h100"},
            "Make it fit, with as few devices as you can.",
        ),
    ),
    "experts": (
        Step(
            "No favourites",
            {"skew": 0},
            "The gate prefers no expert, yet some get more tokens than they have room for.",
        ),
        Step(
            "The surprise",
            {"skew": 0, "factor": 1},
            "There is one slot for each choice: every choice that is dropped leaves an empty slot elsewhere.",
        ),
        Step(
            "Favourites",
            {"skew": 1.5},
            "Some tokens find no room at any of their experts, so the layer does nothing for them.",
        ),
        Step(
            "The limit",
            {"skew": 1.5, "factor": 4},
            "There is room for every choice, but most of what the all-to-all carries is empty slots.",
        ),
        Step(
            "Your turn",
            {"skew": 1},
            "Find the smallest factor at which no token loses all its experts.",
        ),
    ),
    "context_parallel": (
        Step(
            "Contiguous",
            {},
            "A query sees no later keys, so the last rank has the most work.",
        ),
        Step(
            "One hop",
            {"step": 3},
            "A rank that has received keys from later in the sequence has nothing to compute at this hop.",
        ),
        Step(
            "The surprise",
            {"split": "zigzag"},
            "Each rank gets an early and a late piece, so all have the same work at every hop.",
        ),
        Step(
            "No mask",
            {"causal": False},
            "When every query sees every key, the split does not matter.",
        ),
        Step(
            "The limit",
            {"context_parallel": 8},
            "With more ranks and one piece each, the share of time spent waiting approaches a half.",
        ),
        Step(
            "Your turn",
            {"context_parallel": 8, "step": 1},
            "Play the hops of this split, then the hops of the other one.",
        ),
    ),
}

for table in (OF_LAYOUTS, OF_COSTS, OF_RANKS):
    STORIES.update({name: tuple(Step(*step) for step in steps) for name, steps in table.items()})
