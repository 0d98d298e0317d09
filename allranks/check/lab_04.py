"""The tasks of Lab 04: mixed precision on ranks, from one step to a training that survives an overflow."""

import math
import random

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.nn.parallel import DistributedDataParallel

from allranks import memory
from allranks.check import exercise, labs
from allranks.check.labs import is_tensor, is_written, on_ranks
from allranks.launch import RanksTimedOut
from allranks.model import GPT, digits, loss_of
from allranks.trace import trace

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
TOLERANCE = 0.002  # of a loss, in mixed precision against fp32


def _device():
    return "cuda" if "nccl" in dist.get_backend() else "cpu"


def _name(dtype):
    return str(dtype).removeprefix("torch.")


def _gpt(sizes):
    torch.manual_seed(7)
    return GPT(**sizes)


def _flat(tensors):
    return torch.cat([t.detach().flatten().float().cpu() for t in tensors])


def _off(found, expected):
    return float((found - expected).norm() / expected.norm())


def _is_about(found, expected, tolerance=0.01):
    return math.isfinite(found) and abs(found - expected) <= tolerance * abs(expected)


def _one_step(answer, sizes, tokens, dtype, factor):
    """Call the answer on this rank; return what it did, as plain data."""
    device, seen = _device(), {}
    model = _gpt(sizes).to(device)
    mine = tokens[dist.get_rank()].to(device)
    before, given = _flat(model.parameters()), mine.clone()

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
    seen["gradient"] = None if any(p.grad is None for p in parameters) else _flat(p.grad for p in parameters)
    seen["same weights"] = torch.equal(_flat(parameters), before)
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
        model = _gpt(sizes)
        losses = [loss_of(model, mine) for mine in tokens]
        (sum(losses) / world_size).backward()
        gradient = factor * _flat(p.grad for p in model.parameters())
        results = on_ranks(_one_step, answer, sizes, tokens, dtype, factor, world_size=world_size)
        for rank, (seen, loss) in enumerate(results):
            _judge_step(seen, loss, losses[rank].item(), gradient, tokens[0][:, 1:].numel(), dtype, factor)
    return "Logits in 16 bits; loss, weights and gradients in float32; no autocast in backward."


