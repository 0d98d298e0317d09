"""Which states of an explorer tell its story? Set-up, surprise, limit, and a last one to play on from.

A step's settings are complete together with the controls' own; its sentence has no number, for the picture
beside it says all of them. tests/explorers/test_explorer_stories.py shows that each sentence is true.
"""

from collections import namedtuple

from .stories_of_costs import OF_COSTS
from .stories_of_layouts import OF_LAYOUTS
from .stories_of_ranks import OF_RANKS

Step = namedtuple("Step", "title settings words")
"""One state: the words of its button, the settings, and what is to be seen."""


STORIES = {
    "pipeline": (
        Step(
            "One micro-batch",
            {"schedule": "gpipe", "beside": "", "microbatches": 1},
            "A batch in one piece: while one rank works, all the others wait.",
        ),
        Step(
            "More of them",
            {"schedule": "gpipe", "beside": ""},
            "In pieces, the ranks work at the same time. Waiting to fill and to drain remains.",
        ),
        Step(
            "The surprise",
            {},
            "1F1B is not faster than GPipe. It holds fewer micro-batches, which is what it is for.",
        ),
        Step(
            "Shorter stages",
            {"schedule": "interleaved", "beside": "one_f_one_b"},
            "Two short stages on each rank fill sooner and halve the waiting; memory grows.",
        ),
        Step(
            "The limit",
            {"schedule": "zero_bubble", "beside": "one_f_one_b", "memory_limit": 3},
            "Room for fewer micro-batches than ranks: even a searched schedule waits longer than 1F1B.",
        ),
        Step(
            "Your turn",
            {"beside": "", "stages": 8},
            "Bring the bubble of eight ranks below a tenth of the step, with as little memory as you can.",
        ),
    ),
    "all_reduce": (
        Step("Before", {"world_size": 4, "step": 0}, "Each rank has values of its own; all want the sum."),
        Step(
            "Half the way",
            {"world_size": 4},
            "Each rank has one finished chunk. The second half only hands these round.",
        ),
        Step(
            "The surprise",
            {"world_size": 16, "step": 30},
            "Four times as many ranks, and a rank sends only a quarter more bytes.",
        ),
        Step(
            "The limit",
            {"world_size": 16, "nbytes": 1000, "step": 30},
            "A small message pays for rounds, not for bytes, and the ring has many.",
        ),
        Step(
            "Fast links inside",
            {"algorithm": "two_level", "beside": "ring", "world_size": 16, "step": 3},
            "Rings inside the nodes first: less of the sum travels over the slow links between them.",
        ),
        Step(
            "Your turn",
            {"step": 0},
            "Find the size where both curves meet, then double the latency. Which way does it move?",
        ),
    ),
    "zero": (
        Step(
            "All hold all",
            {"stage": 0, "phase": 0},
            "Plain data parallelism: every rank holds the same weights and the same optimizer states.",
        ),
        Step(
            "Stage 1",
            {"stage": 1, "phase": 4},
            "Each rank updates its own slice, so the rest of the optimizer states can go.",
        ),
        Step(
            "The surprise",
            {"stage": 2, "phase": 2},
            "Stage 2 drops gradients too, and sends no more bytes than stage 0 does.",
        ),
        Step(
            "Stage 3",
            {"stage": 3, "phase": 1},
            "Weights are slices as well, whole for one layer at a time. That costs half as many bytes again.",
        ),
        Step(
            "The limit",
            {"stage": 3, "ranks": 1024, "phase": 4},
            "On very many ranks the slices are thin, and the one layer that is whole takes most.",
        ),
        Step(
            "Your turn",
            {"stage": 1, "ranks": 8, "parameters": 70 * 10**9, "phase": 0},
            "No device holds this. Change the stage, then the ranks, until one does.",
        ),
    ),
    "memory": (
        Step(
            "One device",
            {"data": 1, "stage": 0},
            "Sixteen bytes a parameter: the states of the model alone do not fit.",
        ),
        Step(
            "Shard the states",
            {"stage": 1},
            "Eight ranks share the optimizer states. Now it fits, and activations take most.",
        ),
        Step(
            "The surprise",
            {"stage": 1, "tiles": False},
            "Attention without tiles keeps its scores: more than all other activations together.",
        ),
        Step(
            "Compute again",
            {"stage": 1, "recomputation": "full"},
            "Computed again in the backward pass, the activations are no longer the most.",
        ),
        Step(
            "The limit",
            {"stage": 3, "recomputation": "full", "sequence": 2**17},
            "A very long sequence: even what is kept to compute the rest again does not fit.",
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
            "The gate prefers no expert, and yet some get more tokens than they have room for.",
        ),
        Step(
            "The surprise",
            {"skew": 0, "factor": 1},
            "One slot for each choice: for each choice that is dropped, a slot elsewhere is empty.",
        ),
        Step(
            "Favourites",
            {"skew": 1.5},
            "Some tokens find no room with any of their experts: the layer does nothing for them.",
        ),
        Step(
            "The limit",
            {"skew": 1.5, "factor": 4},
            "Room for all choices, and most of what the all-to-all carries is empty.",
        ),
        Step(
            "Your turn",
            {"skew": 1},
            "Find the smallest factor at which no token loses all its experts.",
        ),
    ),
    "context_parallel": (
        Step(
            "In one piece each",
            {},
            "A query sees the keys before it, so the last rank has the most to do.",
        ),
        Step(
            "One hop",
            {"step": 3},
            "At a hop, a rank whose keys have come from later in the sequence has nothing to compute.",
        ),
        Step(
            "The surprise",
            {"split": "zigzag"},
            "An early and a late piece for each rank: all work the same, and at each hop.",
        ),
        Step(
            "No mask",
            {"causal": False},
            "Where every query sees every key, the split does not matter.",
        ),
        Step(
            "The limit",
            {"context_parallel": 8},
            "More ranks with one piece each: ever closer to half the time is spent waiting.",
        ),
        Step(
            "Your turn",
            {"context_parallel": 8, "step": 1},
            "Play the hops of this split, then those of the other.",
        ),
    ),
}

for table in (OF_LAYOUTS, OF_COSTS, OF_RANKS):
    STORIES.update({name: tuple(Step(*step) for step in steps) for name, steps in table.items()})
