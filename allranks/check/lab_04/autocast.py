"""A step under autocast, and a loss that is accurate for 16-bit logits."""

import math

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

from allranks import private
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
from allranks.check.labs import digits, drawn, is_tensor, is_written, on_ranks
from allranks.model import loss_of


def _one_step(answer, sizes, tokens, dtype, factor):
    """Call the answer on this rank; return what it did, as plain data."""
    device, seen = device_of_rank(), {}
    model = new_gpt(sizes).to(device)
    batch = tokens[dist.get_rank()].to(device)
    before, given = joined(model.parameters()), batch.clone()

    def in_autocast():
        return torch.is_autocast_enabled(device)

    def note(module, args, logits):
        seen["logits"] = logits.dtype
        if logits.requires_grad:
            logits.register_hook(lambda gradient: seen.update(backward=in_autocast()))

    def loss_function(logits, targets):
        seen["rows"], seen["loss"] = len(targets), in_autocast() or logits.dtype == FP32
        value = F.cross_entropy(logits, targets)
        seen["value"] = value.item()
        return value

    model.head.register_forward_hook(note)
    loss = answer(DistributedDataParallel(model), batch, dtype, loss_function, lambda loss: loss * factor)
    parameters = list(model.parameters())
    seen["weights"] = {p.dtype for p in parameters}
    seen["gradient"] = None if any(p.grad is None for p in parameters) else joined(p.grad for p in parameters)
    seen["same weights"] = torch.equal(joined(parameters), before)
    seen["same tokens"] = torch.equal(batch, given)
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
        losses = [loss_of(model, batch) for batch in tokens]
        (sum(losses) / world_size).backward()
        gradient = factor * joined(p.grad for p in model.parameters())
        results = on_ranks(_one_step, answer, sizes, tokens, dtype, factor, world_size=world_size)
        for rank, (seen, loss) in enumerate(results):
            who = f"Rank {rank} of {world_size}"
            rows = tokens[0][:, 1:].numel()
            _judge_step(who, seen, loss, losses[rank].item(), gradient, rows, dtype, factor)
    return "Logits are in 16 bits; loss, weights and gradients in float32; backward has no autocast."


def _judge_step(who, seen, loss, expected, gradient, rows, dtype, factor):
    is_tensor(loss, f"{who}: the loss", ())
    assert seen["weights"] == {FP32}, (
        f"{who}: the weights have become {', '.join(map(named, seen['weights'] - {FP32}))}. autocast makes "
        "16-bit copies where it needs them; the optimizer needs the weights in float32."
    )
    assert "logits" in seen, f"{who}: the model was not called."
    assert seen["logits"] == dtype, (
        f"{who}: the logits are in {named(seen['logits'])}; expected the requested dtype, {named(dtype)}: "
        "the forward pass belongs in autocast."
    )
    assert "loss" in seen, f"{who}: `loss_function` was not called; it is an argument."
    assert seen["loss"], f"{who}: the loss was computed outside autocast, directly on 16-bit logits."
    assert seen["rows"] == rows, (
        f"{who}: the loss function got {seen['rows']} targets; expected {rows}, every token but the first of "
        "each sequence."
    )
    assert seen["gradient"] is not None, f"{who}: there are no gradients; call `backward`."
    assert not seen.get("backward"), (
        f"{who}: `backward` ran inside autocast. It takes each operation's dtype from forward; call it "
        "outside."
    )
    assert seen["same weights"], f"{who}: the weights have changed; this function should not take a step."
    assert seen["same tokens"], f"{who}: the tokens have changed; do not write into them."
    assert not is_about(loss.item(), factor * expected), (
        f"{who}: the returned loss is the scaled one, {loss.item():.3f}; expected {expected:.3f}."
    )
    assert loss.dtype == FP32, f"{who}: the returned loss is in {named(loss.dtype)}; expected float32."
    assert is_about(loss.item(), expected), (
        f"{who}: the loss is {loss.item():.3f}; expected {expected:.3f} to 1 %, as in fp32."
    )
    assert is_about(loss.item(), seen["value"], 1e-6), (
        f"{who}: `loss_function` returned {seen['value']:.6f} and you returned {loss.item():.6f}: return the "
        "loss itself, which is in float32, and not a copy rounded to 16 bits."
    )
    assert not seen["graph"], f"{who}: the returned loss still holds the graph of this step; detach it."
    assert relative(seen["gradient"], gradient / factor) > 0.1, (
        f"{who}: the gradients are not scaled; call `backward` on `scale(loss)`."
    )
    assert not torch.equal(seen["gradient"], seen["gradient"].to(dtype).float()), (
        f"{who}: each number of the gradients is one of {named(dtype)}: they were rounded after `backward`. "
        "The gradients of 32-bit weights come back in float32; leave them so."
    )
    off = relative(seen["gradient"], gradient)
    assert off < 0.1, (
        f"{who}: the gradient, averaged over ranks by DDP, is off by {off:.0%} of fp32's; expected under 10 "
        "%."
    )


