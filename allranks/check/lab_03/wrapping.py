"""Which units a model is cut into, and what each rank then holds."""

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
from allranks.check.labs import is_written, on_ranks
from allranks.model import Layer, digits, loss_of
from allranks.trace import trace


@exercise
def wrap(answer):
    """`answer(model, kinds, last=None, **options)` makes a unit of each module of `kinds`, the model last."""
    is_written(answer)
    tokens = digits()[40:64]

    def on_rank(cases):
        warnings.filterwarnings("ignore", "FSDP2-wrapped module")  # of the view that a Linear returns
        return [tried(*case) for case in cases]

    def tried(kinds, options, last):
        model = new_tapered(3).to(device_of_rank())
        options = {"mesh": new_mesh(dist.get_world_size())} | options
        try:
            answer(model, kinds, last, **options)
        except (TypeError, RuntimeError) as error:
            if any(said in str(error) for said in TAKEN):
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
        found = on_ranks(on_rank, cases[world_size], world_size=world_size)[0]
        for case, result in zip(cases[world_size], found, strict=True):
            units = _are_the_units(world_size, *case, result, tokens)
    return f"Units from the inside out, the model last: {units} units, and a message of gradients for each."


def _are_the_units(world_size, kinds, options, last, result, tokens):
    said = " and ".join(kind.__name__ for kind in kinds)
    assert result, (
        f"With {said} as kinds, a module was given to fully_shard after one that contains it: "
        "a unit takes what is not taken, so go from the inside out."
    )
    units, reduced, gathered, gradients = result
    model = new_tapered(3)
    wanted = ["", *(name for name, module in model.named_modules() if isinstance(module, kinds))]
    missing, extra = [u for u in wanted if u not in units], [u for u in units if u not in wanted]
    assert units, f"With {said} as kinds, nothing is a unit: fully_shard was not called."
    assert missing != [""], "The model itself has to be given to fully_shard too, as the last."
    assert not missing, (
        f"With {said} as kinds, there are {len(units)} units in place of {len(wanted)}: "
        f"{missing[-1] or 'the model'} is none."
    )
    assert not extra, f"With {said} as kinds, {extra[0]} is a unit, and is not of these kinds."
    sizes = bytes_of_units(model, wanted, world_size)
    assert sorted(reduced) == sorted(sizes.values()), (
        f"With {said} as kinds, the gradients of {len(sizes)} units are reduced in messages of "
        f"{', '.join(map(str, reduced))} bytes, and not in {', '.join(map(str, sizes.values()))}."
    )
    assert kinds != (Layer,) or reduced == [*sizes.values()][::-1], (
        f"The gradients arrive in messages of {', '.join(map(str, reduced))} bytes: these are the units, "
        "and not from the last layer to the first, with the rest at the end."
    )
    loss_of(model, tokens).backward()
    for name, p in model.named_parameters():
        assert torch.allclose(gradients[name], p.grad, rtol=1e-3, atol=1e-6), (
            f"The gradient of {name} is not that of one process."
        )
    if last:
        once, twice = len(sizes), 2 * len(sizes)
        assert gathered != twice, "The options were not handed to fully_shard."
        assert gathered == once + 1, (
            f"With reshard_after_forward=False for all and True in `last`, {once} units are gathered "
            f"{gathered} times in a step, and not {once + 1}: `last` is for the last call only."
        )
    return len(sizes)


def _states(model, element, world_size, rank):
    """What a rank holds of one state, if the model is sharded by rows."""
    return element * sum(
        memory.shard_elements(p.shape[0], p[0].numel(), world_size, rank) for p in model.parameters()
    )


@exercise
def held(answer):
    """`answer(model, optimizer)`: (weights, gradients, optimizer) in bytes, held by the rank that calls."""
    is_written(answer)
    tokens = digits()[:12]

    def on_rank(cases):
        return [tried(*case) for case in cases]

    def tried(sharded, dtype, moments):
        model = new_gpt(4).to(device_of_rank(), dtype)
        model = cut_in_units(model) if sharded else DistributedDataParallel(model)
        optimizer = new_adamw(model) if moments else torch.optim.SGD(model.parameters(), lr=LR)
        found = [answer(model, optimizer)]
        loss_of(model, part_of_rank(tokens)).backward()
        optimizer.step()
        found.append(answer(model, optimizer))
        return [tuple(f) if isinstance(f, tuple | list) else quoted(f) for f in found]

    cases = {
        2: [(False, torch.float32, 2), (True, torch.bfloat16, 2), (True, torch.float32, 0)],
        3: [(True, torch.float32, 2)],
    }
    model = new_gpt(4)
    for world_size in cases:
        for rank, results in enumerate(on_ranks(on_rank, cases[world_size], world_size=world_size)):
            for (sharded, dtype, moments), (before, after) in zip(cases[world_size], results, strict=True):
                one = _states(model, dtype.itemsize, world_size if sharded else 1, rank if sharded else 0)
                whole = _states(model, dtype.itemsize, 1, 0)
                who = f"Under {'FSDP' if sharded else 'DDP'} on {world_size} ranks, rank {rank}"
                for found, expected in ((before, (one, 0, 0)), (after, (one, one, moments * one))):
                    _are_the_bytes(found, expected, whole, who, model)
    Ψ = sum(p.numel() for p in model.parameters())
    ours, ddp = (memory.zero_bytes(Ψ, 2, stage, "fp32") for stage in (3, 0))
    return (
        f"Of {Ψ:,} parameters a rank of 2 holds {ours:,} bytes with FSDP, 16Ψ/2, and {ddp:,} with DDP, 16Ψ."
    )


def _are_the_bytes(found, expected, whole, who, model):
    assert isinstance(found, tuple) and len(found) == 3, (
        f"{who} returned {found}, and not the bytes of weights, gradients and optimizer."
    )
    numbers = len([*model.parameters()])
    names = ("weights", "gradients", "the optimizer's states")
    for name, nbytes, right in zip(names, found, expected, strict=True):
        assert isinstance(nbytes, int), f"{who} returned {quoted(nbytes)} for {name}, and not whole bytes."
        said = f"{who} returned {nbytes:,} bytes for {name}, and holds {right:,}"
        assert nbytes != right + 4 * numbers, (
            f"{said}: Adam's counter of steps, one number a parameter, is no moment."
        )
        assert nbytes not in (whole, 2 * whole) or nbytes == right, (
            f"{said}: the shape of a DTensor is the global one, and what is here is its to_local()."
        )
        assert nbytes == right, f"{said}."
