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
  backward). Interleaved 1F1B needs more: Megatron-LM joins the four transfers around a forward and a
  backward in one call.
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
    messages = sum(1 for mine in needs for result in mine if result is not None)
    return Proof(sum(len(order) for order in schedule.orders), messages, survived)


def _index(kind, microbatch, stage, schedule):
    """The number of a result: forwards first, then input gradients, then weight gradients."""
    block = "FBW".index(kind) * schedule.stages * schedule.chunks
    return (block + stage) * schedule.microbatches + microbatch


def _result(index, schedule):
    """The result with this number, in words."""
    stage, microbatch = divmod(index, schedule.microbatches)
    block, stage = divmod(stage, schedule.stages * schedule.chunks)
    return described(("FBW"[block], microbatch, stage))


def _places(schedule):
    """The (rank, position) of each result; raises where one is missing, twice there, or on another rank."""
    microbatches, virtual = schedule.microbatches, schedule.stages * schedule.chunks
    places = [None] * (3 * virtual * microbatches)
    for rank, order in enumerate(schedule.orders):
        for position, (kind, microbatch, stage) in enumerate(order):
            at = f"rank {rank}, position {position}"
            numbers = isinstance(microbatch, int) and isinstance(stage, int)
            if kind not in NAMES or not (numbers and 0 <= microbatch < microbatches and 0 <= stage < virtual):
                raise ValueError(
                    f"{at}: {kind!r} of micro-batch {microbatch} on stage {stage} is not F, B, W or BW "
                    f"of {microbatches} micro-batches on {virtual} virtual stages"
                )
            for part in kind:
                index = _index(part, microbatch, stage, schedule)
                if places[index]:
                    raise ValueError(
                        f"{at}: {_result(index, schedule)} is also at rank {places[index][0]}, "
                        f"position {places[index][1]}"
                    )
                places[index] = rank, position
    for index, place in enumerate(places):
        if not place:
            raise ValueError(f"no rank has {_result(index, schedule)}")
        home = places[index % (virtual * microbatches)][0]
        if place[0] != home:
            raise ValueError(f"rank {place[0]} has {_result(index, schedule)}, but rank {home} its forward")
    return places


def _needs(schedule, places):
    """For each operation the number of the result that it needs from another rank, or None.

    Raises where an operation comes before one of its own rank that it needs.
    """
    microbatches, count = schedule.microbatches, len(places) // 3
    needs = []
    for rank, order in enumerate(schedule.orders):
        mine = []
        for position, operation in enumerate(order):
            kind, microbatch, stage = operation
            this = stage * microbatches + microbatch
            if kind == "F":
                required = (this - microbatches,) if stage else ()
            elif kind == "W":
                required = (count + this,)
            elif this + microbatches < count:
                required = (this, count + this + microbatches)
            else:
                required = (this,)
            remote = None
            for index in required:
                home, where = places[index]
                if home != rank:
                    remote = index
                elif where >= position:
                    raise ValueError(
                        f"rank {rank}, position {position}: {described(operation)} needs "
                        f"{_result(index, schedule)}, which comes later, at position {where}"
                    )
            mine.append(remote)
        needs.append(mine)
    return needs


def _programs(schedule, needs, wanted, model):
    """For each rank its exchanges, one after the other: lists of (is a send, message, position)."""
    programs = []
    for rank, order in enumerate(schedule.orders):
        program, send = [], []
        for position, (kind, microbatch, stage) in enumerate(order):
            message = needs[rank][position]
            receive = [] if message is None else [(False, message, position)]
            program += [send, receive] if model == "blocking" else [send + receive]
            message = _index(kind[0], microbatch, stage, schedule)
            send = [(True, message, position)] if message in wanted else []
        program.append(send)
        programs.append([exchange for exchange in program if exchange])
    return programs


def _circle(schedule, needs, places, model):
    """Run the ranks' exchanges; if ranks wait for each other, what each of the circle does, else nothing."""
    wanted = {index: rank for rank, mine in enumerate(needs) for index in mine if index is not None}
    programs = _programs(schedule, needs, wanted, model)
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
    ranks, told = [], []
    rank = next((rank for rank, waits in enumerate(pending) if waits), None)
    while rank is not None and rank not in ranks:
        ranks.append(rank)
        for is_send, message, position in programs[rank][steps[rank] - 1]:
            if met.get(message) == rank:
                peer = wanted[message] if is_send else places[message][0]
                verb, way = ("sends", "to") if is_send else ("receives", "from")
                what = _result(message, schedule)
                told.append(f"rank {rank}, position {position}, {verb} {what} {way} rank {peer}")
                break
        rank = peer
    return told[ranks.index(rank) :] if told else []
