"""Gradients that leave in buckets while backward still computes."""

import itertools
from collections import Counter
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

from allranks import private
from allranks.check import exercise
from allranks.check.lab_02.common import (
    WORLDS,
    Mixed,
    Sent,
    device_of_rank,
    gradients_of,
    in_two_backwards,
    is_mean,
    tokens_of,
    told_on_ranks,
    weights_of,
)
from allranks.check.labs import drawn, is_written

PATIENCE = timedelta(seconds=8)  # that a rank has for its backward, which takes milliseconds
MIXED = (40, 150)  # bytes that close a bucket of the model with two dtypes
HINTS = {
    "doesn't require gradient": "A hook cannot be put on a parameter that needs no gradient: skip the frozen "
    "ones.",
    "before its wait()": "finish() has to wait for each bucket before it uses the result.",
    "still running": "Every rank has to send the same buckets in the same order: a bucket that is full "
    "waits for those before it.",
    "exited": "Every rank has to send the same buckets in the same order.",
    "one collective": "Every rank has to send the same buckets in the same order: a bucket that is full "
    "waits for those before it.",
}
_trials = itertools.count()  # of `_waits_inside`, on each rank alike


class Tower(nn.Module):
    """Layers one after the other, of sizes that the page does not show."""

    def __init__(self):
        super().__init__()
        sizes = [5, 9, 4, 7, 7, 3]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(sizes))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).tanh()
        return x.square().sum()


class Crossed(nn.Module):
    """Two branches of one size; the one that is computed last gets its gradient first."""

    def __init__(self):
        super().__init__()
        self.branches = nn.ModuleList(nn.Linear(4, 4, bias=False) for _ in range(2))

    def forward(self, x, first):
        return sum((k + 1) * self.branches[k](x).square().sum() for k in (first, 1 - first))


def _new(kind, *args):
    torch.manual_seed(drawn(19))
    return kind(*args)


def _rows(rank, width):
    return torch.randn(4, width, generator=torch.Generator().manual_seed(drawn(300 + rank)))


def packing(sizes, most):
    """Indices of the tensors in each bucket: (bytes, dtype) in the order in which they are put in."""
    filling, lists = {}, []
    for k, (_, dtype) in enumerate(sizes):
        bucket = filling.setdefault(dtype, [])
        bucket.append(k)
        if sum(sizes[i][0] for i in bucket) >= most:
            lists.append(filling.pop(dtype))
    return lists + list(filling.values())


def _order(buckets_of):
    """In a tower: the bytes of each all-reduce, and how many had been issued when each gradient was ready."""
    model, issued = _new(Tower).to(device_of_rank()), []
    sizes = [(p.nbytes, p.dtype) for p in reversed(list(model.parameters()))]
    most = sizes[0][0] + sizes[1][0] + sizes[2][0] + sizes[3][0]  # what four tensors hold exactly
    averager = buckets_of(model, most)
    for p in model.parameters():
        p.register_post_accumulate_grad_hook(lambda _: issued.append(len(counted.sums)))
    loss = model(_rows(dist.get_rank(), 5).to(device_of_rank()))
    with Sent() as counted:
        loss.backward()
        early = len(counted.sums)
        averager.finish()
    others = sorted(set(counted.calls) - {"all_reduce"})
    return counted.sums, issued, early, others, gradients_of(model), (sizes, most)


def _crossed(buckets_of):
    """Rank 0 gets the gradient of branch 1 first, the others that of branch 0."""
    model = _new(Crossed).to(device_of_rank())
    averager = buckets_of(model, 1)
    model(_rows(dist.get_rank(), 4).to(device_of_rank()), first=min(1, dist.get_rank())).backward()
    averager.finish()
    return gradients_of(model)


def _mixed(buckets_of, most):
    """Two dtypes, a tied weight, frozen ones; two backwards, of which the second adds to the first."""
    model = _new(Mixed, False).to(device_of_rank())
    averager, before, results = buckets_of(model, most), weights_of(model), []
    for step in range(2):
        loss = model(tokens_of(dist.get_rank(), step).to(device_of_rank()))
        with Sent() as counted:
            loss.backward()
            averager.finish()
        results.append((gradients_of(model), counted.sums))
    return results, torch.equal(before, weights_of(model))


def _waits_inside(buckets_of):
    """Whether rank 0 can end its backward only after another rank has begun its own."""
    model, last = _new(Tower).to(device_of_rank()), dist.get_world_size() - 1
    averager, store, key = buckets_of(model, 100), private.default_store(), f"lab_02 {next(_trials)}"
    loss, waits = model(_rows(dist.get_rank(), 5).to(device_of_rank())), False
    if dist.get_rank() == last:
        try:
            store.wait([key], PATIENCE)
        except RuntimeError:  # nothing came in time
            waits = True
    loss.backward()
    if dist.get_rank() == 0:
        store.set(key, "backward has ended")
    averager.finish()
    return waits


