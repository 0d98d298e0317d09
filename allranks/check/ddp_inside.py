"""The exercises of the chapter DDP, inside."""

import torch
import torch.distributed as dist
from torch import nn

from allranks import collectives, launch
from allranks.check import exercise
from allranks.check.stubs import is_number
from allranks.parallel.ddp import Bucket

SECONDS = 20.0
BACKWARD, BUCKETS, ALL_REDUCE = 70, 7, 15  # milliseconds, how many, milliseconds each


class Branches(nn.Module):
    """Two branches of one size; the one that is computed last gets its gradient first."""

    def __init__(self):
        super().__init__()
        self.branches = nn.ModuleList(nn.Linear(4, 4, bias=False) for _ in range(2))

    def forward(self, x, first):
        return sum((k + 1) * self.branches[k](x).square().sum() for k in (first, 1 - first))


def _branches():
    torch.manual_seed(0)
    return Branches(), torch.randn(2, 4, 4)


@exercise
def any_order(answer):
    """`answer` is a reducer: right in whatever order the gradients come, and early where it can be."""

    def on_rank():
        model, x = _branches()
        answer([[branch.weight] for branch in model.branches])
        rank = dist.get_rank()
        for _ in range(2):
            model.zero_grad()
            model(x[rank], first=rank).backward()
        dist.barrier()
        return [branch.weight.grad for branch in model.branches]

    def is_early():
        events = []

        class Noted(Bucket):
            def put(self, p):
                super().put(p)
                events.append("ready")

            def leave(self):
                super().leave()
                events.append("leaves")

        class Watched(answer):
            bucket = Noted

        model, x = _branches()
        Watched([[branch.weight] for branch in reversed(model.branches)])
        model(x[0], first=0).backward()
        dist.barrier()
        return events

    model, x = _branches()
    for rank in range(2):
        (model(x[rank], first=0) / 2).backward()
    for rank, gradients in enumerate(launch(on_rank, world_size=2, timeout=SECONDS, backend="gloo")):
        for which, (gradient, branch) in enumerate(zip(gradients, model.branches, strict=True)):
            expected = branch.weight.grad
            off = (gradient - expected).norm() / expected.norm()
            assert off < 1e-5, (
                f"Rank 0 gets the gradient of branch 1 first, rank 1 that of branch 0. Rank {rank}'s "
                f"gradient of branch {which} is off by {off:.0%}: an all-reduce adds whatever the ranks "
                "send."
            )
    events = launch(is_early, world_size=2, timeout=SECONDS, backend="gloo")[0]
    assert events == ["ready", "leaves", "ready", "leaves"], (
        "The gradients are right. But when they arrive in order, the first bucket has to leave before "
        f"the second is ready. What happened: {', '.join(events) or 'nothing'}."
    )
    return "The gradients are right in either order, and a bucket whose turn it is leaves once it is full."


@exercise
def exposed(answer):
    """`answer`: milliseconds of communication that seven buckets leave exposed."""
    ready = [BACKWARD * (k + 1) / BUCKETS for k in range(BUCKETS)]
    found = collectives.overlapped(ready, [[k] for k in range(BUCKETS)], [ALL_REDUCE] * BUCKETS)
    expected = found.exposed
    is_number(answer)
    assert abs(answer - ALL_REDUCE) > 0.5, "That is the last bucket alone. When have the others left?"
    assert abs(answer - (BUCKETS * ALL_REDUCE - BACKWARD)) > 0.5, (
        "Almost: what does the network do until the first bucket is full?"
    )
    assert abs(answer - found.end) > 0.5, (
        "That is when everything is done; how much of it comes after backward?"
    )
    assert abs(answer - expected) <= 0.5, (
        f"{answer:g} ms is not right: draw the seven buckets on one time axis."
    )
    return f"{expected:.0f} ms: the network is busy from the first full bucket to the end."
