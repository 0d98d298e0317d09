"""What does each way of cutting a small network hold and send? One training step, six strategies.

The network: `layers` layers of two matrices of hidden × neurons, each an MLP without attention; as experts
the same layers stand side by side, and a token visits one. Collectives are rings, all-to-alls go pair by
pair; a pipeline has one micro-batch for each rank, and all forwards before all backwards.
"""

from collections import namedtuple

from .collectives import (
    all_to_all_bytes,
    ring_all_gather_bytes,
    ring_all_reduce_bytes,
    ring_reduce_scatter_bytes,
)
from .inputs import multiple, one_of, quantity, whole

STRATEGIES = ("data", "sharded", "tensor", "pipeline", "sequence", "experts")
EACH_BYTES = {
    "all_reduce": ring_all_reduce_bytes,
    "all_gather": ring_all_gather_bytes,
    "reduce_scatter": ring_reduce_scatter_bytes,
    "all_to_all": all_to_all_bytes,
}


class Call(namedtuple("Call", "phase layer operation carries nbytes pairs sent")):
    """One collective, or the sends of a pipeline that leave together.

    phase: "forward" or "backward". layer: from 0, None for several. operation: a name of `EACH_BYTES`, or
    "send". carries: "weights", "gradients", "activations" or "tokens". nbytes: of the tensor. pairs: who
    sends to whom. sent: the bytes that each rank sends.
    """


def holds(strategy, rank, ranks=4):
    """What `rank` holds, as (the parts of the tokens, for each layer its parts): of `ranks` parts each.

    Of the layers there are as many as ranks.
    """
    one_of("strategy", strategy, STRATEGIES), whole("rank", rank, 0, whole("ranks", ranks) - 1)
    everything = tuple(range(ranks))
    tokens = everything if strategy in ("tensor", "pipeline") else (rank,)
    if strategy == "data":
        return tokens, (everything,) * ranks
    if strategy in ("pipeline", "experts"):
        return tokens, tuple(everything if layer == rank else () for layer in range(ranks))
    return tokens, ((rank,),) * ranks


def states_bytes(strategy, hidden=8, neurons=32, layers=4, ranks=4, element=4):
    """Bytes of states on a rank: each weight that it holds, its gradient, and two numbers for Adam."""
    one_of("strategy", strategy, STRATEGIES)
    every = 4 * element * 2 * whole("hidden", hidden) * whole("neurons", neurons) * whole("layers", layers)
    return every if strategy == "data" else every / whole("ranks", ranks)


def calls(strategy, tokens=16, hidden=8, neurons=32, layers=4, ranks=4, element=4):
    """Every `Call` of one step, in order: a list."""
    one_of("strategy", strategy, STRATEGIES), whole("tokens", tokens), whole("hidden", hidden)
    multiple("layers", whole("layers", layers), "ranks", whole("ranks", ranks))
    quantity("element", element, positive=True)
    weights, activations = 2 * element * hidden * whole("neurons", neurons), element * tokens * hidden
    forth, back, made = list(range(layers)), list(range(layers))[::-1], []

    def call(phase, layer, operation, carries, nbytes):
        pairs = [(rank, (rank + 1) % ranks) for rank in range(ranks)]
        if operation == "all_to_all":
            pairs = [(rank, other) for rank in range(ranks) for other in range(ranks) if other != rank]
        sent = (EACH_BYTES[operation](nbytes, ranks),) * ranks
        made.append(Call(phase, layer, operation, carries, nbytes, tuple(pairs), sent))

    if strategy == "data":
        call("backward", None, "all_reduce", "gradients", layers * weights)
    elif strategy == "sharded":
        for layer in forth:
            call("forward", layer, "all_gather", "weights", weights)
        for layer in back:
            call("backward", layer, "all_gather", "weights", weights)
            call("backward", layer, "reduce_scatter", "gradients", weights)
    elif strategy == "tensor":
        for phase, order in (("forward", forth), ("backward", back)):
            for layer in order:
                call(phase, layer, "all_reduce", "activations", activations)
    elif strategy == "sequence":
        for layer in forth:
            call("forward", layer, "all_gather", "activations", activations)
            call("forward", layer, "reduce_scatter", "activations", activations)
        for layer in back:
            for operation in ("all_gather", "all_gather", "reduce_scatter"):
                call("backward", layer, operation, "activations", activations)
    elif strategy == "experts":
        for phase in ("forward", "backward"):
            for _ in range(2):
                call(phase, None, "all_to_all", "tokens", activations / ranks)
    else:
        made += _sends(activations / ranks, ranks)
    return made


def _sends(nbytes, ranks):
    """The sends of a pipeline of `ranks` micro-batches: at each tick those that leave together."""
    for phase in ("forward", "backward"):
        for tick in range(2 * ranks - 2):
            places = [stage for stage in range(ranks - 1) if 0 <= tick - stage < ranks]
            pairs = [(stage, stage + 1) for stage in places]
            if phase == "backward":
                pairs = [(ranks - 1 - stage, ranks - 2 - stage) for stage in places]
            sources = [source for source, _ in pairs]
            sent = tuple(nbytes if rank in sources else 0 for rank in range(ranks))
            yield Call(phase, None, "send", "activations", nbytes, tuple(pairs), sent)


def sent_bytes(strategy, **sizes):
    """Bytes that each rank sends in a step, a list; sizes: as in `calls`."""
    return [sum(each) for each in zip(*[call.sent for call in calls(strategy, **sizes)])]
