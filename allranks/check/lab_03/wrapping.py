"""The units of a model, and the bytes that each rank then holds."""

import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel

from allranks import memory
from allranks.check import exercise
from allranks.check.lab_03.common import (
    LR,
    TAKEN,
    bytes_of_units,
    cut_in_units,
    device_of_rank,
    new_adamw,
    new_gpt,
    new_mesh,
    new_tapered,
    part_of_rank,
    quoted,
)
from allranks.check.labs import digits, is_written, on_ranks
from allranks.model import Layer, loss_of
from allranks.trace import trace


@exercise
def wrap(answer):
    """`answer(model, kinds, last=None, **options)` makes a unit of each module of `kinds`, the model last."""
    is_written(answer)
    tokens = digits()[40:64]

    def on_rank(cases):
        warnings.filterwarnings("ignore", "FSDP2-wrapped module")  # a Linear returns a view
        return [try_out(*case) for case in cases]

    def try_out(kinds, options, last):
        model = new_tapered(3).to(device_of_rank())
        options = {"mesh": new_mesh(dist.get_world_size())} | options
        try:
            answer(model, kinds, last, **options)
        except (TypeError, RuntimeError) as error:
            if any(message in str(error) for message in TAKEN):
                return None
            raise
        units = [name for name, module in model.named_modules() if isinstance(module, FSDPModule)]
        if "" not in units:
            return units, None, None, None
        with trace() as counted:
            loss_of(model, part_of_rank(tokens)).backward()
        reduced = [call.nbytes for call in counted.log if call.kind == "reduce_scatter"]
        gradients = {name: p.grad.full_tensor().cpu() for name, p in model.named_parameters()}
        return units, reduced, counted.calls["all_gather"], gradients

    kept = {"reshard_after_forward": False}
    cases = {
        3: [((Layer,), {}, None), ((nn.Linear, Layer), {}, None)],
        2: [((Layer, nn.Embedding), kept, {"reshard_after_forward": True})],
    }
    for world_size in cases:
        results = on_ranks(on_rank, cases[world_size], world_size=world_size)[0]
        for case, result in zip(cases[world_size], results, strict=True):
            units = _are_the_units(world_size, *case, result, tokens)
    return f"Units from the inside out, the model last: {units} units, and one message of gradients for each."


def _are_the_units(world_size, kinds, options, last, result, tokens):
    case = f"With {' and '.join(kind.__name__ for kind in kinds)} as kinds"
    assert result, (
        f"{case}, fully_shard got a module after one that contains it: a unit takes all parameters that no "
        "unit has yet, so go from the inside out."
    )
    units, reduced, gathered, gradients = result
    model = new_tapered(3)
    wanted = ["", *(name for name, module in model.named_modules() if isinstance(module, kinds))]
    missing, extra = [u for u in wanted if u not in units], [u for u in units if u not in wanted]
    assert units, f"{case}, nothing is a unit: fully_shard was not called."
    assert missing != [""], f"{case}, the model itself is not a unit; pass it to fully_shard last."
    assert not missing, (
        f"{case}, there are {len(units)} units instead of {len(wanted)}: "
        f"{missing[-1] or 'the model'} is not one."
    )
    assert not extra, f"{case}, {extra[0]} is a unit, but not of these kinds."
    sizes = bytes_of_units(model, wanted, world_size)
    assert sorted(reduced) == sorted(sizes.values()), (
        f"{case}, rank 0 reduces the gradients of {len(sizes)} units in messages of "
        f"{', '.join(map(str, reduced))} bytes; expected {', '.join(map(str, sizes.values()))}."
    )
    assert kinds != (Layer,) or reduced == [*sizes.values()][::-1], (
        f"{case}, the gradients arrive in messages of {', '.join(map(str, reduced))} bytes; expected the "
        "order "
        f"{', '.join(map(str, [*sizes.values()][::-1]))}: from the last layer to the first, then the rest."
    )
    loss_of(model, tokens).backward()
    for name, p in model.named_parameters():
        assert torch.allclose(gradients[name], p.grad, rtol=1e-3, atol=1e-6), (
            f"{case}, rank 0's gradient of {name} differs from that of one process."
        )
    if last:
        once, twice = len(sizes), 2 * len(sizes)
        hint = (
            "every call dropped its weights, so the options did not arrive, or `last` overrode them "
            "everywhere"
            if gathered == twice
            else "the options are for every call, and `last` for the last call only"
        )
        assert gathered == once + 1, (
            f"With reshard_after_forward=False for all and True in `last`, {once} units are gathered "
            f"{gathered} times in a step; expected {once + 1}: {hint}."
        )
    return len(sizes)


