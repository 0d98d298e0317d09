"""A sharding strategy that fits a memory budget and sends the least."""

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from allranks import memory
from allranks.check import exercise
from allranks.check.lab_03.common import cut_in_units, device_of_rank, new_gpt, part_of_rank, quoted
from allranks.check.labs import digits, is_written, on_ranks
from allranks.model import loss_of
from allranks.trace import trace


def _needs(layers, rest, shards, kept):
    """The bytes that a rank needs, by the table of the task."""
    Ψ, largest = sum(layers) + rest, max(layers)
    whole = 4 * Ψ + 4 * largest if kept else 4 * rest + memory.unsharded_bytes(largest, "fp32")
    return memory.zero_bytes(Ψ, shards, 3, "fp32") + whole


def _sends(layers, rest, shards, kept, world_size):
    """The bytes that a rank sends in a step: an all-reduce, and another gather if weights are dropped."""
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
    """Yield (world size, parameters of the layers and of the rest, budget), on both sides of each limit.

    One byte more than a choice needs, it is the best; one byte less, the next has to be taken.
    """
    model = new_gpt(5, layers=2)
    layers = [sum(p.numel() for p in layer.parameters()) for layer in model.layers]
    rest = sum(p.numel() for p in model.parameters()) - sum(layers)
    large = [48_000_000, 50_000_000, 64_000_000] * 8, 7_000_000
    wide = [90_000_000, 30_000_000, 31_000_000], 160_000_000
    for world_size, sizes, slacks in ((4, (layers, rest), (1,)), (6, large, (1, -1)), (6, wide, (1, -1))):
        needs = [int(_needs(*sizes, *choice)) for choice in _choices(world_size)]
        for choice, need in zip(_choices(world_size), needs, strict=True):
            for budget in (need + slack for slack in slacks if need + slack >= min(needs)):
                if budget < need or _choice(*sizes, budget, world_size) == choice:
                    yield world_size, *sizes, budget


@exercise
def strategy(answer):
    """`answer(layers, rest, budget, device)`: the options of `fully_shard` that fit and send least."""
    is_written(answer)
    tokens = digits()[:24]

    def on_rank(cases):
        choices = []
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
            choices.append((shape, in_order, options.get("reshard_after_forward"), sent))
        return choices

    grouped = {}
    for world_size, *case in _strategy_cases():
        grouped.setdefault(world_size, []).append(case)
    for world_size, cases in grouped.items():
        for rank, choices in enumerate(on_ranks(on_rank, cases, world_size=world_size)):
            assert not isinstance(choices, str), (
                f"Rank {rank} returned {choices}; expected a dict of options of fully_shard, with a mesh."
            )
            for case, choice in zip(cases, choices, strict=True):
                _is_the_strategy(world_size, *case, *choice)
    return "What fits and sends least: keep weights while there is room, and use as few shards as fit."


def _is_the_strategy(world_size, layers, rest, budget, shape, in_order, reshard, sent):
    Ψ = sum(layers) + rest
    shards, kept = _choice(layers, rest, budget, world_size)
    case = f"On {world_size} ranks, with {budget / Ψ:.1f} bytes a parameter,"
    mesh = " × ".join(map(str, shape))
    assert len(shape) == 2 and shape[0] * shape[1] == world_size and in_order, (
        f"{case} the mesh is {mesh}; expected replicas × shards of all {world_size} ranks, in order."
    )
    assert reshard in (None, False), (
        f"{case} reshard_after_forward is {reshard!r}; expected None or False. None drops the weights of all "
        "units but the last, which backward needs at once; False keeps them."
    )
    chosen = shape[1], reshard is False
    what = f"{case} {mesh} {'with weights kept' if chosen[1] else 'with weights dropped'}"
    fits = shape[1] == 1 or _needs(layers, rest, *chosen) <= budget
    turned = fits and shape[::-1] == (world_size // shards, shards) != shape and chosen[1] == kept
    assert not turned, f"{what} has the axes exchanged: the second axis shards."
    assert shape[1] > 1, f"{case} the mesh is {mesh}: one shard is DDP; expected {shards} shards."
    needs = _needs(layers, rest, *chosen)
    assert needs <= budget, f"{what} does not fit: it needs {needs:,.0f} bytes of {budget:,}."
    cost, least = (_sends(layers, rest, *c, world_size) for c in (chosen, (shards, kept)))
    assert cost <= least, (
        f"{what} fits, but sends {cost / 4 / Ψ:.2f} Ψ elements a step; {least / 4 / Ψ:.2f} Ψ are enough."
    )
    assert chosen == (shards, kept), (
        f"{what} fits, but gathers each weight among {chosen[0]} ranks; {shards} are enough."
    )
    assert sent is None or abs(sent - least) < 1, f"{what} sends {sent:,.0f} bytes; expected {least:,.0f}."
