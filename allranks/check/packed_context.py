"""The exercises of the chapter Packed documents."""

import torch
import torch.distributed as dist

from allranks import attention, launch
from allranks.check import exercise
from allranks.check.answers import near
from allranks.check.stubs import is_returned

SECONDS = 20.0
COUNTS = (5, 1, 0, 10)  # tokens that count, on each of four ranks
DOCUMENTS = [65536] + [1024] * 64


@exercise
def share(answer):
    """`answer(total, count)`: the loss that a rank differentiates if gradients are averaged afterwards."""
    torch.manual_seed(0)
    parts = [torch.randn(count, 3) for count in COUNTS]
    right = torch.cat(parts).sum(0) / sum(COUNTS)  # the gradient of the mean of x · w

    def on_rank():
        w = torch.ones(3, requires_grad=True)
        x = parts[dist.get_rank()]
        loss = answer((x @ w).sum(), torch.tensor(len(x)))
        is_returned(loss, "a loss")
        loss.backward()
        gradient = torch.zeros(3) if w.grad is None else w.grad
        loss = loss.detach().float().clone()
        for t in (gradient, loss):
            dist.all_reduce(t, dist.ReduceOp.AVG)
        return gradient, loss

    for gradient, loss in launch(on_rank, world_size=len(COUNTS), timeout=SECONDS):
        assert loss.isfinite(), "The loss is not finite: a rank without a token that counts divides 0 by 0."
        assert not torch.allclose(gradient, right / len(COUNTS), rtol=1e-3), (
            f"The gradient is {len(COUNTS)} times too small: averaging divides by the number of ranks "
            "once more."
        )
        assert torch.allclose(gradient, right, rtol=1e-3), (
            "The averaged gradient differs from one process's: a token should weigh the same on every rank."
        )
        assert torch.allclose(loss, right.sum(), rtol=1e-3), (
            "The gradient is right; the mean of the ranks' losses should also be the loss of one process."
        )
    return f"The gradient equals one process's, with {', '.join(map(str, COUNTS))} tokens on the four ranks."


def _busiest():
    """Work of the busiest of 16 ranks, in means, if DOCUMENTS are dealt out whole."""
    dealt = attention.whole_documents(DOCUMENTS, 16)
    work = [sum(DOCUMENTS[each] * (DOCUMENTS[each] + 1) // 2 for each in documents) for documents in dealt]
    return max(work) * len(work) / sum(work)


@exercise
def busiest(answer):
    """`answer`: the busiest of 16 ranks, in means, with one document of 65,536 tokens and 64 of 1,024."""
    slips = {
        8: "That is its share of the tokens. Pairs grow with the square of a document's length.",
        16: "Almost: the 64 short documents also have a few pairs.",
        1 / (1 + 1 / 64): "That is its share of all pairs; compare it with the mean of 16 ranks.",
        64: "That is its work compared with all the short documents together.",
    }
    near(answer, _busiest(), slips)
    return f"{_busiest():.2f} times the mean: one rank has nearly all the pairs, and 15 wait."