def _judge_step(seen, loss, expected, gradient, rows, dtype, factor):
    is_tensor(loss, "The loss", ())
    assert seen["weights"] == {FP32}, (
        f"The weights have become {', '.join(map(_name, seen['weights'] - {FP32}))}. autocast makes 16-bit "
        "copies where they are needed; the optimizer needs the weights in float32."
    )
    assert "logits" in seen, "The model was not called."
    assert seen["logits"] == dtype, (
        f"The logits are in {_name(seen['logits'])} and not in the dtype that was asked for, {_name(dtype)}: "
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
    assert not _is_about(loss.item(), factor * expected), (
        "The loss that is returned is the scaled one; only `backward` starts from that."
    )
    assert loss.dtype == FP32, f"The loss that is returned is in {_name(loss.dtype)}, and not in float32."
    assert _is_about(loss.item(), expected), f"The loss is {loss.item():.3f}, where fp32 has {expected:.3f}."
    assert not seen["graph"], "The loss that is returned still holds the graph of this step: detach it."
    assert _off(seen["gradient"], gradient / factor) > 0.1, (
        "The gradients are not scaled: `backward` starts from `scale(loss)`."
    )
    off = _off(seen["gradient"], gradient)
    assert off < 0.1, f"The gradient, averaged over ranks by DDP, is off by {off:.0%} of fp32's."


def _loss_and_gradient(answer, inputs, upstream):
    device, results = _device(), []
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
    what = f"With {what} ({_name(dtype)})"
    is_tensor(loss, f"{what} the loss", ())
    assert same, f"{what} the logits or the targets have changed; compute on a copy."
    value, expected = float(loss), expected.item()
    assert math.isfinite(value), (
        f"{what} the loss is {value}: exp overflows or log meets a 0. Subtract each row's largest "
        "logit first, and take no logarithm of a softmax."
    )
    assert loss.dtype == FP32, f"{what} the loss is in {_name(loss.dtype)}, and not in float32."
    assert not _is_about(value, expected * len(targets), 0.01), f"{what} this is the sum over rows."
    assert _is_about(value, expected, 1e-4), (
        f"{what} the loss is {value:.5g} and not {expected:.5g}: something is rounded or added up in "
        "16 bits. Convert before the first operation."
    )
    assert gradient is not None, f"{what} no gradient reaches the logits."
    off = _off(gradient.double().cpu(), exact.grad)
    assert off < 0.01, f"{what} the loss is right and its gradient is off by {off:.0%}."


def _unscaled(answer, world_size):
    """Let the answer unscale gradients of all sorts; return what it said and did, and what they were."""
    device, rank, results = _device(), dist.get_rank(), []
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
            said = answer(optimizer, scale)
            found = [p.grad.to_local() if place == 2 else p.grad for p in weights]
            here = any(not g.isfinite().all() for g in gradients)
            close = [
                _off(f.cpu().double(), g.double() / scale)
                for f, g in zip(found, gradients, strict=True)
                if len(g)
            ]
            plain = said if said is None or said is ... else bool(said)
            results.append((here, plain, close, place == 2, scale, bad))
    return results


@exercise
def unscale(answer):
    """`answer(optimizer, scale)` divides the gradients and says whether one here is not finite."""
    is_written(answer)
    for world_size in (2, 3):
        for rank, results in enumerate(on_ranks(_unscaled, answer, world_size, world_size=world_size)):
            for here, said, close, sharded, scale, bad in results:
                where = f"Rank {rank}" + (", gradients sharded as by FSDP2" if sharded else "")
                assert said is not None and said is not ..., f"{where}: the function returns nothing yet."
                if here:
                    assert said, f"{where}: a gradient has a {bad} in it, and found_inf is False."
                    continue
                assert not said, f"{where}: all gradients here are finite, and found_inf is True." + (
                    f" (The {bad} is on another rank: look at `here(p.grad)`.)"
                    if bad is not None
                    else " (They go up to 2e38, and their sum is larger than any number.)"
                )
                assert max(close) < 1e-5 or scale == 1, (
                    f"{where}: a gradient is not what it was divided by {scale:g}; "
                    "an optimizer has several groups of parameters."
                )
                assert max(close) < 1e-5, f"{where}: with a scale of 1 a gradient has changed."
    return "Every gradient divided, infinities and NaN found, on this rank's part of sharded ones too."


def _decisions(scaler, steps, device="cpu"):
    """Take `steps`, each (factor of a gradient, whether `unscale_` is called); return what came of them.

    Each step starts from weights of 1; of each: the scale before it, and two weights after it.
    """
    weights = [nn.Parameter(torch.ones(3, device=device)), nn.Parameter(torch.ones(2, 2, device=device))]
    optimizer = torch.optim.SGD([{"params": weights[:1]}, {"params": weights[1:]}], lr=1.0)
    one, log = torch.ones((), device=device), []
    for factor, explicit in steps:
        optimizer.zero_grad()
        scale = scaler.scale(one)
        if not isinstance(scale, torch.Tensor):
            return "`scale` returns no tensor."
        scaler.scale(weights[0].sum() * 0.25 + weights[1].sum() * factor).backward()
        if explicit:
            scaler.unscale_(optimizer)
            if getattr(scaler, "found_inf", False) in (None, ...):
                return "`found_inf` is None after `unscale_`: it needs `unscale` of Task 3."
        scaler.step(optimizer)
        scaler.update()
        log.append((scale.item(), [w.detach().flatten()[0].item() for w in weights]))
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
    for number, ((scale, weights), (right, moved)) in enumerate(zip(log, expected, strict=True)):
        factor, explicit = steps[number]
        before = [f for f, _ in steps[max(0, number - 6) : number]]
        lately = ", ".join("finite" if math.isfinite(f) else str(f) for f in before)
        assert scale == right, (
            f"{who}: the steps before step {number} were {lately}. With an interval of {interval} "
            f"GradScaler's scale is now {right:g}, yours {scale:g}."
        )
        case = f"{who}, step {number}"
        if not math.isfinite(factor):
            assert weights == moved, f"{case}: a gradient is {factor}, and the step was not skipped."
            continue
        assert weights != [1.0, 1.0], f"{case}: all gradients are finite, and the weights have not moved."
        ratio = (1 - weights[1]) / (1 - moved[1])
        assert not _is_about(ratio, 1 / right), (
            f"{case}: the gradients were divided by the scale twice, "
            f"{'by `unscale_` and again by `step`' if explicit else 'both in `step`'}."
        )
        assert not _is_about(ratio, right), f"{case}: the weights moved by the scaled gradient."
        assert all(_is_about(w, m, 1e-5) for w, m in zip(weights, moved, strict=True)), (
            f"{case}: a weight is {weights[1]:g} and not {moved[1]:g}."
        )


@exercise
def loss_scaler(answer):
    """`answer(init_scale, growth_factor, backoff_factor, growth_interval)` decides like GradScaler."""
    is_written(answer)

    def on_rank(parts, options):
        return _decisions(answer(*options), parts[dist.get_rank()], _device())

    for world_size, options in ((3, (2.0**12, 2.0, 0.5, 4)), (2, (2.0**10, 4.0, 0.25, 1))):
        parts = [_steps(seed=10 * world_size + rank) for rank in range(world_size)]
        for rank, log in enumerate(on_ranks(on_rank, parts, options, world_size=world_size)):
            oracle = _decisions(torch.amp.GradScaler("cpu", *options), parts[rank])
            _judge_decisions(log, parts[rank], oracle, f"Rank {rank}", options[-1])
    return "In 200 steps on five ranks the scale and the skipped steps of GradScaler."


LR = 0.5


def _small_model(widths):
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(widths[0], widths[1]), nn.Tanh(), nn.Linear(widths[1], 2))


