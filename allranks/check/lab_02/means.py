"""Means over ranks: of values and of gradients."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from allranks.check import exercise
from allranks.check.lab_02.common import (
    Sent,
    device_of_rank,
    is_close,
    multiple_of,
    plain,
    weights_of,
)
from allranks.check.labs import all_on_ranks, are_close, drawn, is_tensor, is_written, on_ranks

INPUTS = (((), torch.float32), ((5,), torch.float32), ((2, 3), torch.float64))  # shape and dtype


@exercise
def reduce_mean(answer):
    """`answer(x)` is the mean of `x` over all ranks."""
    is_written(answer)

    def values(rank, shape, dtype):
        return (
            torch.rand(shape, generator=torch.Generator().manual_seed(drawn(31 + rank)), dtype=dtype) + rank
        )

    def on_rank():
        results = []
        for shape, dtype in INPUTS:
            leaf = values(dist.get_rank(), shape, dtype).to(device_of_rank()).requires_grad_()
            x = leaf * 1  # with a graph behind it, like a loss
            before = x.detach().clone()
            mean = answer(x)
            graph = isinstance(mean, torch.Tensor) and mean.requires_grad
            lost = not x.requires_grad
            results.append((plain(mean), torch.equal(x.detach(), before), graph, lost))
        return results

    for world_size in (2, 3, 4):
        for rank, results in enumerate(on_ranks(on_rank, world_size=world_size)):
            for (shape, dtype), (mean, unchanged, graph, lost) in zip(INPUTS, results, strict=True):
                every = torch.stack([values(r, shape, dtype) for r in range(world_size)])
                what = f"On {world_size} ranks, what rank {rank} returned for a tensor of shape {shape}"
                is_tensor(mean, what, shape, dtype)
                _is_mean_of_values(mean, every, rank, what)
                assert unchanged, f"On rank {rank}, the input has changed; sum a copy of it."
                assert not lost, (
                    f"On rank {rank}, the input has lost its graph, and its backward is still to come: "
                    "x.detach() makes another tensor, x.detach_() changes this one."
                )
                assert not graph, (
                    f"{what} carries a graph, which stays in memory as long as the number does; detach it."
                )
    return "Each of 2, 3 and 4 ranks has their mean; the input has not changed."


def _is_mean_of_values(mean, every, rank, what):
    """Fail unless `mean` is that of all ranks' values, which may be this rank's own value by chance."""
    if not is_close(mean, every.mean(0)):
        assert not is_close(mean, every.sum(0)), f"{what} is the sum; divide it by {len(every)}."
        assert not is_close(mean, every[rank]), (
            f"{what} is its own value{'; rank 0 may have the mean, but every rank needs it' if rank else ''}."
        )
        factor = multiple_of(mean, every.mean(0))
        assert factor is None, f"{what} is {factor:.3g} times the mean."
    are_close(mean, every.mean(0), what)


class Detours(nn.Module):
    """Tied, frozen and fp64 weights, a layer that no rank uses and one that only some ranks use."""

    def __init__(self):
        super().__init__()
        self.detour = nn.Linear(5, 5)
        self.token, self.head = nn.Embedding(7, 5), nn.Linear(5, 7, bias=False)
        self.head.weight = self.token.weight
        self.frozen, self.wide = nn.Linear(5, 5).requires_grad_(False), nn.Linear(5, 5).double()
        self.unused, self.silent = nn.Linear(5, 3), nn.Parameter(torch.ones(2))

    def forward(self, tokens, detour):
        x = self.frozen(self.token(tokens)) + 0 * self.silent.sum()  # a gradient of zeros is a gradient
        x = x + self.wide(x.double()).to(x.dtype)
        return F.cross_entropy(self.head(x + self.detour(x) if detour else x), tokens)


def _chain():
    return nn.Sequential(nn.Linear(6, 5), nn.GELU(), nn.Linear(5, 3))


def _with_gradients(kind, rank, device="cpu"):
    """A model after the `backward` of a rank; with `kind` "some", ranks 2 and 3 take the detour.

    With `kind` "before" there has been no `backward` yet.
    """
    torch.manual_seed(drawn(7))
    model = (_chain() if kind == "chain" else Detours()).to(device)
    model = model.double() if kind == "some" else model
    torch.manual_seed(drawn(50 + rank))
    if kind == "before":
        return model
    if kind == "chain":
        model(torch.randn(4, 6).to(device)).square().sum().backward()
    else:
        model(torch.randint(7, (6,)).to(device), kind == "some" and rank >= 2).backward()
    return model


@exercise
def average_gradients(answer):
    """`answer(model)` makes every gradient the mean over ranks: one all-reduce a dtype, and a small one."""
    is_written(answer)

    def on_rank(kind):
        model = _with_gradients(kind, dist.get_rank(), device_of_rank())
        before = weights_of(model)
        with Sent() as counted:
            answer(model)
        dist.barrier()
        gradients = {name: plain(p.grad) for name, p in model.named_parameters()}
        return gradients, torch.equal(weights_of(model), before), (counted.calls, counted.sums)

    hints = {
        "chain": "",
        "none": "No rank has a gradient for unused.weight, and frozen.weight needs none.",
        "some": "Only ranks 2 and 3 have gradients for the layer `detour`, but all ranks have to send the "
        "same messages.",
        "before": "No rank has any gradient before the first backward.",
    }
    strict = {"backend": "gloo", "rules": "nccl"}
    for kind, world_size in (("chain", 2), ("none", 3), ("some", 4), ("before", 2)):
        own = [
            {name: p.grad for name, p in _with_gradients(kind, rank).named_parameters()}
            for rank in range(world_size)
        ]
        options = strict if kind == "none" else {}
        results = all_on_ranks(hints[kind], on_rank, kind, world_size=world_size, **options)
        for rank, (gradients, unchanged, _) in enumerate(results):
            assert unchanged, f"On rank {rank} the weights have changed; average only their gradients."
            for name, gradient in gradients.items():
                _is_mean(gradient, name, rank, [gradients_of_rank[name] for gradients_of_rank in own])
        given = {name: g for ranks in own for name, g in ranks.items() if g is not None}
        for rank, (*_, sent) in enumerate(results):
            _are_few(*sent, given, f"On {world_size} ranks, rank {rank}")
    return "Every gradient is the mean over ranks; what is None on all ranks stays None."


def _are_few(calls, sums, given, case):
    """Fail unless the gradients `given` travelled in one all-reduce for each dtype, and one small one."""
    dtypes = list(dict.fromkeys(g.dtype for g in given.values()))
    names = ", ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
    assert calls["all_reduce"] <= len(dtypes) + 1, (
        f"{case}: all gradients are right, but took {calls['all_reduce']} all-reduces: put those of one "
        "dtype "
        f"({names}) into one vector, and send that."
    )
    others = set(calls) - {"all_reduce", "barrier"}
    assert not others, (
        f"{case}: all gradients are right, but travelled by {' and '.join(sorted(others))}; expected "
        "all-reduces, "
        "whose messages do not grow with the number of ranks."
    )
    for dtype in dtypes:
        nbytes = sum(g.nbytes for g in given.values() if g.dtype == dtype)
        sent = max((n for n, d in sums if d == dtype), default=0)
        assert sent >= nbytes, (
            f"{case}: all gradients are close, but those in {dtype} travelled in another dtype: torch.cat "
            "makes "
            "one dtype of two; a vector for each dtype keeps every digit and sends no byte too many."
        )
        assert sent <= 1.2 * nbytes + 400, (
            f"{case}: all gradients are right, but a message of {sent} bytes is for {nbytes} bytes of "
            "gradients "
            f"in {dtype}: a vector for each dtype."
        )


def _is_mean(gradient, name, rank, own):
    """Fail unless `gradient` is the mean of the ranks' `own` gradients of the parameter `name`."""
    world_size = len(own)
    what = f"On {world_size} ranks, rank {rank}'s gradient of {name}"
    given = [g for g in own if g is not None]
    if not given:
        assert gradient is None, (
            f"{what} was None on every rank and is a tensor now: AdamW would apply weight decay to it."
        )
        return
    expected = sum(given) / world_size
    if gradient is None:
        assert any(g.any() for g in given), (
            f"{what} is None and was a tensor of zeros: that is a gradient, and AdamW decays the weight."
        )
        raise AssertionError(
            f"{what} is None, but other ranks have one: they will update it, and rank {rank} will not."
        )
    is_tensor(gradient, what, expected.shape, expected.dtype)
    if not expected.any():
        assert not gradient.any(), f"{what} should be zeros, as on every rank; another parameter's is there."
        return
    if own[rank] is not None and not is_close(own[rank], expected):
        assert not is_close(gradient, own[rank]), f"{what} is still its own; expected the mean over ranks."
    assert not is_close(gradient, sum(given)), f"{what} is the sum; divide it by {world_size}."
    if len(given) < world_size:
        assert not is_close(gradient, sum(given) / len(given)), (
            f"{what} is the mean of the {len(given)} ranks that have one; the others count as zero."
        )
    factor = multiple_of(gradient, expected)
    tied = " It is tied to head.weight: two names, one gradient." if name == "token.weight" else ""
    assert factor is None or abs(factor - 1) < 1e-3, f"{what} is {factor:.3g} times the mean.{tied}"
    are_close(gradient, expected, what)
