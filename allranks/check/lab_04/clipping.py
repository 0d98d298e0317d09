"""A step with a loss scaler that clips the gradient by its unscaled norm."""

import math

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from allranks.check import exercise
from allranks.check.lab_04.common import device_of_rank, is_about, joined, relative
from allranks.check.labs import drawn, is_written, on_ranks

LR = 0.5


def _small_model(widths):
    torch.manual_seed(drawn(5))
    return nn.Sequential(nn.Linear(widths[0], widths[1]), nn.Tanh(), nn.Linear(widths[1], 2))


def _small_loss(model, x, size):
    return size * model(x).square().sum(-1).mean()


class OwnScaler:
    """A scaler like the reader's of task 4: no GradScaler, and not forgiving where that would raise."""

    def __init__(self, init_scale):
        self.value, self.found_inf = init_scale, None

    def get_scale(self):
        return self.value

    def scale(self, loss):
        return loss * self.value

    def unscale_(self, optimizer):
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"]]
        self.found_inf = not all(gradient.div_(self.value).isfinite().all() for gradient in gradients)

    def step(self, optimizer):
        if self.found_inf is None:
            self.unscale_(optimizer)
        if not self.found_inf:
            optimizer.step()

    def update(self):
        self.value *= 0.5 if self.found_inf else 1.0
        self.found_inf = None


def _clipped(answer, widths, inputs, cases, init_scale, own):
    device, results = device_of_rank(), []
    scaler = OwnScaler(init_scale) if own else torch.amp.GradScaler(device, init_scale=init_scale)
    kept = []
    x = inputs[dist.get_rank()].to(device)
    for max_norm, size in cases:
        model = _small_model(widths).to(device)
        before = joined(model.parameters())
        optimizer = torch.optim.SGD(model.parameters(), lr=LR)
        kept.append(optimizer)  # the scaler knows optimizers by their addresses
        steps = []
        optimizer.register_step_post_hook(lambda *_, steps=steps: steps.append(1))
        wrapped = DistributedDataParallel(model)
        scaler.scale(_small_loss(wrapped, x, size)).backward()
        norm = answer(model, optimizer, scaler, max_norm)
        norm = norm.item() if isinstance(norm, torch.Tensor) and norm.numel() == 1 else norm
        if not isinstance(norm, float):
            return "None" if norm in (None, ...) else f"a {type(norm).__name__}"
        results.append((norm, joined(model.parameters()) - before, scaler.get_scale(), len(steps)))
    return results


@exercise
def clipped_step(answer):
    """`answer(model, optimizer, scaler, max_norm)`: unscale, clip, step, update; returns the norm."""
    is_written(answer)
    init_scale = 2.0**13
    cases = ((0.3, 4.0), (1e3, 4.0), (0.3, math.inf), (0.1, 2.0))
    for world_size, widths, own in ((2, (6, 5), False), (3, (4, 9), True)):
        torch.manual_seed(drawn(world_size))
        inputs = torch.randn(world_size, 7, widths[0])
        results = on_ranks(_clipped, answer, widths, inputs, cases, init_scale, own, world_size=world_size)
        for rank, log in enumerate(results):
            assert isinstance(log, list), f"Rank {rank} returned {log}; expected the norm, a number."
            scale = init_scale
            for (max_norm, size), result in zip(cases, log, strict=True):
                model = _small_model(widths)
                _small_loss(model, inputs.flatten(0, 1), size).backward()
                gradient = joined(p.grad for p in model.parameters())
                next_scale = scale if math.isfinite(size) else scale / 2
                who = f"Rank {rank}, with {'a scaler of your own' if own else 'GradScaler'}"
                _judge_clipping(*result, gradient, max_norm, scale, next_scale, who)
                scale = next_scale
    return (
        "The norm is the mean gradient's, without the scale; steps are clipped or skipped; the scale is "
        "updated."
    )


def _judge_clipping(norm, moved, new_scale, steps, gradient, max_norm, scale, next_scale, who):
    right = gradient.norm().item()
    if not math.isfinite(right):
        assert not moved.any() and not steps, (
            f"{who}: a gradient overflowed, but the optimizer took the step: `scaler.step` skips it."
        )
        assert new_scale == next_scale, (
            f"{who}: after an overflow the scale is {new_scale:g}; expected {next_scale:g}: call "
            "`scaler.update()` at the end of every step."
        )
        return
    if not is_about(norm, right, 1e-3):
        assert not is_about(norm, right * scale), (
            f"{who}: the returned norm, {norm:.4g}, belongs to the scaled gradients; without the scale it is "
            f"{right:.4g}. Call `unscale_` before clipping."
        )
        assert not is_about(norm, max_norm), (
            f"{who}: {norm:.4g} is the norm after clipping; return the norm before it, {right:.4g}."
        )
        raise AssertionError(f"{who}: the norm is {norm:.4g}; expected {right:.4g}.")
    assert moved.any(), f"{who}: all gradients are finite, but the weights have not moved."
    length, free = moved.norm().item() / LR, right * min(1.0, max_norm / right)
    if not is_about(length, free, 1e-3):
        assert not is_about(length, right), (
            f"{who}: the weights moved as if nothing had been clipped; clip before the step."
        )
        raise AssertionError(
            f"{who}: the step is {length / free:.2g} times as long as with gradients clipped at {max_norm:g}."
        )
    assert relative(moved, -LR * gradient * free / right) < 1e-3, (
        f"{who}: the step has the right length but the wrong direction: one factor clips all gradients."
    )
    assert new_scale == next_scale, (
        f"{who}: a finite step changed the scale to {new_scale:g}; expected {next_scale:g}."
    )