def _small_loss(model, x, size):
    return size * model(x).square().sum(-1).mean()


def _clipped(answer, widths, inputs, cases, init_scale):
    device, results = _device(), []
    scaler, kept = torch.amp.GradScaler(device, init_scale=init_scale), []
    x = inputs[dist.get_rank()].to(device)
    for max_norm, size in cases:
        model = _small_model(widths).to(device)
        before = _flat(model.parameters())
        optimizer = torch.optim.SGD(model.parameters(), lr=LR)
        kept.append(optimizer)  # the scaler knows optimizers by their addresses
        wrapped = DistributedDataParallel(model)
        scaler.scale(_small_loss(wrapped, x, size)).backward()
        norm = answer(model, optimizer, scaler, max_norm)
        norm = norm.item() if isinstance(norm, torch.Tensor) and norm.numel() == 1 else norm
        if not isinstance(norm, float):
            return "None" if norm in (None, ...) else f"a {type(norm).__name__}"
        results.append((norm, _flat(model.parameters()) - before, scaler.get_scale()))
    return results


@exercise
def clipped_step(answer):
    """`answer(model, optimizer, scaler, max_norm)`: unscale, clip, step, update; returns the norm."""
    is_written(answer)
    init_scale = 2.0**13
    cases = ((0.3, 4.0), (1e3, 4.0), (0.3, math.inf), (0.1, 2.0))
    for world_size, widths in ((2, (6, 5)), (3, (4, 9))):
        torch.manual_seed(world_size)
        inputs = torch.randn(world_size, 7, widths[0])
        results = on_ranks(_clipped, answer, widths, inputs, cases, init_scale, world_size=world_size)
        for rank, found in enumerate(results):
            assert isinstance(found, list), f"Rank {rank} returned {found}; it has to be the norm."
            scale = init_scale
            for (max_norm, size), result in zip(cases, found, strict=True):
                model = _small_model(widths)
                _small_loss(model, inputs.flatten(0, 1), size).backward()
                gradient = _flat(p.grad for p in model.parameters())
                next_scale = scale if math.isfinite(size) else scale / 2
                _judge_clipping(*result, gradient, max_norm, scale, next_scale, f"Rank {rank}")
                scale = next_scale
    return "The norm of the mean gradient, without the scale; clipped, or skipped, and the scale updated."


