"""How long does a pipeline schedule take, where does it wait, and how much does it keep in memory?

The model: a rank executes its operations one at a time, in their order, each as soon as what it needs is
there: its own results at once, another rank's `transfer` seconds after they were computed. All ranks start
at time 0.
"""

from collections import namedtuple

from .inputs import quantity
from .schedules.operations import described, homes

Slot = namedtuple("Slot", "rank operation start end")
"""One operation in time: `rank` executes `operation` from `start` to `end`, in seconds."""


def simulate(
    schedule,
    forward=1.0,
    input_grad=1.0,
    weight_grad=1.0,
    transfer=0.0,
    *,
    overlap=True,
    kept_for_weight_grad=1.0,
):
    """Play a legal `schedule` and return its `Timeline`; the cost is linear in the number of operations.

    forward, input_grad, weight_grad: seconds of one micro-batch through one rank's whole share of the
    model (T_F, T_B and T_W of Qi et al. 2024, section 2). An operation on one of v chunks takes 1/v of it;
    a backward that is not split takes input_grad + weight_grad. A list instead of a number has one item
    for each rank (the time of its share) or one for each virtual stage (its time, as it is).
    transfer: seconds that a result takes to another rank.
    overlap: True if ranks compute during transfers; False if a transfer keeps both of its ranks busy, the
    sender after the operation that made the result, the receiver before the operation that needs it.
    kept_for_weight_grad: the part of a micro-batch's activations that stays from B until W (M_W / M_B of
    Qi et al. 2024, section 2); 1.0 keeps all.
    """
    quantity("transfer", transfer), quantity("kept_for_weight_grad", kept_for_weight_grad)
    if kept_for_weight_grad > 1:
        raise ValueError(f"kept_for_weight_grad must be a part of 1, not {kept_for_weight_grad}")
    home, orders = homes(schedule), schedule.orders
    if None in home:
        raise ValueError(f"{schedule.name} lacks a forward: schedules.check says which")
    seconds_f = _seconds("forward", forward, schedule, home)
    seconds_b = _seconds("input_grad", input_grad, schedule, home)
    seconds_w = _seconds("weight_grad", weight_grad, schedule, home)
    seconds_bw = [b + w for b, w in zip(seconds_b, seconds_w)]
    seconds_of = {"F": seconds_f, "B": seconds_b, "W": seconds_w, "BW": seconds_bw}
    work = schedule.microbatches * (sum(seconds_f) + sum(seconds_bw))
    if work == 0:
        raise ValueError("forward, input_grad and weight_grad must not all be 0")

    microbatches, count = schedule.microbatches, len(home)
    done = [None] * (2 * count)  # when each forward, then each input gradient, was computed
    waiting = {}  # the index in `done` of a missing result -> the rank that needs it next
    positions = [0] * len(orders)
    clocks = [0.0] * len(orders)
    starts, ends = [[] for _ in orders], [[] for _ in orders]
    runnable = list(range(len(orders)))[::-1]

    while runnable:
        rank = runnable.pop()
        order, clock, position = orders[rank], clocks[rank], positions[rank]
        my_starts, my_ends = starts[rank], ends[rank]
        while position < len(order):
            kind, microbatch, stage = order[position]
            this = stage * microbatches + microbatch
            if kind == "F":
                result, source, target, shift = this, this - microbatches, this + microbatches, 0
            else:
                result, source, target, shift = this + count, this + microbatches, this - microbatches, count
                if home[this] != rank or done[result if kind == "W" else this] is None:
                    break
            if kind != "W" and 0 <= source < count:
                sent = done[source + shift]
                if sent is None:
                    waiting[source + shift] = rank
                    break
                if home[source] != rank:
                    sent = (sent if overlap or sent > clock else clock) + transfer
                    if sent > clock:
                        clock = sent
            my_starts.append(clock)
            clock += seconds_of[kind][stage]
            my_ends.append(clock)
            position += 1
            if kind != "W":
                done[result] = clock
                if result in waiting:
                    runnable.append(waiting.pop(result))
                if not overlap and 0 <= target < count and home[target] != rank:
                    clock += transfer
        positions[rank], clocks[rank] = position, clock

    for rank, order in enumerate(orders):
        if positions[rank] < len(order):
            stuck = described(order[positions[rank]])
            raise ValueError(
                f"rank {rank} waits for ever at position {positions[rank]}, before {stuck}: "
                "schedules.check says what is missing"
            )
    return Timeline(schedule, starts, ends, work, kept_for_weight_grad)


