"""Which order of the split backward is best under a memory limit? The zero-bubble paper's automatic search.

The model is that of split_backward.py, with the time of a transfer between neighbouring ranks added. The
search is the heuristic of Qi et al. 2024, section 3.1, as it is in the authors' script, from which the
paper's bubble rates (table 5) come: in rounds of one forward and one input gradient a rank, with three
yes-or-no choices (the paper names two), run for all eight combinations.
"""

from ..inputs import quantity, whole
from .operations import FORWARD, INPUT_GRAD, WEIGHT_GRAD, Operation, Schedule


def zero_bubble(
    stages,
    microbatches,
    memory_limit,
    *,
    forward=1.0,
    input_grad=1.0,
    weight_grad=1.0,
    transfer=0.0,
    kept_for_weight_grad=1.0,
):
    """The best schedule that the heuristic finds; no rank holds more activations than `memory_limit`.

    `memory_limit` is in M_B, the activations of one micro-batch on one rank: `stages` gives the paper's
    ZB-1p, `2 * stages` its ZB-2p (section 5.1). `kept_for_weight_grad` is M_W/M_B, the part that stays from
    the end of B to the end of W; 1, the default, is the cautious choice. The durations are those of one
    micro-batch on one rank.

    Best is the smallest cost: the longest time of a rank from the start of its first operation to the end
    of its last (section 5.3). A larger limit does not always give a smaller cost: it is a heuristic.
    """
    whole("stages", stages)
    whole("microbatches", microbatches)
    if quantity("memory_limit", memory_limit) < 1:
        raise ValueError(f"memory_limit must be a number of at least 1 micro-batch, not {memory_limit}")
    quantity("forward", forward, positive=True)
    quantity("input_grad", input_grad, positive=True)
    quantity("weight_grad", weight_grad, positive=True)
    quantity("transfer", transfer)
    if quantity("kept_for_weight_grad", kept_for_weight_grad) > 1:
        raise ValueError(f"kept_for_weight_grad must be a number from 0 to 1, not {kept_for_weight_grad}")
    durations = forward, input_grad, weight_grad, transfer
    best = None
    for late_first_b in (False, True):
        for skip_forward in (True, False):
            for fill_small_gap in (True, False):
                plan = _Plan(stages, microbatches, memory_limit, kept_for_weight_grad, durations)
                plan.fill(late_first_b, skip_forward, fill_small_gap)
                if best is None or plan.cost() < best.cost():
                    best = plan
    return Schedule("zero_bubble", stages, microbatches, 1, tuple(tuple(order) for order in best.orders))


def memory_plateau(stages, forward, input_grad, transfer=0.0):
    """The memory limit, in M_B, from which on more helps little: ((p-1)(T_B+2T_comm) + pT_F) / T_F.

    So many forwards fit before the first input gradient can come back to the first rank (Qi et al. 2024,
    section 5.4); about 2p where T_B is near T_F and transfers are short.
    """
    whole("stages", stages), quantity("forward", forward, positive=True)
    quantity("input_grad", input_grad), quantity("transfer", transfer)
    return ((stages - 1) * (input_grad + 2 * transfer) + stages * forward) / forward