def _states(parameters, element, world_size, rank):
    """The bytes of one state on a rank, with a model sharded by rows; of `parameters`."""
    return element * sum(
        memory.shard_elements(p.shape[0], p[0].numel(), world_size, rank) for p in parameters
    )


@exercise
def held(answer):
    """`answer(model, optimizer)`: (weights, gradients, optimizer) in bytes on the rank that calls."""
    is_written(answer)
    tokens = digits()[:12]

    def on_rank(cases):
        return [try_out(*case) for case in cases]

    def try_out(sharded, dtype, moments, frozen):
        model = new_gpt(4).to(device_of_rank(), dtype)
        model.position.weight.requires_grad_(not frozen)
        model = cut_in_units(model) if sharded else DistributedDataParallel(model)
        optimizer = new_adamw(model) if moments else torch.optim.SGD(model.parameters(), lr=LR)
        counts = [answer(model, optimizer)]
        loss_of(model, part_of_rank(tokens)).backward()
        optimizer.step()
        counts.append(answer(model, optimizer))
        return [tuple(count) if isinstance(count, tuple | list) else quoted(count) for count in counts]

    cases = {
        2: [
            (False, torch.float32, 2, False),
            (True, torch.bfloat16, 2, False),
            (True, torch.float32, 0, False),
        ],
        3: [(True, torch.float32, 2, True)],
    }
    model = new_gpt(4)
    for world_size in cases:
        for rank, results in enumerate(on_ranks(on_rank, cases[world_size], world_size=world_size)):
            for case, (before, after) in zip(cases[world_size], results, strict=True):
                sharded, dtype, moments, frozen = case
                trained = [p for name, p in model.named_parameters() if not frozen or "position" not in name]
                place = (world_size, rank) if sharded else (1, 0)
                weights = _states(model.parameters(), dtype.itemsize, *place)
                gradients = _states(trained, dtype.itemsize, *place)
                whole = _states(model.parameters(), dtype.itemsize, 1, 0)
                who = f"Under {'FSDP' if sharded else 'DDP'} on {world_size} ranks, rank {rank}"
                who = f"With frozen position embeddings u{who[1:]}" if frozen else who
                _are_the_bytes(before, (weights, 0, 0), whole, who, trained)
                _are_the_bytes(after, (weights, gradients, moments * gradients), whole, who, trained)
    Ψ = sum(p.numel() for p in model.parameters())
    ours, ddp = (memory.zero_bytes(Ψ, 2, stage, "fp32") for stage in (3, 0))
    return (
        f"With {Ψ:,} parameters, each of 2 ranks holds {ours:,} bytes under FSDP, 16Ψ/2, and {ddp:,} under "
        "DDP, 16Ψ."
    )


def _are_the_bytes(counts, expected, whole, who, trained):
    assert isinstance(counts, tuple) and len(counts) == 3, (
        f"{who} returned {counts}; expected (weights, gradients, optimizer), three ints."
    )
    names = ("weights", "gradients", "the optimizer's states")
    for name, nbytes, right in zip(names, counts, expected, strict=True):
        assert isinstance(nbytes, int), f"{who} returned {quoted(nbytes)} for {name}; expected an int."
        case = f"{who} returned {nbytes:,} bytes for {name}, but holds {right:,}"
        assert nbytes != right + 4 * len(trained), (
            f"{case}: Adam's step counter, one number a parameter, is not a moment."
        )
        assert nbytes not in (whole, 2 * whole) or nbytes == right, (
            f"{case}: the shape of a DTensor is the global one; to_local() is the part on this rank."
        )
        assert nbytes == right, f"{case}."
