"""What backward still has to compute when an all-reduce is launched, from recorded events."""

import random

import torch
import torch.distributed as dist
from torch import nn

from allranks.check import exercise
from allranks.check.lab_02.common import device_of_rank, told_on_ranks
from allranks.check.labs import drawn, is_written
from allranks.trace import trace

HINTS = {"a second time": "One backward is enough: the events are recorded while it runs."}


class Averager:
    """Sends gradients of `model`: those numbered in `early` when they are ready, the others in finish()."""

    def __init__(self, model, early, chatty):
        self.parameters, self.early, self.chatty = list(model.parameters()), early, chatty
        self.works, self.finished, self.late = [], [], []
        for k, p in enumerate(self.parameters):
            p.register_post_accumulate_grad_hook(lambda p, k=k: self.arrive(k, p))

    def arrive(self, k, p):
        if self.chatty and k % 2:
            dist.broadcast(torch.zeros(1, device=p.device), src=0)
        if k in self.early:
            self.works.append(dist.all_reduce(p.grad, async_op=True))
        else:
            self.late.append(p)

    def finish(self):
        self.finished.append(len(self.works) + len(self.late))
        for p in self.late:
            self.works.append(dist.all_reduce(p.grad, async_op=True))
        for work in self.works:
            work.wait()
        self.works, self.late = [], []


@exercise
def overlap(answer):
    """`answer(averager, loss)`: for each all-reduce, the matrix products that came after it."""
    is_written(answer)
    draw = random.Random(drawn(23) if drawn(0) else None)
    depth = draw.randrange(4, 8)
    cases = [("early", range(100), False), ("late", (), False)]
    cases += [("some", sorted(draw.sample(range(2 * depth), depth)), chatty) for chatty in (False, True)]

    def on_rank():
        results = []
        for kind, early, chatty in cases:
            torch.manual_seed(drawn(23))
            layers = (nn.Linear(6, 6, device=device_of_rank()) for _ in range(depth))
            model = nn.Sequential(*layers)
            averager = Averager(model, set(early), chatty)
            loss = model(torch.randn(3, 6, device=device_of_rank())).square().sum()
            with trace() as counted:
                value = answer(averager, loss)
            results.append((kind, value, counted.events, averager.finished))
        dist.barrier()
        return results

    for rank, results in enumerate(told_on_ranks(HINTS, on_rank, world_size=2)):
        for kind, value, events, finished in results:
            case = f"On rank {rank}, with an averager that sends {_words(kind)}"
            assert finished and finished[0] == 2 * depth, (
                f"{case}: call averager.finish() once, after backward: {_what(finished)}."
            )
            assert value is not None, f"{case}: the function returned None: the return is missing."
            assert isinstance(value, list | tuple), (
                f"{case}: the function returned {str(value)[:30]}; expected a list."
            )
            expected = [events[k:].count("product") for k, e in enumerate(events) if e == "all_reduce"]
            found = list(value)
            assert all(type(n) is int for n in found), f"{case}: each entry is a number, not {found[:1]}."
            broadcasts = events.count("broadcast")
            assert not broadcasts or len(found) != len(expected) + broadcasts, (
                f"{case}: the list has an entry for each broadcast, too; only all-reduces carry gradients."
            )
            assert len(found) == len(expected), (
                f"{case}: the list has {len(found)} entries for {len(expected)} all-reduces. Those in "
                "finish() "
                "count too: is it called inside the `with`?"
            )
            before = [events[:k].count("product") for k, e in enumerate(events) if e == "all_reduce"]
            assert found == expected or found != before, (
                f"{case}: these are the products before each all-reduce; expected those that come after it."
            )
            assert found == expected, f"{case}: the list is {found}; expected {expected}, from the events."
    return "For every all-reduce, products_left says what backward still had to compute at its launch."


def _words(kind):
    return {
        "early": "each gradient at once",
        "late": "everything in finish()",
        "some": "some gradients at once and some in finish()",
    }[kind]


def _what(finished):
    return f"it came after {finished[0]} gradients" if finished else "it was not called"
