"""A sharded model whose whole never exists: built on "meta", filled and sharded unit by unit."""

from functools import partial

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from allranks.check import exercise
from allranks.check.lab_03.common import device_of_rank, new_mesh, quoted
from allranks.check.labs import all_on_ranks, drawn, is_written
from allranks.held import held
from allranks.model import GPT, Layer


@exercise
def start(answer):
    """`answer(make, kinds, mesh, seed)`: a sharded model, equal to `make()` in one process."""
    is_written(answer)

    def on_rank(layers, seed):
        make = partial(GPT, layers=layers, hidden=32, heads=2)
        mesh = new_mesh(dist.get_world_size())
        torch.manual_seed(99 + dist.get_rank())
        with held() as counted:
            model = answer(make, (Layer,), mesh, seed)
        peak = max(counted.history, default=0)
        if not isinstance(model, nn.Module):
            return quoted(model)
        units = sum(isinstance(module, FSDPModule) for module in model.modules())
        named = dict(model.named_parameters())
        kinds = {
            "meta": [n for n, p in named.items() if p.is_meta],
            "plain": [n for n, p in named.items() if not isinstance(p, DTensor)],
            "frozen": [n for n, p in named.items() if not p.requires_grad],
            "dtype": [n for n, p in named.items() if p.dtype != torch.float32],
        }
        if any(kinds.values()):
            return units, peak, kinds, None
        with torch.device(device_of_rank()):  # as on the device of the ranks, whose generator is another
            torch.manual_seed(seed)
            whole = dict(make().named_parameters())
        parts = {n: (p.detach().full_tensor(), whole[n].detach()) for n, p in named.items() if n in whole}
        differ = [n for n, (ours, right) in parts.items() if not torch.equal(ours, right)]
        return units, peak, kinds, (differ, sorted(named) == sorted(whole), _own(parts))

    hint = "All ranks have to shard the same modules in the same order."
    for world_size, layers, seed in ((2, 8, drawn(41)), (3, 6, drawn(43))):
        model = GPT(layers=layers, hidden=32, heads=2)
        Ψ = sum(p.numel() for p in model.parameters())
        unit = sum(p.numel() for p in model.layers[0].parameters())
        rest = Ψ - layers * unit
        most = 4 * (Ψ / world_size + rest + 2 * unit)
        for rank, result in enumerate(all_on_ranks(hint, on_rank, layers, seed, world_size=world_size)):
            case = f"On rank {rank} of {world_size}"
            assert not isinstance(result, str), (
                f"{case}, start returned {result}; expected the sharded model."
            )
            units, peak, kinds, compared = result
            for kind, text in (
                ("meta", 'is still on the device "meta", without memory: to_empty gives it some'),
                ("plain", "is not sharded: call fully_shard for each of `kinds` and for the model"),
                ("frozen", "no longer requires gradients"),
                ("dtype", "is not in fp32"),
            ):
                assert not kinds[kind], f"{case}, {kinds[kind][0]} {text}."
            assert units == layers + 1, f"{case}, there are {units} units; expected {layers + 1}."
            assert peak < 4 * Ψ, (
                f"{case}, start held the whole model: {peak:,} bytes at once of {4 * Ψ:,}. Fill one unit, "
                "shard it, and then fill the next."
            )
            assert peak <= 1.1 * most, (
                f"{case}, start held {peak:,} bytes at once; {most:,.0f} are enough for the shards, the rest "
                "and one unit."
            )
            differ, names, own = compared
            assert names, f"{case}, the model's weights are not those that make() defines."
            assert not own, (
                f"{case}, {own} has been reset after it was sharded: a rank draws its own numbers for its "
                "part, and one process draws others. Reset whole modules, then shard."
            )
            assert not differ, (
                f"{case}, {differ[0]} and {len(differ) - 1} more have a start that differs from that of "
                "make() in one process: set the seed once, and reset all modules in the order in which "
                "make() builds them."
            )
    return (
        f"On 2 and 3 ranks, the initial weights equal those of one process; no rank held more than "
        f"{100 * peak / 4 / Ψ:.0f} % of the model at once."
    )


def _own(parts):
    """The name of a matrix whose slices are the same numbers again, as all are then; None if not all are."""
    for ours, right in parts.values():
        half = len(ours) // 2
        if ours.dim() == 2 and (
            torch.equal(ours, right) or not torch.equal(ours[:half], ours[half : 2 * half])
        ):
            return None
    return next(iter(parts))
