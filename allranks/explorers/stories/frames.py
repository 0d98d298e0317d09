"""What stands around an explorer's picture? A question, the few controls in sight, and a story in steps.

A step is a state of the controls that somebody chose, with a sentence on what it shows; the tests hold each
sentence against the arithmetic. Only what shows an explorer reads this; the Python of a page does not.
"""

from collections import namedtuple

from . import STORIES

Frame = namedtuple("Frame", "question primary story")
"""The question that the picture answers, the names of at most three controls in sight, the steps."""

QUESTIONS = {
    "waiting": ("Who waits for whom, and does it ever end?", ("pattern", "ranks", "moment")),
    "all_reduce": (
        "How do all ranks end up with the same sum, and what does it cost?",
        ("algorithm", "world_size", "step"),
    ),
    "precision": (
        "What does a format keep of a number, and what does it lose?",
        ("dtype", "middle", "scale"),
    ),
    "averaging": (
        "Why does averaging gradients give the same model as one process?",
        ("way", "ranks", "step"),
    ),
    "memory": ("Does this training run fit, and what takes the memory?", ("model", "microbatch", "stage")),
    "buckets": (
        "How much of the all-reduce can the backward pass hide?",
        ("bucket", "bandwidth", "moment"),
    ),
    "compression": ("When do fewer bytes take less time?", ("method", "link", "ranks")),
    "local_updates": (
        "How fast must the link be when ranks seldom meet?",
        ("every", "delay", "link"),
    ),
    "zero": ("Who holds which slice of the model, and when does it move?", ("stage", "ranks", "phase")),
    "tensor_parallel": (
        "Which slice of each matrix does a rank hold, and when must ranks talk?",
        ("kind", "ranks", "step"),
    ),
    "pipeline": (
        "Where do the ranks of a pipeline wait, and for how long?",
        ("schedule", "stages", "microbatches"),
    ),
    "context_parallel": (
        "Who computes which part of attention when the sequence is split?",
        ("split", "context_parallel", "step"),
    ),
    "experts": ("Which tokens are dropped, and how many slots are empty?", ("factor", "skew", "top_k")),
    "mesh": ("Which ranks talk to one another, and over which links?", ("axis", "order", "rank")),
    "strategies": (
        "When a network is cut, what does each rank hold, and what must it send?",
        ("strategy", "step", "tokens"),
    ),
    "roofline": ("What bounds an operation: arithmetic or memory?", ("operation", "tokens", "device")),
    "layout": (
        "How should this model be divided over these devices?",
        ("tensor", "pipeline", "stage"),
    ),
    "decode": ("What bounds the time to the next token?", ("sequences", "ranks", "context")),
    "serving": ("Under load, when does each request get its tokens?", ("load", "policy", "budget")),
    "traces": ("Which rank do the others wait for?", ("trace", "zoom", "moment")),
    "goodput": ("How much of the time is spent training?", ("nodes", "rate", "save")),
}


def frame(name):
    """The `Frame` of the explorer `name`; one without a story has no steps."""
    question, primary = QUESTIONS[name]
    return Frame(question, primary, STORIES.get(name, ()))