class Largest(private.dispatch_mode()):
    """How many elements the largest tensor has that an operation returns."""

    elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **kwargs or {})
        if isinstance(result, torch.Tensor):
            self.elements = max(self.elements, result.numel())
        return result


def _loss_and_gradient(answer, inputs, upstream):
    device, results = device_of_rank(), []
    for logits, targets in inputs[dist.get_rank()]:
        logits, targets = logits.to(device).requires_grad_(), targets.to(device)
        before, largest = (logits.detach().clone(), targets.clone()), Largest()
        for inside in (False, True):
            logits.grad = None
            with torch.autocast(device, dtype=logits.dtype, enabled=inside and logits.dtype != FP32), largest:
                loss = answer(logits, targets)
            if isinstance(loss, torch.Tensor) and loss.requires_grad:
                (loss * upstream).backward()
            unchanged = torch.equal(logits, before[0]) and torch.equal(targets, before[1])
            loss = loss.detach() if isinstance(loss, torch.Tensor) else loss
            results.append((inside, loss, logits.grad, unchanged, largest.elements))
    return results


def _input(dtype, rows, width, spread):
    """Logits and targets, of which the first is unlikely: a loss of 0 has no gradient, and no digits."""
    logits = (spread * torch.randn(rows, width)).clamp(-6e4, 6e4).to(dtype)
    targets = torch.randint(width, (rows,))
    targets[0] = logits[0].argmin()
    return logits, targets


@exercise
def cross_entropy(answer):
    """`answer(logits, targets)`: the mean of −log softmax at the targets, in fp32 for 16-bit logits."""
    is_written(answer)
    cases = (
        ("logits around 0", BF16, 7, 28, 1.0),
        ("logits up to a few hundred", FP16, 33, 28, 100.0),
        ("logits up to the largest of fp16", FP16, 5, 9, 15000.0),
        ("rows of 3000 equal logits", BF16, 6, 3000, 0.0),
        ("3000 rows", FP16, 3000, 11, 3.0),
        ("logits in fp32", FP32, 13, 17, 50.0),
    )
    upstream, inputs = 1024.0, []
    for rank in range(2):
        torch.manual_seed(drawn(rank))
        inputs.append([_input(*sizes) for _, *sizes in cases])
    ranks = on_ranks(_loss_and_gradient, answer, inputs, upstream, world_size=2)
    for rank, (results, given) in enumerate(zip(ranks, inputs, strict=True)):
        for number, (inside, *result) in enumerate(results):
            (what, dtype, *_), (logits, targets) = cases[number // 2], given[number // 2]
            where = "inside" if inside else "outside"
            what = f"Rank {rank}, with {what} ({named(dtype)}), {where} autocast:"
            _judge_loss(what, *result, logits, targets, upstream)
    return (
        "The loss is right to four digits in fp16, bf16 and fp32, for large logits, long rows and many rows."
    )


def _judge_loss(what, loss, gradient, unchanged, largest, logits, targets, upstream):
    exact = logits.double().requires_grad_()
    expected = F.cross_entropy(exact, targets)
    (expected * upstream).backward()
    is_tensor(loss, f"{what} the loss", ())
    assert unchanged, f"{what} the logits or the targets have changed; compute on a copy."
    value, expected = float(loss), expected.item()
    assert math.isfinite(value), (
        f"{what} the loss is {value}; expected {expected:.5g}. exp overflows, or log gets a 0: subtract each "
        "row's largest logit first, and do not take the logarithm of a softmax."
    )
    assert loss.dtype == FP32, f"{what} the loss is in {named(loss.dtype)}; expected float32."
    assert not is_about(value, expected * len(targets), 0.01), (
        f"{what} {value:.5g} is the sum over rows; expected the mean."
    )
    assert is_about(value, expected, 1e-4), (
        f"{what} the loss is {value:.5g}; expected {expected:.5g}. Something is rounded or summed in "
        "16 bits: convert before the first operation."
    )
    assert largest <= logits.numel(), (
        f"{what} the loss is right, but a tensor of {largest:,} elements is made for {logits.numel():,} "
        "logits: every row meets the target of every row. Give both the shape (rows,) before you subtract."
    )
    assert gradient is not None, f"{what} no gradient reaches the logits."
    off = relative(gradient.double().cpu(), exact.grad)
    assert off < 0.01, f"{what} the loss is right, but its gradient is off by {off:.0%}."
