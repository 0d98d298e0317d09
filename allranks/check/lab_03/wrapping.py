"""The units of a model, and the bytes that each rank then holds."""

import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy
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

    kept, dropped = ({"reshard_after_forward": drop} for drop in (False, True))
    cases = {
        3: [((Layer,), {}, None), ((nn.Linear, Layer), {}, None)],
        2: [
            ((Layer, nn.Embedding), kept, dropped),
            ((Layer,), dropped, {"mp_policy": MixedPrecisionPolicy()}),
        ],
    }
    for world_size in cases:
        results = on_ranks(on_rank, cases[world_size], world_size=world_size)[0]
        for case, result in zip(cases[world_size], results, strict=True):
            units = _are_the_units(world_size, *case, result, tokens)
    return (
        f"{units} units are wrapped from the inside out, the model last; each sends one message of gradients."
    )


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
    assert len(reduced) == len(sizes), (
        f"{case}, {len(sizes)} units reduce their gradients in {len(reduced)} messages: to fully_shard, one "
        "list is one unit; call it for each module."
    )
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
        _are_the_options(options, last, len(sizes), gathered)
    return len(sizes)


def _are_the_options(options, last, once, gathered):
    """Fail unless `once` units were gathered as often as `options`, and `last` for the model, have it."""
    dropped, of_model = options["reshard_after_forward"], (options | last)["reshard_after_forward"]
    expected = once + dropped * (once - 1) + of_model
    hint = "the options are for every call, and `last` for the last call only"
    if not dropped and gathered == 2 * once:
        hint = "all units dropped theirs: the options did not arrive, or `last` overrode them everywhere"
    if dropped:
        hint = "`last` overrides what it names; the other options hold for the last call too"
    assert gathered == expected, (
        f"With reshard_after_forward={dropped} for all and {', '.join(last)} in `last`, {once} units are "
        f"gathered {gathered} times in a step; expected {expected}: {hint}."
    )


def _part(p, element, shards, rank, padded=False):
    """The bytes of the parameter `p` on a rank, cut by rows; `padded` to as many rows as rank 0 has."""
    return element * memory.shard_elements(p.shape[0], p[0].numel(), shards, 0 if padded else rank)


OPTIMIZERS = {  # how many moments each keeps, and how it is made
    "AdamW": (2, new_adamw),
    "AMSGrad": (3, lambda model: torch.optim.AdamW(model.parameters(), lr=LR, amsgrad=True)),
    "SGD": (0, lambda model: torch.optim.SGD(model.parameters(), lr=LR)),
    "SGD with momentum": (1, lambda model: torch.optim.SGD(model.parameters(), lr=LR, momentum=0.9)),
}


@exercise
def held(answer):
    """`answer(model, optimizer)`: (weights, gradients, optimizer) in bytes on the rank that calls."""
    is_written(answer)
    tokens = digits()[:12]

    def on_rank(cases):
        return [try_out(*case) for case in cases]

    def try_out(shape, dtype, optimizer, special):
        model = new_gpt(4).to(device_of_rank(), dtype)
        model.position.weight.requires_grad_(special != "frozen")
        model = cut_in_units(model, mesh=new_mesh(*shape)) if shape else DistributedDataParallel(model)
        optimizer = OPTIMIZERS[optimizer][1](model)
        counts = [answer(model, optimizer)]
        loss_of(model, part_of_rank(tokens)).backward()
        optimizer.step()
        if special == "freed":
            model.layers[0].zero_grad()
        before = [id(p.grad) for p in model.parameters()], len(optimizer.state)
        counts.append(answer(model, optimizer))
        unchanged = before == ([id(p.grad) for p in model.parameters()], len(optimizer.state))
        counts = [tuple(count) if isinstance(count, tuple | list) else quoted(count) for count in counts]
        return counts, unchanged

    cases = {  # the mesh, or None under DDP; …; and which gradients are missing
        2: [
            (None, torch.float32, "AdamW", ""),
            ((2,), torch.bfloat16, "AdamW", ""),
            ((2,), torch.float32, "SGD", ""),
            ((2, 1), torch.float32, "SGD with momentum", "freed"),
        ],
        3: [((3,), torch.float32, "AdamW", "frozen"), ((3,), torch.float32, "AMSGrad", "")],
    }
    model = new_gpt(4)
    for world_size in cases:
        for rank, results in enumerate(on_ranks(on_rank, cases[world_size], world_size=world_size)):
            for case, (counts, unchanged) in zip(cases[world_size], results, strict=True):
                who = _are_the_bytes(model, world_size, rank, counts, *case)
                assert unchanged, f"{who} changed gradients or states; held measures and changes nothing."
    Ψ = sum(p.numel() for p in model.parameters())
    ours, ddp = (memory.zero_bytes(Ψ, 2, stage, "fp32") for stage in (3, 0))
    return (
        f"With {Ψ:,} parameters, each of 2 ranks holds {ours:,} bytes under FSDP, 16Ψ/2, and {ddp:,} under "
        "DDP, 16Ψ."
    )


def _are_the_bytes(model, world_size, rank, counts, shape, dtype, optimizer, special):
    """Fail unless `counts`, before and after a step, are the bytes of the tensors; return who counted."""
    named = list(model.named_parameters())
    trained = [p for name, p in named if special != "frozen" or "position" not in name]
    graded = [p for name, p in named if special != "freed" or not name.startswith("layers.0")]
    graded = [p for p in graded if any(p is t for t in trained)]
    shards = shape[-1] if shape else 1
    everything = [p for _, p in named]
    moments = OPTIMIZERS[optimizer][0]

    def nbytes(parameters, padded=False):
        return sum(_part(p, dtype.itemsize, shards, rank if shards > 1 else 0, padded) for p in parameters)

    who = f"Under {'FSDP' if shape else 'DDP'} on {world_size} ranks, rank {rank}"
    who = f"On a mesh of 2 × 1, rank {rank}" if shape and len(shape) == 2 else who
    who = f"With frozen position embeddings u{who[1:]}" if special == "frozen" else who
    whole = sum(p.numel() for p in everything) * dtype.itemsize
    for count, later in zip(counts, (False, True), strict=True):
        assert isinstance(count, tuple) and len(count) == 3, (
            f"{who} returned {count}; expected (weights, gradients, optimizer), three ints."
        )
        rows = (
            ("weights", everything, 1),
            ("gradients", graded if later else [], 1),
            ("the optimizer's states", trained if later else [], moments),
        )
        for (name, parameters, times), found in zip(rows, count, strict=True):
            assert isinstance(found, int), f"{who} returned {quoted(found)} for {name}; expected an int."
            right = times * nbytes(parameters)
            padded = right if "states" in name else nbytes(parameters, padded=True)
            if found in (right, padded):  # FSDP pads what it sends, weights and gradients
                continue
            case = f"{who} returned {found:,} bytes for {name}, but holds {right:,}"
            assert found != right + 4 * len(trained), (
                f"{case}: Adam's step counter, one number a parameter, is not a moment."
            )
            assert found not in (whole, 2 * whole), (
                f"{case}: the shape of a DTensor is the global one; to_local() is the part on this rank."
            )
            raise AssertionError(
                f"{case}. A formula does not know which gradients, moments and replicas exist: "
                "measure the tensors."
            )
    return who
