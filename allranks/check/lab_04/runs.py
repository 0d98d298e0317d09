"""The same run in fp32, bf16 and fp16: its losses, what underflows, and which steps are skipped."""

import functools
import math

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from allranks.check import exercise
from allranks.check.lab_04.clipping import OwnScaler
from allranks.check.lab_04.common import BF16, FP16, FP32, device_of_rank, is_about, joined, new_gpt, relative
from allranks.check.labs import digits, drawn, is_written, on_ranks
from allranks.model import loss_of

LR, COUNT = 0.2, 6
PART = 0.1  # of a step
SIZES = {"layers": 1, "hidden": 16, "heads": 2}
CASES = {"fp32": (FP32, 1.0, 0.5), "bf16": (BF16, 1.0, 0.3), "fp16": (FP16, 2.0**18, 0.5)}
WORLDS = ((2, 1, ("fp32", "bf16", "fp16")), (3, 0, ("fp16",)))  # ranks, the one that overflows, runs


class Growing(OwnScaler):
    """A scale that is doubled after each finite step."""

    def update(self):
        self.value *= 1.0 if self.found_inf else 2.0
        super().update()


def _scaler(name):
    return (Growing if name == "bf16" else OwnScaler)(CASES[name][1])


def _backward(model, tokens, scaler, dtype, is_planted):
    """Run forward in `dtype` and backward of the scaled loss, and return the loss, not scaled."""
    device = tokens.device.type
    with torch.autocast(device, dtype=dtype, enabled=dtype != FP32):
        loss = loss_of(model, tokens)
    scaler.scale(loss * (math.inf if is_planted else 1.0)).backward()
    return loss.detach()


def _parts(world_size, attempt):
    torch.manual_seed(drawn(world_size + 10 * attempt))
    return digits()[torch.randint(1797, (COUNT, world_size, 2)), :25]


def _serial(name, parts, victim, dtype, left_out=()):
    """A run of all ranks' parts in this process: (log, the shares of zeros averaged over tensors, weights).

    left_out: the steps that another run has skipped.
    """
    model, scaler, log, by_tensor = new_gpt(SIZES), _scaler(name), [], []
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    if dtype == FP32:
        scaler.value = 1.0
    for number, ranks in enumerate(parts):
        losses, gradients = [], []
        for rank, tokens in enumerate(ranks):
            planted = name == "fp16" and dtype == FP16 and (number, rank) == (COUNT - 2, victim)
            losses.append(_backward(model, tokens, scaler, dtype, planted).item())
            gradients.append([p.grad for p in model.parameters()])
            optimizer.zero_grad()
        for p, *each in zip(model.parameters(), *gradients, strict=True):
            p.grad = torch.stack(each).mean(0)
        zeros = [(p.grad == 0).float() for p in model.parameters()]
        by_tensor.append(sum(z.mean().item() for z in zeros) / len(zeros))
        scaler.unscale_(optimizer)
        scaler.found_inf = skipped = scaler.found_inf or number in left_out
        nn.utils.clip_grad_norm_(model.parameters(), CASES[name][2])
        scaler.step(optimizer)
        scaler.update()
        log.append((sum(losses) / len(losses), joined(zeros).mean().item(), skipped))
        optimizer.zero_grad()
    return log, by_tensor, joined(model.parameters())


def _expected(name, parts, victim):
    """What `_serial` says of a run, and whether it is near fp32's with the same steps skipped.

    Near is less than `PART` of a step: of the fall of the loss in a mean step.
    """
    log, by_tensor, weights = _serial(name, parts, victim, CASES[name][0])
    skips = [number for number, (*_, skipped) in enumerate(log) if skipped]
    fp32, *_ = _serial(name, parts, victim, FP32, skips)
    apart = max(abs(loss - right) for (loss, *_), (right, *_) in zip(log, fp32, strict=True))
    fall = (max(loss for loss, *_ in fp32) - fp32[-1][0]) / (COUNT - len(skips))
    return (log, by_tensor, weights), apart < PART * fall


@functools.cache
def _runs(world_size, victim, names, draw):
    """The parts of all ranks, and by name what is expected of each run.

    Where the loss hardly falls, because the last batch is hard, "a part of a step" says nothing: such parts
    are drawn again, since what they fail is not the answer.
    """
    for attempt in range(20):  # one in hundreds is drawn again
        parts = _parts(world_size, attempt)
        runs = {name: _expected(name, parts, victim) for name in names}
        if all(is_near for _, is_near in runs.values()):
            return parts, {name: expected for name, (expected, _) in runs.items()}
    raise RuntimeError("20 draws of batches whose loss hardly falls: this says nothing about the answer")


