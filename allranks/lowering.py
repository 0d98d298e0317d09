"""What does each rank of a pipeline compute, send and receive, and when? A schedule, lowered to a program.

The model: a rank posts an exchange between two operations, all that it sends and receives there as one batch,
and waits for one only before the operation that needs it. When ranks post in one order of all messages, no
exchange waits in vain (see `streams`). Such an order is that in which `simulate` has the results ready.
"""

from collections import namedtuple

from .inputs import quantity
from .schedules.operations import Operation, described, homes
from .simulate import simulate
from .streams import Broken, Judge, Part

Message = namedtuple("Message", "way result peer")
"""One end of a message: way "send" or "recv", to or from the rank `peer`. It carries the `result` of an
operation (kind, microbatch, stage), kind "F" for an activation and "B" for the gradient of an input."""

Exchange = namedtuple("Exchange", "kind messages")
"""Messages that a rank posts together; kind "X" tells it from an `Operation`."""

Program = namedtuple("Program", "schedule steps")
"""`steps[rank]`: the operations of the rank, in their order, and the exchanges between them."""


def lower(schedule, forward=1.0, input_grad=1.0, weight_grad=1.0):
    """Return the `Program` that runs a legal `schedule`; it cannot hang, whatever its operations take.

    forward, input_grad, weight_grad: as of `simulate`, above 0. They decide which messages share an
    exchange: a rank posts after an operation what has become ready since that began.
    """
    for name, value in (("forward", forward), ("input_grad", input_grad), ("weight_grad", weight_grad)):
        for each in value if isinstance(value, (list, tuple)) else [value]:
            quantity(name, each, positive=True)
    timeline = simulate(schedule, forward, input_grad, weight_grad)
    ready = {}  # (rank, position) of an operation: when its result is there
    for rank, ends in enumerate(timeline.ends):
        for position, end in enumerate(ends):
            ready[rank, position] = end
    messages = sorted((ready[source], source, result, to) for source, result, to in transfers(schedule))
    steps = []
    for rank, order in enumerate(schedule.orders):
        mine = [message for message in messages if rank in (message[1][0], message[3])]
        mine.reverse()
        program = []
        for operation, start in zip(order, timeline.starts[rank]):
            batch = []
            while mine and mine[-1][0] <= start:
                batch.append(_end(rank, mine.pop()))
            program += [Exchange("X", tuple(batch))] if batch else []
            program.append(operation)
        batch = tuple(_end(rank, message) for message in reversed(mine))
        steps.append(tuple(program + ([Exchange("X", batch)] if batch else [])))
    return Program(schedule, tuple(steps))


def unbatched(schedule):
    """The `Program` that comes to mind first: receive what the next operation needs, compute, send.

    Each message is an exchange of its own. `check` says where NCCL hangs: in 1F1B, between two neighbours of
    whom each sends first.
    """
    steps = [[] for _ in schedule.orders]
    needs = {(to, consumer(result)): (rank, result) for (rank, _), result, to in transfers(schedule)}
    leaves = {(rank, result): to for (rank, _), result, to in transfers(schedule)}
    for rank, order in enumerate(schedule.orders):
        for operation in order:
            needed = needs.get((rank, _name(operation)))
            if needed and operation.kind != "W":
                steps[rank].append(Exchange("X", (Message("recv", needed[1], needed[0]),)))
            steps[rank].append(operation)
            peer = leaves.get((rank, _name(operation)))
            if peer is not None and operation.kind != "W":
                steps[rank].append(Exchange("X", (Message("send", _name(operation), peer),)))
    return Program(schedule, tuple(tuple(mine) for mine in steps))


def transfers(schedule):
    """Every message between ranks: (rank, position) of the operation that makes it, its name, its receiver.

    The name of a result is (kind, micro-batch, stage), kind "F" or "B".
    """
    home, found = homes(schedule), []
    for rank, order in enumerate(schedule.orders):
        for position, operation in enumerate(order):
            _, microbatch, stage = consumer(_name(operation))
            if operation.kind != "W" and 0 <= stage < schedule.stages * schedule.chunks:
                to = home[stage * schedule.microbatches + microbatch]
                if to != rank:
                    found.append(((rank, position), _name(operation), to))
    return found


def consumer(result):
    """The name of the operation that needs a result: the same pass through the next stage on its way."""
    kind, microbatch, stage = result
    return kind, microbatch, stage + (1 if kind == "F" else -1)


def check(program, buffered=False):
    """Return how many messages and exchanges a program has; raise ValueError if NCCL would hang in it.

    buffered: True if NCCL's buffers hold every message, as they may hold small ones.
    """
    steps, everybody = program.steps, tuple(range(len(program.steps)))
    judge = Judge(len(steps), buffered=1 if buffered else 0)
    places = [0 for _ in steps]
    left = [{} for _ in steps]  # of each exchange posted, how many messages have not met their other end
    comes = [{} for _ in steps]  # name of a result: the exchange that brings it
    runnable = list(everybody)
    try:
        while runnable:
            rank = runnable.pop()
            for place in range(places[rank], len(steps[rank])):
                places[rank], step = place, steps[rank][place]
                if step.kind == "X":
                    left[rank][place] = len(step.messages)
                    comes[rank].update({message.result: place for message in step.messages})
                    parts = [_part(message) for message in step.messages]
                    judge.issue(rank, place, "pp", everybody, parts)
                elif left[rank].get(comes[rank].get(_needed(step))):
                    judge.wait(rank, comes[rank][_needed(step)])
                    break
            else:
                judge.leave(rank)
            for other, place, _, _ in judge.verdicts:
                left[other][place] -= 1
                if other not in runnable and places[other] < len(steps[other]) - 1:
                    runnable.append(other)
            judge.verdicts.clear()
    except Broken as broken:
        raise ValueError(f"{program.schedule.name}: {broken}") from None
    exchanges = [step.messages for mine in steps for step in mine if step.kind == "X"]
    return sum(len(messages) for messages in exchanges) // 2, len(exchanges)


def _part(message):
    way, result, peer = message
    return Part(way, peer, described(result), 1, None)


def _needed(operation):
    """The name of the result of another stage that an operation needs, if there is such a stage."""
    kind, microbatch, stage = operation
    return ("F", microbatch, stage - 1) if kind == "F" else ("B", microbatch, stage + 1)


def _name(operation):
    kind, microbatch, stage = operation
    return Operation("F" if kind == "F" else "B", microbatch, stage)


def _end(rank, message):
    """The end of a message at `rank`."""
    _, (sender, _), result, receiver = message
    return Message("send", result, receiver) if rank == sender else Message("recv", result, sender)