def _judge_clipping(norm, moved, new_scale, gradient, max_norm, scale, next_scale, who):
    right = gradient.norm().item()
    if not math.isfinite(right):
        assert not moved.any(), (
            f"{who}: a gradient overflowed, and the weights have changed: `scaler.step` knows how to skip."
        )
        assert new_scale == next_scale, (
            f"{who}: after an overflow the scale is still {new_scale:g}: `scaler.update()` ends every step."
        )
        return
    assert not _is_about(norm, right * scale), (
        f"{who}: the norm returned, {norm:.4g}, is that of the scaled gradients; without the scale it is "
        f"{right:.4g}. `unscale_` comes before clipping."
    )
    assert not (right > 1.01 * max_norm and _is_about(norm, max_norm)), (
        f"{who}: {norm:.4g} is the norm after clipping; return the one before, {right:.4g}."
    )
    assert _is_about(norm, right, 1e-3), f"{who}: the norm is {norm:.4g}, and has to be {right:.4g}."
    assert moved.any(), f"{who}: all gradients are finite, and the weights have not moved."
    length, free = moved.norm().item() / LR, right * min(1.0, max_norm / right)
    assert not (right > 1.01 * max_norm and _is_about(length, right)), (
        f"{who}: the weights moved as if nothing had been clipped: the gradients are clipped before the step."
    )
    assert _is_about(length, free, 1e-3), (
        f"{who}: the step is {length / free:.2g} times as long as with a gradient clipped to {max_norm:g}."
    )
    assert _off(moved, -LR * gradient * free / right) < 1e-3, (
        f"{who}: the step has the right length and another direction: one factor clips all gradients."
    )
    assert new_scale == next_scale, f"{who}: a finite step changed the scale to {new_scale:g}."


@exercise
def rank_scaler(answer):
    """`answer(…)`, a LossScaler whose ranks decide as one, though each has gradients of its own."""
    is_written(answer)

    def on_rank(parts, options):
        with trace() as counted:
            log = _decisions(answer(*options), parts[dist.get_rank()], _device())
        nbytes = sum(call.nbytes for call in counted.log)
        dist.barrier()
        return log, nbytes

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
            results = on_ranks(on_rank, parts, options, world_size=world_size)
        except RanksTimedOut as late:
            raise AssertionError(
                f"Your scaler did not come to its end: {late}. Does every rank take part in the all-reduce, "
                "also one that knows the answer already?"
            ) from None
        for rank, (log, nbytes) in enumerate(results):
            assert isinstance(log, list), f"Rank {rank}: {log}"
            for step, ((scale, weights), (right, moved)) in enumerate(zip(log, oracle, strict=True)):
                case = f"Step {step} of {world_size} ranks"
                said = ", ".join(map(str, sorted(bad[step])))
                assert scale == right, f"{case}: on rank {rank} the scale is {scale:g} and not {right:g}."
                skipped = weights == [1.0, 1.0]
                assert skipped or not bad[step], (
                    f"{case}: rank {said} has an overflow, and rank {rank} has taken the step: from here on "
                    "their weights differ. Skip everywhere what one of them has to skip."
                )
                assert bad[step] or not skipped, (
                    f"{case}: no rank has an overflow, and rank {rank} has skipped."
                )
                assert all(_is_about(w, m, 1e-5) for w, m in zip(weights, moved, strict=True)), (
                    f"{case}: on rank {rank} a weight is {weights[1]:g} and not {moved[1]:g}."
                )
            assert nbytes <= 8 * count, (
                f"The decisions are right, and cost {nbytes / count:.0f} bytes a step: one number is enough."
            )
    return "One decision on 2, 3 and 4 ranks, for one number a step."