class _Plan:
    """The orders so far, and for each rank when it is free, what it holds, and how long it was idle."""

    def __init__(self, stages, microbatches, memory_limit, kept_for_weight_grad, durations):
        self.stages, self.microbatches, self.limit = stages, microbatches, memory_limit
        self.kept_for_weight_grad = kept_for_weight_grad
        self.forward, self.input_grad, self.weight_grad, self.transfer = durations
        self.orders = [[] for _ in range(stages)]
        self.f_ends = [[] for _ in range(stages)]
        self.b_ends = [[] for _ in range(stages)]
        self.w_count = [0] * stages
        self.free = [0] * stages
        self.idle = [0] * stages
        self.most_idle = 0

    def cost(self):
        starts = [ends[0] - self.forward for ends in self.f_ends]
        return max(free - start for free, start in zip(self.free, starts))

    def f_arrives(self, rank):
        """When the input of the next forward of `rank` is there."""
        return self.f_ends[rank - 1][len(self.f_ends[rank])] + self.transfer if rank else 0

    def b_arrives(self, rank):
        """When the output gradient for the next input gradient of `rank` is there."""
        if rank == self.stages - 1:
            return 0
        return self.b_ends[rank + 1][len(self.b_ends[rank])] + self.transfer

    def w_waiting(self, rank):
        return len(self.b_ends[rank]) - self.w_count[rank]

    def f_fits(self, rank, more=0, w_done=0):
        """Whether one more forward fits after `more` others and `w_done` weight gradients."""
        between_f_and_b = len(self.f_ends[rank]) - len(self.b_ends[rank]) + more
        kept = (self.w_waiting(rank) - w_done) * self.kept_for_weight_grad
        return between_f_and_b + 1 + kept <= self.limit

    def run_f(self, rank):
        start = max(self.free[rank], self.f_arrives(rank))
        if self.f_ends[rank]:
            self.add_idle(rank, start - self.free[rank])
        self.orders[rank].append(Operation(FORWARD, len(self.f_ends[rank]), rank))
        self.free[rank] = start + self.forward
        self.f_ends[rank].append(self.free[rank])

    def run_b(self, rank):
        start = max(self.free[rank], self.b_arrives(rank))
        self.add_idle(rank, start - self.free[rank])
        self.orders[rank].append(Operation(INPUT_GRAD, len(self.b_ends[rank]), rank))
        self.free[rank] = start + self.input_grad
        self.b_ends[rank].append(self.free[rank])

    def run_w(self, rank):
        self.orders[rank].append(Operation(WEIGHT_GRAD, self.w_count[rank], rank))
        self.free[rank] += self.weight_grad
        self.w_count[rank] += 1

    def add_idle(self, rank, gap):
        self.idle[rank] += gap
        self.most_idle = max(self.most_idle, self.idle[rank])

    def fill(self, late_first_b, skip_forward, fill_small_gap):
        """Run everything: a rank always keeps a forward ahead of the next rank until it has none left."""
        self.warm_up(late_first_b)
        for _ in range(1, self.microbatches):
            wanted = [self.forward_wanted(rank, skip_forward) for rank in range(self.stages)]
            for rank in range(self.stages - 2, -1, -1):
                wanted[rank] = wanted[rank] and wanted[rank + 1]
            for rank in range(self.stages):
                if wanted[rank]:
                    while not self.f_fits(rank):
                        self.run_w(rank)
                    if rank:
                        self.fill_gap(rank, self.f_arrives(rank), fill_small_gap)
                    self.run_f(rank)
            for rank in range(self.stages - 1, -1, -1):
                if rank < self.stages - 1:
                    self.fill_gap(rank, self.b_arrives(rank), fill_small_gap)
                if rank == 0 and len(self.f_ends[0]) == self.microbatches:
                    while self.w_waiting(0):
                        self.run_w(0)
                self.run_b(rank)
        for rank in range(self.stages):
            while self.w_count[rank] < self.microbatches:
                self.run_w(rank)

    def warm_up(self, late_first_b):
        """As many forwards before the first B as memory allows and as its arrival leaves time for.

        With `late_first_b` false the last of them ends before that B could start; with true it may delay it.
        """
        for rank in range(self.stages):
            self.run_f(rank)
        more = [0] * self.stages
        b_end = self.free[-1] + self.input_grad
        for rank in range(self.stages - 2, -1, -1):
            arrives = b_end + self.transfer
            free = self.free[rank]
            while 1 + more[rank] < self.microbatches and self.f_fits(rank, more[rank]):
                if free + (0 if late_first_b else self.forward) > arrives or free == arrives:
                    break
                free += self.forward
                more[rank] += 1
            b_end = max(free, arrives) + self.input_grad
        for rank in range(1, self.stages):
            while more[rank] and more[rank] >= more[rank - 1] and 1 + more[rank] < self.microbatches:
                more[rank] -= 1
        for rank in range(self.stages):
            for _ in range(more[rank]):
                self.run_f(rank)
        for rank in range(self.stages - 1, -1, -1):
            self.run_b(rank)

    def forward_wanted(self, rank, skip_forward):
        """Whether `rank` runs a forward in this round; it may skip one if two ahead of the next rank."""
        done = len(self.f_ends[rank])
        if done == self.microbatches:
            return False
        if not skip_forward or rank == self.stages - 1 or done < len(self.f_ends[rank + 1]) + 2:
            return True
        next_free = self.free[rank + 1] + self.forward + self.input_grad + self.transfer
        if self.free[rank] >= next_free:
            return False
        first = 0
        while first < self.w_waiting(rank) and not self.f_fits(rank, w_done=first):
            first += 1
        if self.free[rank] + first * self.weight_grad + self.forward <= next_free:
            return True
        return next_free - self.free[rank] > self.most_idle - self.idle[rank]

    def fill_gap(self, rank, until, fill_small_gap):
        """Run weight gradients until the time `until`, and into the last gap one that is longer than it.

        That one only if `fill_small_gap`, or if the gap would make `rank` the one that idles most.
        """
        while self.w_waiting(rank) and self.free[rank] + self.weight_grad <= until:
            self.run_w(rank)
        gap = until - self.free[rank]
        if self.w_waiting(rank) and gap > 0 and (fill_small_gap or gap > self.most_idle - self.idle[rank]):
            self.run_w(rank)
