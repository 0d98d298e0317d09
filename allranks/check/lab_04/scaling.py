"""Unscaling, and the decisions of a loss scaler, on one rank and shared by all ranks."""

import math
import random

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

from allranks.check import exercise
from allranks.check.lab_04.common import device_of_rank, is_about, relative
from allranks.check.labs import is_written, on_ranks
from allranks.check.stubs import is_returned
from allranks.launch import LaunchError, RanksTimedOut
from allranks.trace import trace


def _unscaled(answer, world_size):
    """Try the answer on gradients of all kinds; return what it returned and did, and what was in them."""
    device, rank, results = device_of_rank(), dist.get_rank(), []
    mesh = init_device_mesh(device, (world_size,))
    for bad, scale in ((None, 2.0**12), (math.inf, 2.0**12), (math.nan, 8.0), (-math.inf, 8.0), (None, 1.0)):
        for place in range(3):
            gradients = [torch.full((5,), 2.0e38), torch.randn(2, 3), torch.zeros(0, 4), torch.randn(4, 2)]
            if place == 2:  # as FSDP2 has them: each rank holds rows
                gradients = [torch.zeros(0, 4), torch.randn(3, 2)]
            if bad is not None and (place < 2 or rank == world_size - 1):
                gradients[(1, 3, 1)[place]][-1, 0] = bad
            tensors = [g.clone().to(device) for g in gradients]
            if place == 2:
                tensors = [DTensor.from_local(g, mesh, [Shard(0)], run_check=False) for g in tensors]
            weights = [nn.Parameter(torch.zeros_like(t)) for t in tensors]
            for weight, tensor in zip(weights, tensors, strict=True):
                weight.grad = tensor
            frozen = nn.Parameter(torch.zeros(3, device=device))
            optimizer = torch.optim.SGD([{"params": [frozen, *weights[:1]]}, {"params": weights[1:]}], lr=1.0)
            given = [weight.grad for weight in weights]
            found_inf = answer(optimizer, scale)
            here = any(not g.isfinite().all() for g in gradients)
            kept = all(p.grad is g for p, g in zip(weights, given, strict=True))
            unscaled = [g.to_local() if place == 2 else g for g in given]
            close = kept and [
                _distance(f.cpu().double(), g.double() / scale)
                for f, g in zip(unscaled, gradients, strict=True)
                if len(g)
            ]
            found_inf = found_inf if found_inf is None or found_inf is ... else bool(found_inf)
            results.append((here, found_inf, close, place == 2, scale, bad))
    return results


def _distance(found, right):
    """Relative to `right`, among its finite elements; infinite if the others are not what they were."""
    finite = right.isfinite()
    if not torch.equal(found[~finite].nan_to_num(nan=0.0), right[~finite].nan_to_num(nan=0.0)):
        return math.inf
    return relative(found[finite], right[finite]) if finite.any() else 0.0


@exercise
def unscale(answer):
    """`answer(optimizer, scale)` divides the gradients; True if one on this rank is not finite."""
    is_written(answer)
    for world_size in (2, 3):
        for rank, results in enumerate(on_ranks(_unscaled, answer, world_size, world_size=world_size)):
            for here, found_inf, close, sharded, scale, bad in results:
                where = f"Rank {rank}" + (", gradients sharded as by FSDP2" if sharded else "")
                is_returned(found_inf, "True or False", f"{where}: the function")
                assert close is not False, (
                    f"{where}: a parameter has another gradient than before the call, or none: divide the "
                    "tensor that is there (`/=`), since others may hold it too."
                )
                assert found_inf or not here, f"{where}: a gradient contains {bad}; expected True, not False."
                assert here or not found_inf, (
                    f"{where}: all gradients are finite, but the function returned True."
                    + (
                        f" (The {bad} is on another rank: look at `here(p.grad)`.)"
                        if bad is not None
                        else " (They go up to 2e38, and their sum overflows.)"
                    )
                )
                assert max(close) < 1e-5 or scale == 1, (
                    f"{where}: a gradient was not divided by {scale:g}; "
                    + (
                        f"one contains {bad}, and the others are divided all the same, and none is replaced."
                        if here
                        else "go through all parameters of all groups."
                    )
                )
                assert max(close) < 1e-5, f"{where}: with a scale of 1 a gradient has changed."
    return (
        "Every gradient is divided; infinities and NaN are found, also in this rank's part of sharded ones."
    )


