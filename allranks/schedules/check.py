"""Is a pipeline schedule complete and legal, and can it deadlock?

Complete: every forward, input gradient and weight gradient of every micro-batch on every virtual stage is
there once (a whole backward is both gradients). Legal: the three are on one rank; a forward comes after the
forward of the stage before, an input gradient after its forward and the input gradient of the stage after,
a weight gradient after its input gradient. No send is buffered: it blocks until the receiver has posted the
receive. What can deadlock then depends on when a rank posts its receives, and there are three models, each
stricter than the last:

- "posted": without waiting, in one order of all messages on which the ranks agree; only the operation that
  needs the data waits. So does torch's pipeline runtime, which inserts both ends of a message at once into
  the two ranks' lists. A schedule survives exactly if no ranks wait for each other in a circle: the
  messages can then be put in the order in which any run computes them, and the first one missing always has
  both its ends free.
- "paired": between two operations a rank posts the send of the first one's result and the receive for the
  second one together, and waits for both. So do the 1F1B of Megatron-LM and torch (send forward, receive
  backward).
- "blocking": one by one, first the send of a result, then the receive for the next operation. Here 1F1B
  deadlocks: two neighbours, one with a forward to send and one with a gradient, both send.
"""

from collections import namedtuple

from ..inputs import one_of, whole
from .operations import NAMES, described

SENDS = ("posted", "paired", "blocking")

Proof = namedtuple("Proof", "operations messages sends")
"""What `check` found: how many operations, how many messages between ranks, the strictest model survived."""


def check(schedule, sends="posted"):
    """Return the `Proof` that `schedule` is complete, legal, and free of deadlock; else raise ValueError.

    sends: the model of the module's text that it must survive. The `Proof` names the strictest that it
    does. The error names the rank, the position in its order, the operation, and what is missing there.
    """
    one_of("sends", sends, SENDS)
    whole("stages", schedule.stages), whole("microbatches", schedule.microbatches)
    whole("chunks", schedule.chunks)
    if len(schedule.orders) != schedule.stages:
        raise ValueError(f"{schedule.name} has {len(schedule.orders)} orders for {schedule.stages} ranks")
    places = _places(schedule)
    needs = _needs(schedule, places)
    survived = None
    for model in SENDS:
        circle = _circle(schedule, needs, places, model)
        if circle and SENDS.index(model) <= SENDS.index(sends):
            raise ValueError(f"{schedule.name} deadlocks with {model} sends: " + "; ".join(circle))
        if circle:
            break
        survived = model
    messages = sum(1 for mine in needs for source in mine if source is not None)
    return Proof(sum(len(order) for order in schedule.orders), messages, survived)


def _at(rank, position, operation):
    return f"rank {rank}, position {position}, {described(operation)}"


def _places(schedule):
    """Where each forward, input gradient and weight gradient is: for each kind, index -> (rank, position)."""
    microbatches, virtual = schedule.microbatches, schedule.stages * schedule.chunks
    places = {kind: [None] * (virtual * microbatches) for kind in "FBW"}
    for rank, order in enumerate(schedule.orders):
        for position, operation in enumerate(order):
            kind, microbatch, stage = operation
            if kind not in NAMES or not (0 <= microbatch < microbatches and 0 <= stage < virtual):
                raise ValueError(
                    f"rank {rank}, position {position}: {kind!r} of micro-batch {microbatch} on stage {stage} is none "
                    f"of F, B, W, BW of {microbatches} micro-batches on {virtual} virtual stages"
                )
            this = stage * microbatches + microbatch
            for part in kind:
                if places[part][this] is not None:
                    first, before = places[part][this]
                    raise ValueError(
                        f"{_at(rank, position, operation)}: {NAMES[part]} is also at rank {first}, "
                        f"position {before}"
                    )
                places[part][this] = rank, position
    for kind in "FBW":
        for this, place in enumerate(places[kind]):
            missing = described((kind, this % microbatches, this // microbatches))
            if place is None:
                raise ValueError(f"no rank has {missing}")
            if place[0] != places["F"][this][0]:
                raise ValueError(f"rank {place[0]} has {missing}, rank {places['F'][this][0]} its forward")
    return places


def _needs(schedule, places):
    """For each operation of each rank, the kind and index of the result it needs from another rank, or None.

    Raises where an operation precedes one of its own rank that it needs.
    """
    microbatches, count = schedule.microbatches, len(places["F"])
    needs = []
    for rank, order in enumerate(schedule.orders):
        mine = []
        for position, operation in enumerate(order):
            kind, microbatch, stage = operation
            this = stage * microbatches + microbatch
            required = []
            if kind == "F":
                if stage:
                    required.append(("F", this - microbatches))
            elif kind == "W":
                required.append(("B", this))
            else:
                required.append(("F", this))
                if this + microbatches < count:
                    required.append(("B", this + microbatches))
            remote = None
            for part, index in required:
                home, where = places[part][index]
                if home != rank:
                    remote = part, index
                elif where >= position:
                    raise ValueError(
                        f"{_at(rank, position, operation)}: needs "
                        f"{described((part, index % microbatches, index // microbatches))}, "
                        f"which comes later, at position {where}"
                    )
            mine.append(remote)
        needs.append(mine)
    return needs


def _programs(schedule, needs, places, model):
    """For each rank, its exchanges: lists of (is a send, message, position), each awaited as a whole."""
    wanted = {source: rank for rank, mine in enumerate(needs) for source in mine if source is not None}
    programs = []
    for rank, order in enumerate(schedule.orders):
        program, send = [], []
        for position, operation in enumerate(order):
            receive = [(False, needs[rank][position], position)] if needs[rank][position] else []
            program += [send, receive] if model == "blocking" else [send + receive]
            kind = operation.kind[0]
            result = kind, operation.stage * schedule.microbatches + operation.microbatch
            send = [(True, result, position)] if kind != "W" and result in wanted else []
        programs.append([exchange for exchange in [*program, send] if exchange])
    return programs, wanted


def _circle(schedule, needs, places, model):
    """Run the ranks' exchanges; where ranks wait for each other, what each of the circle does, else []."""
    programs, wanted = _programs(schedule, needs, places, model)
    met = {}  # message -> the rank that waits at its one end; None for a send that does not wait
    pending, steps = [0] * len(programs), [0] * len(programs)
    runnable = list(range(len(programs)))
    while runnable:
        rank = runnable.pop()
        program = programs[rank]
        while not pending[rank] and steps[rank] < len(program):
            for is_send, message, _ in program[steps[rank]]:
                if message in met:
                    other = met.pop(message)
                    if other is not None:
                        pending[other] -= 1
                        if not pending[other]:
                            runnable.append(other)
                elif is_send and model == "posted":
                    met[message] = None
                else:
                    met[message] = rank
                    pending[rank] += 1
            steps[rank] += 1
    seen = {}
    rank = next((rank for rank, waits in enumerate(pending) if waits), None)
    while rank is not None and rank not in seen:
        for is_send, message, position in programs[rank][steps[rank] - 1]:
            if met.get(message) == rank:
                kind, index = message
                peer = wanted[message] if is_send else places[kind][index][0]
                what = described((kind, index % schedule.microbatches, index // schedule.microbatches))
                verb = "sends" if is_send else "receives"
                way = "to" if is_send else "from"
                seen[rank] = f"rank {rank}, position {position}, {verb} {what} {way} rank {peer}"
                break
        rank = peer
    told = list(seen)
    return [seen[each] for each in told[told.index(rank) :]] if told else []
