"""Do real ranks keep to a schedule? Their stages sleep, so every operation takes a known time.

Ranks of one machine read one clock. A loaded machine wakes a sleeper late and never early, so of several
runs the quickest is closest to the schedule.
"""

import time

import torch
import torch.distributed as dist
from torch import nn

from allranks.lowering import lower
from allranks.parallel.pipeline import PASSES, Mail, Stage, step


class _Sleep(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t, before, after, nap):
        ctx.after, ctx.nap = after, nap
        nap(before)
        return t.clone()

    @staticmethod
    def backward(ctx, gradient):
        ctx.nap(ctx.after)
        return gradient, None, None, None


class Sleeper(nn.Linear):
    """One weight times the input, any shape to the same shape; each pass sleeps and is logged.

    naps: seconds of each kind of pass, {"F": …, "BW": …}, or {"F": …, "B": …, "W": …} for a backward in two
    halves. In the second form, the nap of a half is taken only when that gradient is computed. log: a list
    of (kind, start, end) in seconds of the machine's clock.
    """

    def __init__(self, naps, log):
        super().__init__(1, 1, bias=False)
        nn.init.ones_(self.weight)
        self.naps, self.log = naps, log

    def _nap(self, kind):
        if kind:
            start = time.monotonic()
            time.sleep(self.naps[kind])
            self.log.append((kind, start, time.monotonic()))

    def forward(self, x):
        if "BW" in self.naps:
            return _Sleep.apply(x * self.weight, "F", "BW", self._nap)
        weight = _Sleep.apply(self.weight, None, "W", self._nap)
        return _Sleep.apply(x, "F", "B", self._nap) * weight


def mean_of(y, _):
    """A loss for sleepers: the mean of the output, whatever the target."""
    return y.mean()


def run(schedule, naps, repeats=1, kind=Stage, passes=PASSES, device="cpu"):
    """Run a schedule of sleeping stages on this rank; return a log of (kind, start, end) for each repeat.

    naps: seconds of a whole stage's passes, as for `Sleeper`; one of v chunks sleeps 1/v of them. kind and
    passes: the stages and passes of `allranks.parallel.pipeline`, or those of another module.
    """
    rank, m, last = dist.get_rank(), schedule.microbatches, schedule.stages * schedule.chunks - 1
    program, logs = lower(schedule).steps[rank], []
    naps = {name: seconds / schedule.chunks for name, seconds in naps.items()}
    numbers = sorted({stage for _, _, stage in schedule.orders[rank]})
    for _ in range(repeats):
        logs.append([])
        stages = {
            n: kind(nn.Sequential(Sleeper(naps, logs[-1])).to(device), n, mean_of if n == last else None)
            for n in numbers
        }
        inputs = [torch.ones(1, 1, device=device, requires_grad=True) for _ in range(m)]
        dist.barrier()
        step(stages, Mail(torch.empty(1, 1, device=device)), program, inputs, inputs, passes)
    return logs


def quickest(ranks, unit):
    """The quickest of all ranks' repeats, as `run` returns them: a list of (rank, kind, start, end).

    Times are in units of `unit` seconds, from the start of the first operation.
    """
    runs = []
    for logs in zip(*ranks, strict=True):
        zero = min(start for log in logs for _, start, _ in log)
        bars = [
            (rank, kind, (start - zero) / unit, (end - zero) / unit)
            for rank, log in enumerate(logs)
            for kind, start, end in log
        ]
        runs.append(bars)
    return min(runs, key=lambda bars: max(end for *_, end in bars))


def planned(timeline):
    """The same list for what `allranks.simulate.simulate` returns, in its own units."""
    return [(slot.rank, slot.operation.kind, slot.start, slot.end) for slot in timeline.slots]


def furthest_apart(one, other):
    """The largest difference between the starts, or the ends, of the same operation in two such lists.

    ValueError if they do not list the same operations in the same order on every rank.
    """
    if [bar[:2] for bar in one] != [bar[:2] for bar in other]:
        raise ValueError("the two lists differ in operations or order: compare runs of one schedule")
    pairs = zip(one, other, strict=True)
    return max(abs(a - b) for mine, its in pairs for a, b in zip(mine[2:], its[2:], strict=True))
