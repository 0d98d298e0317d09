"""Precision where numbers travel and where they are kept, and a gradient clipped over all shards."""

import torch
import torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.distributed.tensor import DTensor

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
from allranks.check.labs import is_written, on_ranks
from allranks.model import digits, loss_of
from allranks.trace import trace


@exercise
def precision(answer, places):
    """`answer(compute, reduce)`: the policies (inner, last); `places()`: what of PLACES is in fp32."""
    is_written(answer, places)
    tokens = digits()[10:22]

    def on_rank(cases):
        found = places()
        found = sorted(map(str, found)) if isinstance(found, set | list | tuple) else quoted(found)
        return [tried(*case) for case in cases], found

    def tried(compute, reduce):
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
                if "dtype" in str(error):  # of a module of the last unit, given what a layer has handed on
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
    for (compute, reduce), found in zip(cases, results, strict=True):
        case = f"With compute {str(compute)[6:]} and reduce {str(reduce)[6:]}"
        assert not isinstance(found, str), f"{case} came {found}, and not two policies: (inner, last)."
        assert len(found) == 3, (
            f"{case}, the last layer hands on {str(found[0])[6:]}, and the last norm's weights are in "
            f"{str(found[1])[6:]}: param_dtype is for both units, output_dtype for the last."
        )
        seen, sums, loss = found
        seen = {name: str(dtype)[6:] for name, dtype in seen.items()}
        for name, where in (("up", "a layer"), ("head", "the last unit")):
            assert seen[name] == str(compute)[6:], f"{case}, {where} computes in {seen[name]}: param_dtype."
        assert seen["logits"] == "float32", (
            f"{case}, the logits come out in {seen['logits']}, and the loss is computed from them."
        )
        assert seen["layer outputs"] == str(compute)[6:], (
            f"{case}, a layer hands on {seen['layer outputs']}, twice the bytes, and the next one casts it "
            "back: output_dtype is for the last unit."
        )
        layer = sum(p.numel() for p in model.layers[0].parameters())
        for nbytes, where in ((sums[0] / layer, "layers"), (sums[-1] / last, "last unit")):
            assert nbytes == reduce.itemsize, (
                f"{case}, the gradients of the {where} are summed in {nbytes:g} bytes each: reduce_dtype."
            )
        assert abs(loss / expected - 1) < 0.02, f"{case}, the loss is {loss:.3f}, and in fp32 {expected:.3f}."
        if compute == torch.bfloat16:
            truth = {name for name in PLACES if seen[name] == "float32"}
    assert isinstance(listed, list), f"in_fp32 returned {listed}, and not a set of names."
    unknown = [name for name in listed if name not in PLACES]
    assert not unknown, f"{unknown[0]!r} is not among the places: {', '.join(PLACES)}."
    for name, why in PLACES.items():
        assert (name in listed) == (name in truth), (
            f"The {name} are {'' if name in truth else 'not '}in fp32. {why}"
        )
    return f"bf16 computes and fp32 sums; in fp32 are {', '.join(p for p in PLACES if p in truth)}."


@exercise
def clip(answer):
    """`answer(model, max_norm)` clips gradients across shards, and returns the norm that they had."""
    is_written(answer)
    tokens = digits()[100:112]

    def on_rank(shape, max_norm):
        model = new_gpt(7).to(device_of_rank())
        model.position.weight.requires_grad_(False)
        cut_in_units(model, mesh=new_mesh(*shape))
        loss_of(model, part_of_rank(tokens)).backward()
        before = [p.detach().to_local().clone() for p in model.parameters()]
        with trace() as counted:
            norm = answer(model, max_norm)
        norm = norm.item() if type(norm) is torch.Tensor and norm.numel() == 1 else norm
        same = all(torch.equal(p.to_local(), b) for p, b in zip(model.parameters(), before, strict=True))
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        whole = [g.full_tensor().cpu() for g in gradients if isinstance(g, DTensor)]
        return norm if isinstance(norm, float) else quoted(norm), same, whole, len(counted.log)

    model = new_gpt(7)
    model.position.weight.requires_grad_(False)
    loss_of(model, tokens).backward()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    total = norm_of(gradients)
    for shape, max_norm in (((3,), MAX_NORM), ((2, 2), 0.3), ((2,), 10 * total)):
        results = on_ranks(on_rank, shape, max_norm, world_size=torch.Size(shape).numel())
        mesh = " × ".join(map(str, shape))
        norms = [norm for norm, *_ in results]
        factor = min(1.0, max_norm / total)
        for rank, (norm, same, whole, calls) in enumerate(results):
            case = f"On a mesh of {mesh}, rank {rank}"
            assert isinstance(norm, float), f"{case} returned {norm}, and not the norm, a float."
            assert same, f"{case} has other weights than before; only the gradients are to be scaled."
            assert max(norms) - min(norms) < 1e-3 * total, (
                f"On a mesh of {mesh} the ranks return norms from {min(norms):.3f} to {max(norms):.3f}, "
                f"and one process has {total:.3f}: a rank alone knows the norm of its shards."
            )
            replicated = len(shape) == 2 and abs(norm / total - shape[0] ** 0.5) < 1e-3
            assert not replicated, (
                f"{case} returned {norm:.3f}, √{shape[0]} times {total:.3f}: each shard is there "
                f"{shape[0]} times, and was summed over all ranks."
            )
            assert abs(norm / total - 1) < 1e-3, (
                f"{case} returned {norm:.3f}, and the gradients of one process have norm {total:.3f}."
            )
            assert len(whole) == len(gradients), f"{case} has gradients that are no DTensors any more."
            left = norm_of(whole)
            assert abs(left / (factor * total) - 1) < 1e-3, (
                f"{case}: gradients of norm {total:.3f}, to be clipped at {max_norm:.3g}, "
                f"have {left:.3f} afterwards."
            )
            close = (torch.allclose(w, factor * g, atol=1e-6) for w, g in zip(whole, gradients, strict=True))
            assert all(close), f"{case}: not all gradients are scaled by one factor."
            assert calls <= 1, f"{case} communicated {calls} times; one sum of one number is enough."
    return "One factor for all shards: that of one process, with replicas and with a frozen weight too."
