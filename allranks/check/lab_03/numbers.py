"""The precision of messages and of stored numbers, and a gradient clipped across all shards."""

import contextlib
import sys
import threading

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.distributed.tensor import DTensor
from torch.nn.utils import clip_grad

from allranks.check import exercise
from allranks.check.lab_03.common import (
    MAX_NORM,
    PLACES,
    cut_in_units,
    device_of_rank,
    new_adamw,
    new_gpt,
    new_mesh,
    norm_of,
    part_of_rank,
    quoted,
)
from allranks.check.labs import digits, is_written, on_ranks
from allranks.model import loss_of
from allranks.trace import trace


@exercise
def precision(answer, places):
    """`answer(compute, reduce)`: the policies (inner, last); `places()`: which of PLACES are in fp32."""
    is_written(answer, places)
    tokens = digits()[10:22]

    def on_rank(cases):
        names = places()
        names = sorted(map(str, names)) if isinstance(names, set | list | tuple) else quoted(names)
        return [try_out(*case) for case in cases], names

    def try_out(compute, reduce):
        policies = answer(compute, reduce)
        pair = isinstance(policies, tuple | list) and len(policies) == 2
        if not pair or not all(isinstance(policy, MixedPrecisionPolicy) for policy in policies):
            return quoted(policies)
        inner, last = policies
        model = cut_in_units(
            new_gpt(6, layers=2).to(device_of_rank()), last={"mp_policy": last}, mp_policy=inner
        )
        seen = {}
        hooked = {"norms": model.layers[1].norm_2, "layer outputs": model.layers[0], "logits": model}
        for name, module in hooked.items():
            module.register_forward_hook(lambda m, given, out, name=name: seen.update({name: out.dtype}))
        for name, module in (("up", model.layers[1].up), ("head", model.head)):
            module.register_forward_hook(lambda m, given, out, n=name: seen.update({n: m.weight.dtype}))
        optimizer = new_adamw(model)
        with trace() as counted:
            try:
                loss = loss_of(model, part_of_rank(tokens))
            except RuntimeError as error:
                if "dtype" in str(error):  # a module of the last unit gets the output of a layer
                    return inner.output_dtype or inner.param_dtype, last.param_dtype
                raise
            loss.backward()
        optimizer.step()
        weight = model.layers[1].up.weight
        seen |= {"shards": weight.dtype, "gradients": weight.grad.dtype}
        seen["moments"] = optimizer.state[weight]["exp_avg"].dtype
        sums = [call.nbytes for call in counted.log if call.kind == "reduce_scatter"]
        dist.all_reduce(loss := loss.detach().float(), op=dist.ReduceOp.AVG)
        return seen, sums, loss.item()

    model = new_gpt(6, layers=2)
    expected = loss_of(model, tokens).item()
    last = sum(p.numel() for name, p in model.named_parameters() if not name.startswith("layers."))
    cases = [
        (torch.bfloat16, torch.float32),
        (torch.float16, torch.float32),
        (torch.float32, torch.bfloat16),
    ]
    results, listed = on_ranks(on_rank, cases, world_size=2)[0]
    for (compute, reduce), result in zip(cases, results, strict=True):
        case = f"With compute {str(compute)[6:]} and reduce {str(reduce)[6:]}"
        assert not isinstance(result, str), (
            f"{case}, policies returned {result}; expected two policies, (inner, last)."
        )
        assert len(result) == 3, (
            f"{case}, the last layer passes on {str(result[0])[6:]}, but the last norm's weights are in "
            f"{str(result[1])[6:]}: both units need the param_dtype, only the last an output_dtype."
        )
        seen, sums, loss = result
        seen = {name: str(dtype)[6:] for name, dtype in seen.items()}
        for name, where in (("up", "a layer"), ("head", "the last unit")):
            assert seen[name] == str(compute)[6:], (
                f"{case}, {where} computes in {seen[name]}; set its param_dtype."
            )
        assert seen["logits"] == "float32", (
            f"{case}, the logits are in {seen['logits']}; expected float32: set the last unit's output_dtype."
        )
        assert seen["layer outputs"] == str(compute)[6:], (
            f"{case}, a layer passes on {seen['layer outputs']}, and the next one casts it back: "
            "only the last unit needs an output_dtype."
        )
        layer = sum(p.numel() for p in model.layers[0].parameters())
        for nbytes, where in ((sums[0] / layer, "layers"), (sums[-1] / last, "last unit")):
            assert nbytes == reduce.itemsize, (
                f"{case}, the gradients of the {where} are summed in {nbytes:g} bytes each; "
                f"expected {reduce.itemsize}: set reduce_dtype."
            )
        assert abs(loss / expected - 1) < 0.02, (
            f"{case}, the loss is {loss:.3f}; expected {expected:.3f} to 2 %, the loss in fp32."
        )
        if compute == torch.bfloat16:
            truth = {name for name in PLACES if seen[name] == "float32"}
    assert isinstance(listed, list), f"in_fp32 returned {listed}; expected a set of names."
    unknown = [name for name in listed if name not in PLACES]
    assert not unknown, f"{unknown[0]!r} is not one of the six names: {', '.join(PLACES)}."
    for name, why in PLACES.items():
        assert (name in listed) == (name in truth), (
            f"The {name} are {'' if name in truth else 'not '}in fp32. {why}"
        )
    return f"bf16 computes and fp32 sums; fp32 holds {', '.join(p for p in PLACES if p in truth)}."