def _decisions(scaler, steps, device="cpu"):
    """Take `steps`, each (factor of a gradient, whether `unscale_` is called); return the results.

    Each step starts from weights of 1. A result is the scale before the step, two weights after it, how often
    the optimizer stepped, and whether the gradients are still there: plain SGD with gradients of zero would
    move nothing, and other optimizers do.
    """
    weights = [nn.Parameter(torch.ones(3, device=device)), nn.Parameter(torch.ones(2, 2, device=device))]
    optimizer = torch.optim.SGD([{"params": weights[:1]}, {"params": weights[1:]}], lr=1.0)
    one, log, taken = torch.ones((), device=device), [], []
    optimizer.register_step_post_hook(lambda *_: taken.append(1))
    for factor, explicit in steps:
        optimizer.zero_grad()
        scale = scaler.scale(one)
        if not isinstance(scale, torch.Tensor):
            return "`scale` should return a tensor."
        scaler.scale(weights[0].sum() * 0.25 + weights[1].sum() * factor).backward()
        if explicit:
            scaler.unscale_(optimizer)
            if getattr(scaler, "found_inf", False) in (None, ...):
                return "`found_inf` is None after `unscale_`; expected True or False (see also Task 3)."
        scaler.step(optimizer)
        left = all(w.grad is not None and bool(w.grad.any()) for w in weights)
        scaler.update()
        moved = [w.detach().flatten()[0].item() for w in weights]
        log.append((scale.item(), moved, len(taken), left))
        taken.clear()
        with torch.no_grad():
            for w in weights:
                w.fill_(1.0)
    return log


def _steps(seed, count=40):
    luck = random.Random(seed)
    factors = [luck.choice((0.5, 0.5, 0.5, 0.5, math.inf, math.nan)) for _ in range(count - 9)]
    factors = [0.5] * 9 + factors  # long enough for a scale to grow at first
    return [(factor, luck.random() < 0.5) for factor in factors]


def _judge_decisions(log, steps, expected, who, interval):
    assert isinstance(log, list), f"{who}: {log}"
    for number, (result, (right, moved, *_)) in enumerate(zip(log, expected, strict=True)):
        scale, weights, taken, left = result
        factor, explicit = steps[number]
        before = [f for f, _ in steps[max(0, number - 6) : number]]
        lately = ", ".join("finite" if math.isfinite(f) else str(f) for f in before)
        assert scale == right, (
            f"{who}: the steps before step {number} were {lately}. With an interval of {interval} "
            f"GradScaler's scale is now {right:g}; yours is {scale:g}."
        )
        case = f"{who}, step {number}"
        if not math.isfinite(factor):
            assert weights == moved, f"{case}: a gradient is {factor}, but the step was not skipped."
            assert not taken, (
                f"{case}: a gradient is {factor}, but optimizer.step() was called. Even with gradients of "
                "zero, "
                "momentum or weight decay would move the weights."
            )
            continue
        assert weights != [1.0, 1.0], f"{case}: all gradients are finite, but the weights have not moved."
        assert left, f"{case}: the gradients are gone after `step`; zeroing them is up to the training loop."
        ratio = (1 - weights[1]) / (1 - moved[1])
        assert right == 1 or not is_about(ratio, 1 / right), (
            f"{case}: the gradients were divided by the scale twice, "
            f"{'by `unscale_` and again by `step`' if explicit else 'both in `step`'}."
        )
        assert right == 1 or not is_about(ratio, right), (
            f"{case}: the weights moved by the scaled gradient; unscale it first."
        )
        assert all(is_about(w, m, 1e-5) for w, m in zip(weights, moved, strict=True)), (
            f"{case}: a weight is {weights[1]:g}; expected {moved[1]:g}."
        )
        assert taken == 1, f"{case}: optimizer.step() was called {taken} times; expected once."


