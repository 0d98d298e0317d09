"""How much of what a backward pass sends does it hide? Measured behind a link that is slow on purpose.

Ranks of one machine have no network worth hiding. Here each message is real, and arrives after as long as a
slower link would carry it: `later` holds back one that is waited for, and a thread carries DDP's buckets, one
at a time.
"""

import time
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist

from allranks.parallel.ddp import DDP, Bucket

STEPS = 7


class Link:
    """A link that carries one message at a time, for `seconds_per_byte`."""

    def __init__(self, seconds_per_byte):
        self.seconds_per_byte = seconds_per_byte
        self.card = ThreadPoolExecutor(1)

    def carry(self, bucket):
        """Carry `bucket` after those before it; return the future of (start, arrival)."""
        return self.card.submit(self._carry, bucket)

    def _carry(self, bucket):
        start = time.perf_counter()
        bucket.work.wait()
        arrival = start + bucket.flat.nbytes * self.seconds_per_byte
        time.sleep(max(0, arrival - time.perf_counter()))
        return start, time.perf_counter()


def later(start, seconds):
    """Return `start`, each of whose messages arrives at least `seconds` after it began.

    `start(t, group)` begins a communication and returns a function that waits for it (`parallel.overlap`).
    """

    def begin(t, group=None):
        arrival = time.perf_counter() + seconds
        finish = start(t, group)

        def end():
            received = finish()
            time.sleep(max(0, arrival - time.perf_counter()))
            return received

        return end

    return begin


def reducer(link):
    """The class `DDP` with each bucket on `link`; a bucket's `times` are full, start, arrival."""

    class OnLink(Bucket):
        def put(self, p):
            super().put(p)
            self.full = time.perf_counter()

        def leave(self):
            super().leave()
            self.travel = link.carry(self)

        def arrive(self):
            self.times = [self.full, *self.travel.result()]
            super().arrive()

    return type("OnLinkDDP", (DDP,), {"bucket": OnLink})


def _backward(loss):
    dist.barrier()
    start = time.perf_counter()
    loss.backward()
    return start, time.perf_counter() - start


def passes(new_model, loss_of, caps, steps=STEPS):
    """Return (total, times) for each of `caps`, on each rank: the fastest backward pass of `steps`.

    new_model(): a model; loss_of(model): its loss on this rank; caps: bytes that close a bucket. The link
    carries all gradients in the time that backward takes without it, on the slowest rank, and this time is
    the unit of all results. times: [full, start, arrival] of each bucket. The first step, with one bucket,
    is left out.
    """
    alone = [_backward(loss_of(new_model()))[1] for _ in range(steps)]
    unit = torch.tensor(min(alone), dtype=torch.float64)
    dist.all_reduce(unit, op=dist.ReduceOp.MAX)
    unit, found = unit.item(), []
    nbytes = sum(p.nbytes for p in new_model().parameters())
    for cap in caps:
        link, model, measured = Link(unit / nbytes), new_model(), []
        on_link = reducer(link)(model, cap, cap)
        for step in range(steps + 1):
            start, total = _backward(loss_of(model))
            if step:
                times = [[(at - start) / unit for at in bucket.times] for bucket in on_link.buckets]
                measured.append((total / unit, times))
        link.card.shutdown()
        found.append(min(measured))
    return found


def bars(times):
    """Rows for `plots.timeline`: each bucket fills, then travels."""
    rows, filling = [], 0
    for number, (full, start, arrival) in enumerate(times, start=1):
        row = f"{number} of {len(times)}"
        rows += [(row, "backward", filling, max(full, filling)), (row, "communicate", start, arrival)]
        filling = max(full, filling)
    return rows