@contextlib.contextmanager
def _norms_of_torch():
    """List the functions of torch.nn.utils for norms that this or a new thread calls, under any name."""
    called = []

    def profile(frame, event, _):
        name = frame.f_code.co_name.removeprefix("_")
        if event == "call" and frame.f_code.co_filename == clip_grad.__file__ and hasattr(nn.utils, name):
            called.append(name)

    before = sys.getprofile(), threading.getprofile()
    sys.setprofile(profile)
    threading.setprofile(profile)
    try:
        yield called
    finally:
        sys.setprofile(before[0])
        threading.setprofile(before[1])


@exercise
def clip(answer):
    """`answer(model, max_norm)` clips gradients across shards and returns the norm before clipping."""
    is_written(answer)
    tokens = digits()[100:112]

    def on_rank(shape, max_norm, size):
        model = new_gpt(7).to(device_of_rank())
        model.position.weight.requires_grad_(False)
        cut_in_units(model, mesh=new_mesh(*shape))
        (size * loss_of(model, part_of_rank(tokens))).backward()
        before = [p.detach().to_local().clone() for p in model.parameters()]
        places = [p.grad.to_local().data_ptr() for p in model.parameters() if p.grad is not None]
        with trace() as counted, _norms_of_torch() as borrowed:
            norm = answer(model, max_norm)
        norm = norm.item() if type(norm) is torch.Tensor and norm.numel() == 1 else norm
        unchanged = all(torch.equal(p.to_local(), b) for p, b in zip(model.parameters(), before, strict=True))
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        in_place = places == [g.to_local().data_ptr() for g in gradients if isinstance(g, DTensor)]
        whole = [g.full_tensor().cpu() for g in gradients if isinstance(g, DTensor)]
        norm = norm if isinstance(norm, float) else quoted(norm)
        return norm, unchanged, whole, in_place, len(counted.log), borrowed[:1]

    model = new_gpt(7)
    model.position.weight.requires_grad_(False)
    loss_of(model, tokens).backward()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    total = norm_of(gradients)
    for shape, max_norm, size in (
        ((3,), MAX_NORM, 1),
        ((2, 2), 0.3, 1),
        ((2,), 10 * total, 1),
        ((2,), MAX_NORM, 0),
    ):
        results = on_ranks(on_rank, shape, max_norm, size, world_size=torch.Size(shape).numel())
        mesh = " × ".join(map(str, shape))
        if not size:
            for rank, (norm, _, whole, *_) in enumerate(results):
                zeros = norm == 0.0 and not any(g.any() for g in whole)
                assert zeros, (
                    f"On a mesh of {mesh}, with all gradients 0, rank {rank} returned {norm}; expected 0.0, "
                    "and gradients that are still 0."
                )
            continue
        norms = [norm for norm, *_ in results]
        factor = min(1.0, max_norm / total)
        for rank, (norm, unchanged, whole, in_place, calls, borrowed) in enumerate(results):
            case = f"On a mesh of {mesh}, rank {rank}"
            assert not borrowed, (
                f"{case} called torch's {borrowed[0]}, which is right and what a program should call. Here, "
                "write out what it does: the parts' squares, their sum over shards, and one factor."
            )
            assert isinstance(norm, float), f"{case} returned {norm}; expected the norm, a float."
            assert unchanged, f"{case} has changed its weights; scale only the gradients."
            assert max(norms) - min(norms) < 1e-3 * total, (
                f"On a mesh of {mesh}, the ranks return norms from {min(norms):.3f} to {max(norms):.3f}; "
                f"one process has {total:.3f}. A rank by itself knows only the norm of its shards."
            )
            replicated = len(shape) == 2 and abs(norm / total - shape[0] ** 0.5) < 1e-3
            assert not replicated, (
                f"{case} returned {norm:.3f}, √{shape[0]} times {total:.3f}: each shard exists {shape[0]} "
                "times, and all copies were summed."
            )
            assert abs(norm / total - 1) < 1e-3, (
                f"{case} returned {norm:.3f}; expected {total:.3f}, the norm in one process."
            )
            assert len(whole) == len(gradients) and in_place, (
                f"{case} replaced gradients by other tensors; scale them in place, as an optimizer and FSDP "
                "may hold the old ones."
            )
            left = norm_of(whole)
            assert abs(left / (factor * total) - 1) < 1e-3, (
                f"{case}: clipped at {max_norm:.3g}, gradients of norm {total:.3f} should have norm "
                f"{factor * total:.3f}; they have {left:.3f}."
            )
            close = (torch.allclose(w, factor * g, atol=1e-6) for w, g in zip(whole, gradients, strict=True))
            assert all(close), f"{case}: one factor should scale all gradients; here factors differ."
            assert calls <= 1, f"{case} communicated {calls} times; one sum of one number is enough."
    return "One factor scales all shards, as in one process, with replicas and also with a frozen weight."
