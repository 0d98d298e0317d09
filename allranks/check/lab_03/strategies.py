"""A sharding strategy that fits a budget of bytes, and sends the least."""

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from allranks import memory
from allranks.check import exercise
from allranks.check.lab_03.common import cut_in_units, device_of_rank, new_gpt, part_of_rank, quoted
from allranks.check.labs import is_written, on_ranks
from allranks.model import digits, loss_of
from allranks.trace import trace


def _needs(layers, rest, shards, kept):
    """The bytes that a rank needs, as the task says."""
    Ψ, largest = sum(layers) + rest, max(layers)
    whole = 4 * Ψ + 4 * largest if kept else 4 * rest + memory.unsharded_bytes(largest, "fp32")
    return memory.zero_bytes(Ψ, shards, 3, "fp32") + whole


def _sends(layers, rest, shards, kept, world_size):
    """The bytes that a rank sends in a step: an all-reduce, and another gather where weights are dropped."""
    Ψ = sum(layers) + rest
    again = 0 if kept else 4 * sum(layers) * (shards - 1) / shards
    return 8 * Ψ * (world_size - 1) / world_size + again


def _choices(world_size):
    """(shards, kept), the best first."""
    divisors = [s for s in range(2, world_size + 1) if world_size % s == 0]
    return [(s, kept) for kept in (True, False) for s in divisors]


def _choice(layers, rest, budget, world_size):
    return next(c for c in _choices(world_size) if _needs(layers, rest, *c) <= budget)


def _strategy_cases():
    """(world size, parameters of the layers and of the rest, budget): one where each choice is the best."""
    model = new_gpt(5, layers=2)
    layers = [sum(p.numel() for p in layer.parameters()) for layer in model.layers]
    rest = sum(p.numel() for p in model.parameters()) - sum(layers)
    large = [48_000_000, 50_000_000, 64_000_000] * 8, 7_000_000
    for world_size, sizes in ((4, (layers, rest)), (6, large)):
        for choice in _choices(world_size):
            budget = int(_needs(*sizes, *choice)) + 1
            if _choice(*sizes, budget, world_size) == choice:
                yield world_size, *sizes, budget


@exercise
def strategy(answer):
    """`answer(layers, rest, budget, device)` are the options of `fully_shard` that fit, and send least."""
    is_written(answer)
    tokens = digits()[:24]

    def on_rank(cases):
        found = []
        for layers, rest, budget in cases:
            options = answer(list(layers), rest, budget, device_of_rank())
            mesh = options.get("mesh") if isinstance(options, dict) else None
            if not isinstance(mesh, DeviceMesh):
                return quoted(options)
            shape = (*((1,) if mesh.ndim == 1 else ()), *mesh.shape)
            in_order = mesh.mesh.flatten().tolist() == list(range(dist.get_world_size()))
            sent = None
            if sum(layers) < 1e6:
                model = cut_in_units(new_gpt(5, layers=2).to(device_of_rank()), **options)
                with trace() as counted:
                    loss_of(model, part_of_rank(tokens)).backward()
                sent = counted.sent
            found.append((shape, in_order, options.get("reshard_after_forward"), sent))
        return found

    grouped = {}
    for world_size, *case in _strategy_cases():
        grouped.setdefault(world_size, []).append(case)
    for world_size, cases in grouped.items():
        for rank, found in enumerate(on_ranks(on_rank, cases, world_size=world_size)):
            assert not isinstance(found, str), (
                f"Rank {rank} returned {found}; wanted are options of fully_shard, a mesh among them."
            )
            for case, one in zip(cases, found, strict=True):
                _is_the_strategy(world_size, *case, *one)
    return "What fits and sends least: weights kept while there is room, and as few shards as fit."


def _is_the_strategy(world_size, layers, rest, budget, shape, in_order, reshard, sent):
    Ψ = sum(layers) + rest
    shards, kept = _choice(layers, rest, budget, world_size)
    case = f"On {world_size} ranks, with {budget / Ψ:.1f} bytes a parameter,"
    mesh = " × ".join(map(str, shape))
    assert len(shape) == 2 and shape[0] * shape[1] == world_size and in_order, (
        f"{case} the mesh is {mesh}, and has to be replicas × shards of all ranks, in order."
    )
    assert reshard in (None, False), (
        f"{case} reshard_after_forward is {reshard!r}: left out, it drops all units but the last, which "
        "backward needs at once; False keeps them."
    )
    mine = shape[1], reshard is False
    said = f"{case} {mesh} {'with weights kept' if mine[1] else 'with weights dropped'}"
    turned = shape[::-1] == (world_size // shards, shards) != shape and mine[1] == kept
    assert not turned, f"{said} is the mesh turned around: its second axis is the one that shards."
    assert shape[1] > 1, f"{case} the mesh is {mesh}: with one shard nothing is sharded, and DDP does that."
    needs = _needs(layers, rest, *mine)
    assert needs <= budget, f"{said} needs {needs / Ψ:.1f}."
    cost, least = (_sends(layers, rest, *c, world_size) for c in (mine, (shards, kept)))
    assert cost <= least, (
        f"{said} fits, and sends {cost / 4 / Ψ:.2f} Ψ elements a step; {least / 4 / Ψ:.2f} Ψ are enough."
    )
    assert mine == (shards, kept), (
        f"{said} fits, and gathers each weight among {mine[0]} ranks; {shards} are enough."
    )
    assert sent is None or abs(sent - least) < 1, f"{said} sends {sent:,.0f} bytes, and not {least:,.0f}."