@exercise
def buckets(packed, buckets_of):
    """`buckets_of(model, bucket_bytes)` sends full buckets inside backward; `finish()` ends a step."""
    is_written(packed, buckets_of)

    def on_rank(patient):
        lists = packed(list(_new(Tower).parameters()), 1)
        ordered = _order(buckets_of)
        mixed = [_mixed(buckets_of, most) for most in MIXED]
        results = ordered, _crossed(buckets_of), mixed, patient and _waits_inside(buckets_of)
        dist.barrier()
        return len(list(lists)), results

    for world_size, options in WORLDS:
        ranks = told_on_ranks(HINTS, on_rank, world_size == 2, world_size=world_size, **options)
        for rank, (_, results) in enumerate(ranks):
            _is_ordered(results[0], rank, world_size)
        for rank, (_, results) in enumerate(ranks):
            _is_right_when_crossed(results[1], rank, world_size)
            for most, mixed in zip(MIXED, results[2], strict=True):
                _is_right_when_mixed(*mixed, most, rank, world_size)
        assert not any(results[3] for _, results in ranks), (
            f"The gradients are right, but rank 0 waited inside backward for rank {world_size - 1}: launch "
            "the "
            "all-reduce with async_op=True, and wait for it in finish()."
        )
        for rank, (count, _) in enumerate(ranks):
            assert count == 10, f"On rank {rank}, packed(parameters, 1) has {count} lists for 10 parameters."
    return "Full buckets leave in turn, while backward computes; finish() leaves the mean on every rank."


def _gradients(model, loss_of_rank, world_size):
    """The mean of the ranks' gradients, and a list of those of each rank."""
    every = []
    for rank in range(world_size):
        model.zero_grad()
        loss_of_rank(rank).backward()
        every.append({name: p.grad.clone() for name, p in model.named_parameters()})
    return {name: sum(own[name] for own in every) / world_size for name in every[0]}, every


def _is_ordered(result, rank, world_size):
    sums, issued, early, others, gradients, (sizes, most) = result
    case = f"On {world_size} ranks, rank {rank}"
    lists = packing(sizes, most)
    expected = [sum(sizes[k][0] for k in bucket) for bucket in lists]
    found = [nbytes for nbytes, _ in sums]
    total, all_sent = sum(expected), sum(found)
    assert not others, f"{case} sends gradients by {' and '.join(others)}; a bucket is one all-reduce."
    assert found, f"{case} sends no gradient: register the hooks, and launch the all-reduces."
    dtypes = {dtype for _, dtype in sums} - {torch.float32}
    assert not dtypes, (
        f"{case} sends fp32 gradients in {dtypes.pop()}; a bucket has the dtype of its gradients."
    )
    assert all_sent >= total, (
        f"{case} sends {all_sent} of {total} bytes: gradients are left in a bucket that never fills."
    )
    model = _new(Tower)
    means, every = _gradients(model, lambda r: model(_rows(r, 5)), world_size)
    for name, mean in means.items():
        is_mean(gradients[name], mean, every[rank][name], f"{case}'s gradient of {name}", world_size)
    assert early, (
        f"{case}: the gradients are right, but none was sent before backward ended: launch a bucket when "
        "its last "
        "gradient is ready."
    )
    given = (
        f"bucket_bytes={most} and gradients of {', '.join(str(n) for n, _ in sizes)} bytes (last one first)"
    )
    definition = packing(sizes[::-1], most)
    assert found == expected or found != [sum(sizes[::-1][k][0] for k in b) for b in definition], (
        f"{case}: buckets follow the order of definition, so the first one fills last; backward goes in "
        "reverse order."
    )
    assert found == expected, (
        f"{case}: with {given}, the messages have {found} bytes; expected {expected}: a bucket is full once "
        "it "
        "holds bucket_bytes or more."
    )
    for k, bucket in enumerate(lists):
        now = issued[max(bucket)]
        assert now > k, (
            f"{case}: bucket {k} was not sent when its last gradient, number {max(bucket) + 1}, was ready."
        )


def _is_right_when_crossed(gradients, rank, world_size):
    model = _new(Crossed)
    means, _ = _gradients(model, lambda r: model(_rows(r, 4), first=0), world_size)
    for name, mean in means.items():
        off = float((gradients[name] - mean).norm() / mean.norm())
        assert off < 1e-4, (
            f"On {world_size} ranks, rank 0 gets the gradient of branch 1 first, the others of branch 0, "
            "and rank "
            f"{rank}'s gradient of {name} is off by {off:.0%}. All ranks must send their buckets in the same "
            "order, however the gradients arrive."
        )


def _is_right_when_mixed(results, unchanged, most, rank, world_size):
    case = f"On {world_size} ranks, rank {rank}"
    assert unchanged, f"{case}: the weights have changed; average only their gradients."
    expected = in_two_backwards(lambda: _new(Mixed, False), world_size)
    model = _new(Mixed, False)
    sizes = [(p.nbytes, p.dtype) for p in reversed(list(model.parameters())) if p.requires_grad]
    messages = Counter((sum(sizes[k][0] for k in b), sizes[b[0]][1]) for b in packing(sizes, most))
    for step, (gradients, sums) in enumerate(results):
        model = _new(Mixed, False)
        model(tokens_of(rank, step)).backward()
        own = gradients_of(model)
        where = " in the second backward, which adds to it," if step else ""
        for name, mean in expected[step].items():
            before = expected[0][name] if step and mean is not None else 0
            alone = None if own[name] is None else own[name] + before
            is_mean(gradients[name], mean, alone, f"{case}'s gradient of {name}{where}", world_size)
        for dtype in (torch.float32, torch.float64):
            found, right = (sum(n for n, d in which if d == dtype) for which in (sums, messages.elements()))
            assert found == right, (
                f"{case} sends {found} bytes of {dtype}, but the gradients have {right}: a bucket has one "
                "dtype."
            )
        assert Counter(sums) == messages, (
            f"{case}: with bucket_bytes={most}, a model of two dtypes sends messages of "
            f"{[n for n, _ in sums]} bytes; expected {[n for n, _ in messages.elements()]}, in some order."
        )