def _seconds(name, value, schedule, home):
    """Seconds of an operation on each virtual stage."""
    stages, chunks = schedule.stages, schedule.chunks
    if not isinstance(value, (list, tuple)):
        return [quantity(name, value) / chunks] * (stages * chunks)
    for each in value:
        quantity(f"every item of {name}", each)
    if len(value) == stages * chunks:
        return list(value)
    if len(value) == stages:
        return [value[home[stage * schedule.microbatches]] / chunks for stage in range(stages * chunks)]
    raise ValueError(
        f"{name} must be a number, or a list of {stages} (one for each rank) or of {stages * chunks} "
        f"(one for each virtual stage), not of {len(value)}"
    )


class Timeline:
    """A schedule in time: `starts[rank]` and `ends[rank]`, in seconds, go with `schedule.orders[rank]`."""

    def __init__(self, schedule, starts, ends, work, kept_for_weight_grad):
        self.schedule, self.starts, self.ends = schedule, starts, ends
        self.work, self.kept_for_weight_grad = work, kept_for_weight_grad
        self.makespan = max(mine[-1] for mine in ends)

    def __repr__(self):
        name, stages, microbatches = self.schedule[:3]
        return f"<{name}, {stages} ranks, {microbatches} micro-batches: {self.makespan:g} s>"

    @property
    def slots(self):
        """Every operation in time, rank after rank: a list of `Slot(rank, operation, start, end)`."""
        return [
            Slot(rank, operation, start, end)
            for rank, order in enumerate(self.schedule.orders)
            for operation, start, end in zip(order, self.starts[rank], self.ends[rank])
        ]

    @property
    def spans(self):
        """For each rank the seconds from the start of its first operation to the end of its last."""
        return tuple(mine[-1] - first[0] for first, mine in zip(self.starts, self.ends))

    @property
    def ideal(self):
        """Seconds without a bubble: all work over the number of ranks, m(T_F+T_B+T_W) if they are equal."""
        return self.work / self.schedule.stages

    @property
    def bubble_of_ideal(self):
        """Idle time over *ideal* time: (makespan - ideal) / ideal (Narayanan et al. 2021, section 2.2)."""
        return (self.makespan - self.ideal) / self.ideal

    @property
    def bubble_of_total(self):
        """Idle time over *total* time: (makespan - ideal) / makespan (Huang et al. 2019, section 2.3)."""
        return (self.makespan - self.ideal) / self.makespan

    @property
    def zero_bubble_rate(self):
        """(cost - m(T_F+T_B+T_W)) / cost, where cost is the longest of the ranks' spans (Qi et al. 2024).

        A span begins with the rank's own first operation: if each rank may update its weights when it is
        done, the next batch fills the shift between the ranks.
        """
        cost = max(self.spans)
        return (cost - self.ideal) / cost

    def activations(self, rank):
        """Live activations of `rank` over time: a list of (seconds, how many live from then on).

        The unit is what one micro-batch leaves on a rank's whole share of the model. A forward on one of v
        chunks adds 1/v when it starts; BW or W removes it when it ends; B leaves `kept_for_weight_grad` of
        it.
        """
        chunks, kept = self.schedule.chunks, self.kept_for_weight_grad
        levels, whole, split = [], 0, 0
        for operation, start, end in zip(self.schedule.orders[rank], self.starts[rank], self.ends[rank]):
            kind, when = operation[0], end
            if kind == "F":
                whole, when = whole + 1, start
            elif kind == "BW":
                whole -= 1
            elif kind == "B":
                whole, split = whole - 1, split + 1
            else:
                split -= 1
            levels.append((when, (whole + kept * split) / chunks))
        return levels

    @property
    def peak_activations(self):
        """For each rank the most activations alive at once, as `activations` counts: (4, 3, 2, 1) in 1F1B."""
        return tuple(max(live for _, live in self.activations(rank)) for rank in range(self.schedule.stages))
