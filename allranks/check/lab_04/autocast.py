"""A step under autocast, and a loss that stays right in 16 bits."""

import math

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

from allranks.check import exercise
from allranks.check.lab_04.common import (
    BF16,
    FP16,
    FP32,
    device_of_rank,
    is_about,
    joined,
    named,
    new_gpt,
    relative,
)
from allranks.check.labs import is_tensor, is_written, on_ranks
from allranks.model import digits, loss_of


def _one_step(answer, sizes, tokens, dtype, factor):
    """Call the answer on this rank; return what it did, as plain data."""
    device, seen = device_of_rank(), {}
    model = new_gpt(sizes).to(device)
    mine = tokens[dist.get_rank()].to(device)
    before, given = joined(model.parameters()), mine.clone()

    def in_autocast():
        return torch.is_autocast_enabled(device)

    def note(module, args, logits):
        seen["logits"] = logits.dtype
        if logits.requires_grad:
            logits.register_hook(lambda gradient: seen.update(backward=in_autocast()))

    def loss_function(logits, targets):
        seen["rows"], seen["loss"] = len(targets), in_autocast()
        return F.cross_entropy(logits, targets)

    model.head.register_forward_hook(note)
    loss = answer(DistributedDataParallel(model), mine, dtype, loss_function, lambda loss: loss * factor)
    parameters = list(model.parameters())
    seen["weights"] = {p.dtype for p in parameters}
    seen["gradient"] = None if any(p.grad is None for p in parameters) else joined(p.grad for p in parameters)
    seen["same weights"] = torch.equal(joined(parameters), before)
    seen["same tokens"] = torch.equal(mine, given)
    seen["graph"] = isinstance(loss, torch.Tensor) and loss.requires_grad
    return seen, loss.detach() if isinstance(loss, torch.Tensor) else loss


@exercise
def forward_backward(answer):
    """`answer(model, tokens, dtype, loss_function, scale)`: autocast around forward and loss only."""
    is_written(answer)
    for world_size, sizes, shape, dtype, factor in (
        (2, {"layers": 2, "hidden": 24, "heads": 3}, (3, 65), BF16, 8.0),
        (3, {"layers": 1, "hidden": 32, "heads": 2}, (2, 40), FP16, 64.0),
    ):
        tokens = digits()[50 : 50 + world_size * shape[0], : shape[1]].split(shape[0])
        model = new_gpt(sizes)
        losses = [loss_of(model, mine) for mine in tokens]
        (sum(losses) / world_size).backward()
        gradient = factor * joined(p.grad for p in model.parameters())
        results = on_ranks(_one_step, answer, sizes, tokens, dtype, factor, world_size=world_size)
        for rank, (seen, loss) in enumerate(results):
            _judge_step(seen, loss, losses[rank].item(), gradient, tokens[0][:, 1:].numel(), dtype, factor)
    return "Logits in 16 bits; loss, weights and gradients in float32; no autocast in backward."


def _judge_step(seen, loss, expected, gradient, rows, dtype, factor):
    is_tensor(loss, "The loss", ())
    assert seen["weights"] == {FP32}, (
        f"The weights have become {', '.join(map(named, seen['weights'] - {FP32}))}. autocast makes 16-bit "
        "copies where they are needed; the optimizer needs the weights in float32."
    )
    assert "logits" in seen, "The model was not called."
    assert seen["logits"] == dtype, (
        f"The logits are in {named(seen['logits'])} and not in the dtype that was asked for, {named(dtype)}: "
        "the forward pass belongs into autocast."
    )
    assert "loss" in seen, "`loss_function` was not called: it is an argument."
    assert seen["loss"], "The loss was computed after autocast had ended, on 16-bit logits as they come."
    assert seen["rows"] == rows, (
        f"The loss function got {seen['rows']} targets of {rows}: each token but a picture's first is one."
    )
    assert seen["gradient"] is not None, "There are no gradients: `backward` was not called."
    assert not seen.get("backward"), (
        "`backward` ran inside autocast; it takes each operation's dtype from forward, and belongs outside."
    )
    assert seen["same weights"], "The weights have changed: this function leaves the step to others."
    assert seen["same tokens"], "The tokens have changed, and others may still need them."
    assert not is_about(loss.item(), factor * expected), (
        "The loss that is returned is the scaled one; only `backward` starts from that."
    )
    assert loss.dtype == FP32, f"The loss that is returned is in {named(loss.dtype)}, and not in float32."
    assert is_about(loss.item(), expected), f"The loss is {loss.item():.3f}, where fp32 has {expected:.3f}."
    assert not seen["graph"], "The loss that is returned still holds the graph of this step: detach it."
    assert relative(seen["gradient"], gradient / factor) > 0.1, (
        "The gradients are not scaled: `backward` starts from `scale(loss)`."
    )
    off = relative(seen["gradient"], gradient)
    assert off < 0.1, f"The gradient, averaged over ranks by DDP, is off by {off:.0%} of fp32's."