def _sharded_step(answer, sizes, tokens, dtype, reduce_dtype):
    device, seen = _device(), {}
    model = _gpt(sizes).to(device)
    model.head.register_forward_hook(lambda module, args, logits: seen.update(logits=logits.dtype))
    sharded = answer(model, dtype, reduce_dtype)
    if not isinstance(sharded, nn.Module):
        return {"returned": "None" if sharded in (None, ...) else f"a {type(sharded).__name__}"}
    seen["sharded"] = [isinstance(p, DTensor) for p in sharded.parameters()]
    seen["weights"] = {p.dtype for p in sharded.parameters()}
    if all(seen["sharded"]):
        seen["values"] = _flat(p.full_tensor() for p in sharded.parameters())
        try:
            with trace() as counted:
                loss_of(sharded, tokens[dist.get_rank()].to(device)).backward()
        except RuntimeError as error:
            if "same dtype" not in str(error):
                raise
            return seen | {"mixed": True}
        seen["messages"] = [(call.kind, call.nbytes) for call in counted.log]
        gradients = [p.grad for p in sharded.parameters()]
        seen["gradients"] = {None if g is None else g.dtype for g in gradients}
        dist.barrier()
    return seen


def _elements(parameters, world_size):
    """Of one unit: what its message holds, each parameter padded to rows for every rank."""
    return sum(memory.shard_elements(len(p), p[0].numel(), world_size, 0) * world_size for p in parameters)


@exercise
def shard(answer):
    """`answer(model, dtype, reduce_dtype)` shards a GPT by FSDP2, in two dtypes."""
    is_written(answer)
    for world_size, sizes, dtype, reduce_dtype in (
        (2, {"layers": 3, "hidden": 16, "heads": 2}, BF16, FP32),
        (3, {"layers": 1, "hidden": 24, "heads": 3}, BF16, BF16),
        (2, {"layers": 2, "hidden": 32, "heads": 2}, FP16, FP32),
    ):
        tokens = digits()[200 : 200 + 2 * world_size].split(2)
        model = _gpt(sizes)
        layer = list(model.layers[0].parameters())
        rest = [p for name, p in model.named_parameters() if not name.startswith("layers")]
        units = {_elements(layer, world_size), _elements(rest, world_size)}
        results = on_ranks(_sharded_step, answer, sizes, tokens, dtype, reduce_dtype, world_size=world_size)
        for rank, seen in enumerate(results):
            assert "returned" not in seen, f"Rank {rank} returned {seen['returned']}; that is no model."
            _judge_shards(seen, _flat(model.parameters()), units, dtype, reduce_dtype)
    return "Weights travel in 16 bits, gradients in the dtype that was asked for, shards stay in float32."


def _judge_shards(seen, values, units, dtype, reduce_dtype):
    assert any(seen["sharded"]), "No parameter is sharded: that takes `fully_shard`."
    assert all(seen["sharded"]), (
        f"{seen['sharded'].count(False)} parameters of {len(seen['sharded'])} are not sharded: "
        "the model itself has to be given to `fully_shard`, after its layers."
    )
    assert seen["weights"] == {FP32}, (
        "The shards are in 16 bits, and the optimizer changes them: `param_dtype` leaves the shards in "
        "float32 and makes 16-bit copies, `model.to` does not."
    )
    assert "mixed" not in seen, (
        "In forward 16-bit activations meet weights in 32 bits: each unit needs the policy, also the one for "
        "the rest."
    )
    assert torch.equal(seen["values"], values), "The weights are no longer those of the model."
    assert seen["gradients"] == {FP32}, "The gradients of the shards are not in float32, or missing."
    for kind, what, wanted in (
        ("all_gather", "weights", dtype),
        ("reduce_scatter", "gradients", reduce_dtype),
    ):
        sizes = {nbytes for name, nbytes in seen["messages"] if name == kind}
        right = {n * wanted.itemsize for n in units}
        other = {n * (6 - wanted.itemsize) for n in units}  # 2 bytes or 4
        assert sizes != other, (
            f"The {what} travel in {'32' if wanted.itemsize == 2 else '16'} bits, where {_name(wanted)} was "
            f"asked for: that is `{'param' if kind == 'all_gather' else 'reduce'}_dtype`."
        )
        right, found = (" and ".join(f"{n:,}" for n in sorted(each)) for each in (right, sizes))
        assert found == right, (
            f"The {what} travel in messages of {found} bytes. In {_name(wanted)} a unit for each layer and "
            f"one for the rest make {right} bytes. Each unit needs the policy."
        )
    assert seen["logits"] == dtype, f"The logits are in {_name(seen['logits'])} and not in {_name(dtype)}."