def _run(answer, names, batches, victim):
    """On a rank: the log of each run, the batches of its steps, where gradients were left, steps, weights."""
    device, results = device_of_rank(), {}
    batches = [ranks[dist.get_rank()].to(device) for ranks in batches]
    for name in names:
        plain, scaler, seen, full, taken = new_gpt(SIZES).to(device), _scaler(name), [], [], []
        optimizer = torch.optim.SGD(plain.parameters(), lr=LR)
        optimizer.register_step_post_hook(lambda *_, taken=taken: taken.append(1))

        def step(model, tokens, name=name, plain=plain, scaler=scaler, seen=seen, full=full):
            full.append(any(p.grad is not None and bool(p.grad.any()) for p in plain.parameters()))
            number = next((n for n, batch in enumerate(batches) if torch.equal(batch, tokens)), None)
            seen.append(number)
            planted = name == "fp16" and (number, dist.get_rank()) == (COUNT - 2, victim)
            return _backward(model, tokens, scaler, CASES[name][0], planted)

        model, max_norm = DistributedDataParallel(plain), CASES[name][2]
        found = answer(model, optimizer, scaler, list(batches), step, max_norm)
        found = [_plain(row) for row in found] if isinstance(found, list | tuple) else repr(found)[:60]
        results[name] = found, seen, full, len(taken), joined(plain.parameters())
        dist.barrier()
    return results


def _plain(row):
    if not isinstance(row, list | tuple) or len(row) != 3:
        return repr(row)[:60]
    return tuple(one.item() if isinstance(one, torch.Tensor) and one.numel() == 1 else one for one in row)


@exercise
def train(answer):
    """`answer(model, optimizer, scaler, batches, step, max_norm)`: a log of (loss, zeros, skipped)."""
    is_written(answer)
    for world_size, victim, names in WORLDS:
        parts, runs = _runs(world_size, victim, names, drawn(0))
        ranks = on_ranks(_run, answer, names, parts, victim, world_size=world_size)
        for rank, results in enumerate(ranks):
            for name, result in results.items():
                _judge_run(f"Rank {rank} of {world_size}, {name}", *result, *runs[name])
    return (
        "Losses, zeros and skipped steps are right on 2 and 3 ranks. bf16 and fp16 stay within "
        f"{PART:g} of a step of an fp32 run that skips the same steps."
    )


def _judge_run(who, found, seen, full, taken, weights, log, by_tensor, right_weights):
    form = "one (loss, zeros, skipped) for each step"
    assert isinstance(found, list), f"{who}: the function returned {found}; expected a list, {form}."
    broken = [row for row in found if not isinstance(row, tuple)]
    assert not broken, f"{who}: a row is {broken[0]}; expected {form}."
    assert seen == list(range(len(log))), (
        f"{who}: step() got the batches {seen}; expected one step for each batch, in order, also after an "
        "overflow."
    )
    assert len(found) == len(log), f"{who}: {len(found)} rows for {len(log)} batches; expected {form}."
    assert not any(full[1:]), (
        f"{who}: in step {full.index(True, 1)} the model still has the gradients of the step before: zero "
        "them."
    )
    steps = sum(not skipped for *_, skipped in log)
    assert taken == steps, (
        f"{who}: the optimizer took the step {taken} times; expected {steps}: `clipped_step` alone decides."
    )
    for number, (row, right, mean) in enumerate(zip(found, log, by_tensor, strict=True)):
        _judge_row(f"{who}, step {number}", *row, *right, mean)
    off = relative(weights, right_weights)
    assert off < 1e-3, (
        f"{who}: the weights end {off:.2g} away from those of the right run. Is `max_norm` passed on, and "
        "nothing else changed?"
    )


def _judge_row(where, loss, zeros, skipped, right, right_zeros, right_skipped, by_tensor):
    are_numbers = all(isinstance(one, int | float) for one in (loss, zeros))
    assert are_numbers, f"{where}: ({loss!r}, {zeros!r}, …) are not numbers."
    assert is_about(loss, right, 1e-3), (
        f"{where}: the loss is {loss:.5g}; expected {right:.5g}: the mean over ranks, in float32"
        + (", of weights whose steps are clipped at `max_norm`." if not where.endswith(" 0") else ".")
    )
    if not is_about(zeros, right_zeros, 5e-3) and abs(zeros - right_zeros) > 1e-5:  # sums in fp16 vary
        said = f"{where}: the share of zeros is {zeros:.4g}; expected {right_zeros:.4g}"
        assert zeros <= 1, f"{said}: divide the count by the number of all elements."
        assert not is_about(zeros, 1 - right_zeros, 1e-3), f"{said}: yours is the share of nonzero elements."
        assert not is_about(zeros, by_tensor, 1e-3), (
            f"{said}: take all elements together, not a mean over tensors."
        )
        raise AssertionError(f"{said}, of all elements together, right after backward.")
    assert skipped or not right_skipped, (
        f"{where}: a gradient overflowed and the step was skipped, but the row says it was taken. The loss "
        "does not show it: the scale falls, or the norm is not finite."
    )
    assert right_skipped or not skipped, (
        f"{where}: all gradients are finite and the step was not skipped, but the row says that it was. A "
        "clipped step, or a growing scale, is not an overflow."
    )