def _loss_and_gradient(answer, inputs, upstream):
    device, results = device_of_rank(), []
    for logits, targets in inputs[dist.get_rank()]:
        logits, targets = logits.to(device).requires_grad_(), targets.to(device)
        before = logits.detach().clone(), targets.clone()
        with torch.autocast(device, dtype=logits.dtype, enabled=logits.dtype != FP32):
            loss = answer(logits, targets)
        if isinstance(loss, torch.Tensor) and loss.requires_grad:
            (loss * upstream).backward()
        same = torch.equal(logits, before[0]) and torch.equal(targets, before[1])
        loss = loss.detach() if isinstance(loss, torch.Tensor) else loss
        results.append((loss, logits.grad, same))
    return results


@exercise
def cross_entropy(answer):
    """`answer(logits, targets)`: the mean of −log softmax at the targets, in fp32 for 16-bit logits."""
    is_written(answer)
    cases = (
        ("logits around 0", BF16, 7, 28, 1.0),
        ("logits up to some hundreds", FP16, 33, 28, 100.0),
        ("logits up to the largest of fp16", FP16, 5, 9, 15000.0),
        ("rows of 3000 equal logits", BF16, 6, 3000, 0.0),
        ("3000 rows", FP16, 3000, 11, 3.0),
        ("logits in fp32", FP32, 13, 17, 50.0),
    )
    upstream, inputs = 1024.0, []
    for rank in range(2):
        torch.manual_seed(rank)
        inputs.append(
            [
                (
                    (spread * torch.randn(rows, width)).clamp(-6e4, 6e4).to(dtype),
                    torch.randint(width, (rows,)),
                )
                for _, dtype, rows, width, spread in cases
            ]
        )
    for results, given in zip(
        on_ranks(_loss_and_gradient, answer, inputs, upstream, world_size=2), inputs, strict=True
    ):
        for (what, dtype, *_), result, (logits, targets) in zip(cases, results, given, strict=True):
            _judge_loss(what, dtype, *result, logits, targets, upstream)
    return "Right to four digits in fp16, bf16 and fp32, for large logits, long rows and many of them."


def _judge_loss(what, dtype, loss, gradient, same, logits, targets, upstream):
    exact = logits.double().requires_grad_()
    expected = F.cross_entropy(exact, targets)
    (expected * upstream).backward()
    what = f"With {what} ({named(dtype)})"
    is_tensor(loss, f"{what} the loss", ())
    assert same, f"{what} the logits or the targets have changed; compute on a copy."
    value, expected = float(loss), expected.item()
    assert math.isfinite(value), (
        f"{what} the loss is {value}: exp overflows or log meets a 0. Subtract each row's largest "
        "logit first, and take no logarithm of a softmax."
    )
    assert loss.dtype == FP32, f"{what} the loss is in {named(loss.dtype)}, and not in float32."
    assert not is_about(value, expected * len(targets), 0.01), f"{what} this is the sum over rows."
    assert is_about(value, expected, 1e-4), (
        f"{what} the loss is {value:.5g} and not {expected:.5g}: something is rounded or added up in "
        "16 bits. Convert before the first operation."
    )
    assert gradient is not None, f"{what} no gradient reaches the logits."
    off = relative(gradient.double().cpu(), exact.grad)
    assert off < 0.01, f"{what} the loss is right and its gradient is off by {off:.0%}."
