"""How does communication hide behind a product? It starts before a product that does not need it.

A column-parallel layer sums its input's gradient while it computes its weight's (Megatron Core,
`LinearWithGradAccumulationAndAsyncCommunication`). A product that needs the communication is cut into as many
as there are ranks, so that each piece travels beside another's product (Wang et al. 2023). What starts a
communication returns a function that waits for it; `noted` writes each wait into a list of events.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F


def start_sum(t, group=None):
    """Begin to sum `t` over the ranks, in place; return a function that waits and returns the sum."""
    request = dist.all_reduce(t, group=group, async_op=True)

    def finish():
        request.wait()
        return t

    return finish


def start_shift(t, group=None):
    """Begin to send `t` to the next rank of the ring; return a function that waits for the previous rank's.

    `t` may be read meanwhile, not written to.
    """
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    received = torch.empty_like(t)
    requests = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.isend, t, group=group, group_peer=(rank + 1) % ranks),
            dist.P2POp(dist.irecv, received, group=group, group_peer=(rank - 1) % ranks),
        ]
    )

    def finish():
        for request in requests:
            request.wait()
        return received

    return finish


def noted(start, events):
    """Return `start`, whose every message appends "wait" to `events` when it is waited for."""

    def begin(t, group=None):
        finish = start(t, group)

        def end():
            events.append("wait")
            return finish()

        return end

    return begin


class SumBesideProduct(torch.autograd.Function):
    """f and a matrix cut by columns: the sum over ranks runs beside the weight's gradient."""

    @staticmethod
    def forward(ctx, x, weight, group, start):
        ctx.save_for_backward(x, weight)
        ctx.group, ctx.start = group, start
        return F.linear(x, weight)

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        finish = ctx.start(dy @ weight, ctx.group)
        of_weight = dy.flatten(0, -2).T @ x.flatten(0, -2)
        return finish(), of_weight, None, None


def linear(x, weight, group=None, start=start_sum):
    """Return `x` (…, inputs), equal on all ranks, times this rank's `weight` (outputs / ranks, inputs)."""
    return SumBesideProduct.apply(x, weight, group, start)


def gather_product(x, weight, group=None, start=start_shift):
    """Return all ranks' `x` (tokens / ranks, inputs) times `weight`, (tokens, outputs / ranks): no autograd.

    In each step the part that is here is multiplied while it travels on, and the next one arrives.
    """
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    y = [None] * ranks
    for step in range(ranks):
        finish = start(x, group) if step < ranks - 1 else None
        y[(rank - step) % ranks] = F.linear(x, weight)
        x = finish() if finish else x
    return torch.cat(y)


def product_scatter(x, weight, group=None, start=start_shift):
    """Return this rank's tokens of the sum of all ranks' `x` times `weight`: no autograd.

    `x` is (tokens, inputs / ranks), `weight` (outputs, inputs / ranks), the result (tokens / ranks, outputs).
    A sum travels the ring while the next rank's product, which it will be added to, is computed there.
    ValueError if the ranks cannot share the tokens evenly.
    """
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    if len(x) % ranks:
        raise ValueError(f"{ranks} ranks cannot share {len(x)} tokens evenly")
    parts, finish = x.chunk(ranks), None
    for step in range(ranks):
        y = F.linear(parts[(rank - 1 - step) % ranks], weight)
        y = y + finish() if finish else y
        finish = start(y, group) if step < ranks - 1 else None
    return y
