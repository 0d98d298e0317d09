"""Mixed precision of a model whose parameters are sharded."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from allranks import memory
from allranks.check import exercise
from allranks.check.lab_04.common import BF16, FP16, FP32, device_of_rank, joined, named, new_gpt
from allranks.check.labs import digits, is_written, on_ranks
from allranks.model import loss_of
from allranks.trace import trace


def _sharded_step(answer, sizes, tokens, dtype, reduce_dtype):
    device, seen = device_of_rank(), {}
    model = new_gpt(sizes).to(device)
    model.head.register_forward_hook(lambda module, args, logits: seen.update(logits=logits.dtype))
    model.layers[0].norm_1.register_forward_hook(
        lambda module, args, out: seen.update(norm=out.dtype, autocast=torch.is_autocast_enabled(device))
    )
    sharded = answer(model, dtype, reduce_dtype)
    if not isinstance(sharded, nn.Module):
        return {"returned": "None" if sharded in (None, ...) else f"a {type(sharded).__name__}"}
    seen["sharded"] = [isinstance(p, DTensor) for p in sharded.parameters()]
    seen["weights"] = {p.dtype for p in sharded.parameters()}
    if all(seen["sharded"]):
        seen["values"] = joined(p.full_tensor() for p in sharded.parameters())
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
        local = [g.to_local().float() for g in gradients if g is not None]
        seen["rounded"] = all(torch.equal(g, g.to(dtype).float()) for g in local)
        dist.barrier()
    return seen


def _elements(parameters, world_size):
    """The elements in a unit's message: each parameter is padded to the same number of rows on every rank."""
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
        model = new_gpt(sizes)
        layer = list(model.layers[0].parameters())
        rest = [p for name, p in model.named_parameters() if not name.startswith("layers")]
        units = {_elements(layer, world_size), _elements(rest, world_size)}
        results = on_ranks(_sharded_step, answer, sizes, tokens, dtype, reduce_dtype, world_size=world_size)
        for rank, seen in enumerate(results):
            assert "returned" not in seen, f"Rank {rank} returned {seen['returned']}; expected the model."
            _judge_shards(
                f"On rank {rank} of {world_size}",
                seen,
                joined(model.parameters()),
                units,
                dtype,
                reduce_dtype,
            )
    return "Weights travel in 16 bits, gradients in the requested dtype; shards stay in float32."


def _judge_shards(who, seen, values, units, dtype, reduce_dtype):
    assert any(seen["sharded"]), f"{who}, no parameter is sharded; call `fully_shard`."
    assert all(seen["sharded"]), (
        f"{who}, {seen['sharded'].count(False)} parameters of {len(seen['sharded'])} are not sharded: "
        "pass the model itself to `fully_shard`, after its layers."
    )
    assert seen["weights"] == {FP32}, (
        f"{who}, the shards are in 16 bits, and the optimizer updates them. `param_dtype` keeps the shards "
        "in "
        "float32 and makes 16-bit copies; `model.to` does not."
    )
    assert "mixed" not in seen, (
        f"{who}, 16-bit activations meet 32-bit weights in forward: every unit needs the policy, including "
        "the "
        "one for the rest."
    )
    assert not seen["autocast"], (
        f"{who}, the layers compute in autocast. It chooses dtypes operation by operation, from a list of "
        "its own; `param_dtype` alone makes the unit compute in that dtype."
    )
    assert torch.equal(seen["values"], values), (
        f"{who}, the values of the weights have changed; sharding should keep them."
    )
    assert seen["gradients"] == {FP32}, f"{who}, the gradients of some shards are missing or not in float32."
    assert reduce_dtype != FP32 or not seen["rounded"], (
        f"{who}, each number of the gradients is one of {named(dtype)}: they are summed in float32, and must "
        "not be rounded afterwards."
    )
    for kind, what, wanted in (
        ("all_gather", "weights", dtype),
        ("reduce_scatter", "gradients", reduce_dtype),
    ):
        sizes = {nbytes for name, nbytes in seen["messages"] if name == kind}
        right = {n * wanted.itemsize for n in units}
        other = {n * (6 - wanted.itemsize) for n in units}  # 2 bytes or 4
        assert sizes != other, (
            f"{who}, the {what} travel in {'32' if wanted.itemsize == 2 else '16'} bits; expected "
            f"{named(wanted)}: "
            f"set `{'param' if kind == 'all_gather' else 'reduce'}_dtype`."
        )
        right, sent = (" and ".join(f"{n:,}" for n in sorted(counts)) for counts in (right, sizes))
        assert sent == right, (
            f"{who}, the {what} travel in messages of {sent} bytes; expected {right}: in {named(wanted)}, a "
            "unit "
            "for each layer and one for the rest, each with the policy."
        )
    assert seen["logits"] == dtype, (
        f"{who}, the logits are in {named(seen['logits'])}; expected {named(dtype)}."
    )
    assert seen["norm"] == dtype, (
        f"{who}, a norm in a layer computes in {named(seen['norm'])}; expected {named(dtype)}, as everything "
        "in the unit."
    )