STEPS, PLANTED, MAX_NORM, LEARNING_RATE = 6, 2, 0.5, 0.3
SIZES = {"layers": 2, "hidden": 32, "heads": 2}


def _train(model, plain, pieces, batches, dtype, victim):
    """Train on this rank with the reader's pieces; in step PLANTED a gradient on rank `victim` overflows."""
    step_of, loss_function, scaled_step, scaler = pieces
    rank, device, now = dist.get_rank(), _device(), {}

    def plant(module, args, output):
        if output.requires_grad and now["step"] == PLANTED and rank == victim:
            one = torch.zeros_like(output)
            one[0, 0] = math.inf  # one row of one weight, which belongs to one rank
            output.register_hook(lambda gradient: gradient + one)

    plain.token.register_forward_hook(plant)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    losses, scales = [], []
    for now["step"], tokens in enumerate(batches):
        optimizer.zero_grad()
        mine = tokens.chunk(dist.get_world_size())[rank].to(device)
        loss = step_of(model, mine, dtype, loss_function, scaler.scale).clone()
        scaled_step(model, optimizer, scaler, MAX_NORM)
        dist.all_reduce(loss)
        losses.append(loss.item() / dist.get_world_size())
        scales.append(float(scaler.scale(torch.ones((), device=device))))
    return losses, scales


def _serial(batches):
    """The same in fp32 on one process; step PLANTED is skipped."""
    model = _gpt(SIZES)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    losses = []
    for step, tokens in enumerate(batches):
        loss = loss_of(model, tokens)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
        if step != PLANTED:
            optimizer.step()
        losses.append(loss.item())
    return losses


def milestone(step_of, loss_function, unscaled, scaler, scaled_step, shared_scaler, sharded):
    """Try every task, and then train the running model with all of them, on ranks, against fp32."""
    choose = torch.Generator().manual_seed(4)
    batches = [digits()[torch.randint(1797, (12,), generator=choose)] for _ in range(STEPS)]
    runs = {
        "DDP in bf16": (DistributedDataParallel, BF16),
        "DDP in fp16": (DistributedDataParallel, FP16),
        "FSDP2 in fp16": (lambda model: sharded(model, FP16, FP32), FP16),
    }

    def on_rank(victim):
        results = {}
        for name, (wrap, dtype) in runs.items():
            plain = _gpt(SIZES).to(_device())
            pieces = step_of, loss_function, scaled_step, shared_scaler(2.0**10)
            results[name] = _train(wrap(plain), plain, pieces, batches, dtype, victim)
            dist.barrier()
        return results

    def whole():
        expected = _serial(batches)
        scales = [2.0**10 if step < PLANTED else 2.0**9 for step in range(STEPS)]
        for world_size, victim in ((2, 1), (4, 2)):
            for rank, results in enumerate(on_ranks(on_rank, victim, world_size=world_size)):
                for name, (losses, found) in results.items():
                    who = f"{name}, rank {rank} of {world_size}"
                    assert found == scales, (
                        f"{who}: rank {victim} overflows in step {PLANTED}, and the scales after "
                        f"the steps are {', '.join(f'{s:g}' for s in found)}."
                    )
                    for step, (loss, right) in enumerate(zip(losses, expected, strict=True)):
                        assert _is_about(loss, right, TOLERANCE), (
                            f"{who}: the loss of step {step} is {loss:.3f}, in fp32 it is {right:.3f}."
                        )
        return (
            f"{STEPS} steps on 2 and 4 ranks, {', '.join(runs)}: within {TOLERANCE:.1%} of fp32 "
            "at every step; the step in which one rank overflowed is skipped by all."
        )

    labs.milestone(
        [
            ("autocast around forward and loss", forward_backward, step_of),
            ("a loss that adds up in fp32", cross_entropy, loss_function),
            ("gradients without the scale", unscale, unscaled),
            ("the decisions of GradScaler", loss_scaler, scaler),
            ("clipped at the right norm", clipped_step, scaled_step),
            ("one decision on all ranks", rank_scaler, shared_scaler),
            ("shards in fp32, messages in 16 bits", shard, sharded),
        ],
        whole,
        "a training in mixed precision that follows fp32 and survives an overflow on one rank.",
    )