@exercise
def loss_scaler(answer):
    """`answer(init_scale, growth_factor, backoff_factor, growth_interval)` decides like GradScaler."""
    is_written(answer)

    def on_rank(parts, options):
        return _decisions(answer(*options), parts[dist.get_rank()], device_of_rank())

    for world_size, options in ((3, (2.0, 2.0, 0.5, 4)), (2, (2.0**10, 4.0, 0.25, 1))):
        parts = [_steps(seed=10 * world_size + rank) for rank in range(world_size)]
        for rank, log in enumerate(on_ranks(on_rank, parts, options, world_size=world_size)):
            oracle = _decisions(torch.amp.GradScaler("cpu", *options), parts[rank])
            _judge_decisions(log, parts[rank], oracle, f"Rank {rank}", options[-1])
    return "In 200 steps on five ranks, the scale and the skipped steps match GradScaler's."


@exercise
def rank_scaler(answer):
    """`answer(…)`, a LossScaler whose ranks decide as one, though each has gradients of its own."""
    is_written(answer)

    def on_rank(parts, options):
        with trace() as counted:
            log = _decisions(answer(*options), parts[dist.get_rank()], device_of_rank())
        messages = len(counted.log), sum(call.nbytes for call in counted.log)
        dist.barrier()
        return log, messages

    options, count = (2.0**12, 2.0, 0.5, 3), 24
    for world_size in (2, 3, 4):
        luck = random.Random(world_size)
        shared = [luck.choice((0, 0, 0, 0, 1, 1, world_size)) for _ in range(count)]
        bad = [luck.sample(range(world_size), k) for k in shared]
        parts = [
            [(math.inf if rank in bad[step] else 0.5, step % 2 == 0) for step in range(count)]
            for rank in range(world_size)
        ]
        together = [(math.inf if ranks else 0.5, True) for ranks in bad]
        oracle = _decisions(torch.amp.GradScaler("cpu", *options), together)
        try:
            # Under NCCL's rules what is not waited for is wrong each time; on gloo it is often there in time.
            results = on_ranks(on_rank, parts, options, world_size=world_size, rules="nccl")
        except LaunchError as late:
            if not isinstance(late, RanksTimedOut) and "same collective on all ranks" not in str(late):
                raise
            raise AssertionError(
                f"Your scaler did not finish: {late}. Does every rank take part in the all-reduce, "
                "even one that already knows the answer?"
            ) from late
        for rank, (log, (calls, nbytes)) in enumerate(results):
            assert isinstance(log, list), f"Rank {rank}: {log}"
            for step, (result, (right, moved, *_)) in enumerate(zip(log, oracle, strict=True)):
                scale, weights, taken, _ = result
                case = f"Step {step} of {world_size} ranks"
                overflowed = f"rank{'s' * (len(bad[step]) > 1)} {' and '.join(map(str, sorted(bad[step])))}"
                assert scale == right, f"{case}: on rank {rank} the scale is {scale:g}; expected {right:g}."
                skipped = not taken and weights == [1.0, 1.0]
                assert skipped or not bad[step], (
                    f"{case}: {overflowed} overflowed, but rank {rank} took the step: from now "
                    "on their weights differ. If one rank skips, all must."
                )
                assert bad[step] or not skipped, f"{case}: no rank has an overflow, but rank {rank} skipped."
                assert all(is_about(w, m, 1e-5) for w, m in zip(weights, moved, strict=True)), (
                    f"{case}: on rank {rank} a weight is {weights[1]:g}; expected {moved[1]:g}."
                )
            assert nbytes <= 8 * count and calls <= count, (
                f"The decisions on rank {rank} are right, but cost {calls / count:g} messages and "
                f"{nbytes / count:.0f} bytes a step: one number is enough."
            )
    return "2, 3 and 4 ranks decide as one, which costs each rank one number a step."
