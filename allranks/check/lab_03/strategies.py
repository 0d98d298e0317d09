"""A sharding strategy that fits a memory budget and sends the least."""

import contextlib

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy

from allranks import memory
from allranks.check import exercise
from allranks.check.lab_03.common import cut_in_units, device_of_rank, new_gpt, part_of_rank, quoted
from allranks.check.labs import digits, hidden, is_written, on_ranks
from allranks.model import loss_of
from allranks.trace import trace

LARGE = [48_000_000, 50_000_000, 64_000_000] * 8, 6_000_000  # parameters of layers, and of the rest
WIDE = [90_000_000, 30_000_000, 31_000_000], 161_000_000  # keeping weights takes less than dropping them
TRAINED = 4  # ranks that train
PINNED = "an offload_policy with pin_memory"
VOCABULARY = LARGE[0], 162_000_000


def _needs(layers, rest, shards, kept, offloaded):
    """The bytes that a rank needs, by the table of the task."""
    Ψ, largest = sum(layers) + rest, max(layers)
    whole = 4 * Ψ + 4 * largest if kept else 4 * rest + memory.unsharded_bytes(largest, "fp32")
    return whole + (0 if offloaded else memory.zero_bytes(Ψ, shards, 3, "fp32"))


def _sends(layers, rest, shards, kept, world_size):
    """The bytes that a rank sends in a step: an all-reduce, and another gather if weights are dropped."""
    Ψ = sum(layers) + rest
    again = 0 if kept else 4 * sum(layers) * (shards - 1) / shards
    return 8 * Ψ * (world_size - 1) / world_size + again


def _choices(world_size):
    """(shards, kept, offloaded), the best first."""
    divisors = [s for s in range(2, world_size + 1) if world_size % s == 0]
    return [(s, kept, away) for away in (False, True) for kept in (True, False) for s in divisors]


def _choice(layers, rest, budget, world_size):
    return next(c for c in _choices(world_size) if _needs(layers, rest, *c) <= budget)


def _strategy_cases():
    """Yield (world size, parameters of layers and of the rest, budget), about each limit.

    With all that a choice needs, it is the best; with one byte less, the next has to be taken.
    """
    sizes_of = ((TRAINED, _small()), (6, LARGE), (6, WIDE), (6, VOCABULARY), *hidden(_drawn_sizes))
    for world_size, sizes in sizes_of:
        needs = {int(_needs(*sizes, *choice)) for choice in _choices(world_size)}
        for need in sorted(needs, reverse=True):
            for budget in (need, need - 1):
                if budget >= min(needs):
                    yield world_size, *sizes, budget


def _small():
    """The sizes of a model that can be trained here."""
    model = new_gpt(5, layers=2)
    layers = [sum(p.numel() for p in layer.parameters()) for layer in model.layers]
    return layers, sum(p.numel() for p in model.parameters()) - sum(layers)


def _trained_cases(world_size):
    """A case in which weights are kept, one in which they are dropped, and one with states on the host."""
    sizes, kinds = _small(), {}
    for choice in _choices(world_size):
        budget = int(_needs(*sizes, *choice))
        kinds.setdefault(_choice(*sizes, budget, world_size)[1:], (*sizes, budget))
    return list(kinds.values())


def _drawn_sizes(draw):
    """Eight ranks, whose shards are of sizes that neither four nor six ranks have, and other layers."""
    layers = [draw.randrange(20, 90) * 10**6 for _ in range(draw.randrange(3, 9))]
    return [(8, (layers, draw.randrange(5, 300) * 10**6))]


@exercise
def strategy(answer):
    """`answer(layers, rest, budget, device)`: the options of `fully_shard` that fit and send least."""
    is_written(answer)
    grouped = {}
    for world_size, *case in _strategy_cases():
        grouped.setdefault(world_size, []).append(case)
    for world_size, cases in grouped.items():
        for rank, choices in enumerate(on_ranks(_chosen, answer, cases, world_size=world_size)):
            for case, choice in zip(cases, choices, strict=False):
                assert choice != PINNED, (
                    f"Rank {rank} returned {PINNED}=True, but there is no GPU to copy to: pin memory only "
                    'where device.type is "cuda".'
                )
                assert not isinstance(choice, str), (
                    f"Rank {rank} returned {choice}; expected a dict of options of fully_shard, with a mesh."
                )
                _is_the_strategy(world_size, *case, *choice)
    cases = _trained_cases(TRAINED)
    for sent in on_ranks(_sent, answer, cases, digits()[:24], world_size=TRAINED):
        for (*sizes, budget), nbytes in zip(cases, sent, strict=True):
            shards, kept, _ = _choice(*sizes, budget, TRAINED)
            least = _sends(*sizes, shards, kept, TRAINED)
            assert abs(nbytes - least) < 1, (
                f"On {TRAINED} ranks, a step with these options sends {nbytes:,.0f} bytes; expected "
                f"{least:,.0f}."
            )
    return (
        "Every choice fits and sends least: keep weights while there is room, use as few shards as fit, "
        "and offload only when nothing else fits."
    )


def _chosen(answer, cases):
    """On this rank: what was chosen in each case, or a text about what is no choice."""
    choices = []
    for layers, rest, budget in cases:
        options = answer(list(layers), rest, budget, device_of_rank())
        mesh = options.get("mesh") if isinstance(options, dict) else None
        policy = options.get("offload_policy") if mesh else None
        pinned = isinstance(policy, CPUOffloadPolicy) and policy.pin_memory
        if not isinstance(mesh, DeviceMesh) or (pinned and device_of_rank().type == "cpu"):
            return [*choices, PINNED if pinned else quoted(options)]
        shape = (*((1,) if mesh.ndim == 1 else ()), *mesh.shape)
        in_order = mesh.mesh.flatten().tolist() == list(range(dist.get_world_size()))
        choices.append((shape, in_order, options.get("reshard_after_forward"), _offload(policy)))
        _end(mesh)
    return choices


def _end(mesh):
    """End the groups of a mesh that nobody uses: under gloo each has a thread that wakes often.

    Not before all ranks have the mesh: a slower one may still be connecting, and would find its peer gone.
    """
    dist.barrier()
    with contextlib.suppress(RuntimeError, ValueError):  # groups that this rank is not in, or that have ended
        for group in mesh.get_all_groups():
            if group is not dist.group.WORLD:
                dist.destroy_process_group(group)


def _sent(answer, cases, tokens):
    """On this rank: the bytes that a step sends with the options chosen in each case."""
    sent = []
    for layers, rest, budget in cases:
        options = answer(list(layers), rest, budget, device_of_rank())
        model = cut_in_units(new_gpt(5, layers=2).to(device_of_rank()), **options)
        with trace() as counted:
            loss_of(model, part_of_rank(tokens)).backward()
        sent.append(counted.sent)
    return sent


def _offload(policy):
    """Whether `policy` offloads; a text if it is not a policy of fully_shard."""
    if isinstance(policy, CPUOffloadPolicy):
        return True
    return False if policy is None or type(policy).__name__ == "OffloadPolicy" else quoted(policy)


def _is_the_strategy(world_size, layers, rest, budget, shape, in_order, reshard, offloaded):
    Ψ = sum(layers) + rest
    shards, kept, away = right = _choice(layers, rest, budget, world_size)
    case = f"On {world_size} ranks, with {budget / Ψ:.1f} bytes a parameter,"
    mesh = " × ".join(map(str, shape))
    assert len(shape) == 2 and shape[0] * shape[1] == world_size and in_order, (
        f"{case} the mesh is {mesh}; expected replicas × shards of all {world_size} ranks, in order."
    )
    assert reshard in (None, False), (
        f"{case} reshard_after_forward is {reshard!r}; expected None or False. None drops the weights of "
        "all units but the last, which backward needs immediately; False keeps them."
    )
    assert not isinstance(offloaded, str), (
        f"{case} offload_policy is {offloaded}; expected an instance of CPUOffloadPolicy, or none."
    )
    chosen = shape[1], reshard is False, offloaded
    what = f"{case} {mesh} {'with weights kept' if chosen[1] else 'with weights dropped'}"
    what += " and states on the host" * offloaded
    fits = shape[1] == 1 or _needs(layers, rest, *chosen) <= budget
    turned = fits and shape[::-1] == (world_size // shards, shards) != shape and chosen[1:] == right[1:]
    assert not turned, f"{what} has the axes swapped: the second axis shards."
    assert shape[1] > 1, f"{case} the mesh is {mesh}: one shard is DDP; expected {shards} shards."
    assert not offloaded or away, (
        f"{what} fits, but so does a choice without offload. Offload only if nothing else fits: every step "
        "copies weights and gradients over the link, and the CPU takes the optimizer's step."
    )
    needs = _needs(layers, rest, *chosen)
    hint = " No choice without offload fits. Offload the states to the host." * (away and not offloaded)
    assert needs <= budget, f"{what} does not fit: it needs {needs:,.0f} bytes of {budget:,}.{hint}"
    cost, least = (_sends(layers, rest, *c, world_size) for c in (chosen[:2], (shards, kept)))
    assert cost <= least, (
        f"{what} fits, but sends {cost / 4 / Ψ:.2f} Ψ elements a step; {least / 4 / Ψ:.2f} Ψ are enough."
    )
    assert chosen == right, (
        f"{what} fits, but gathers each weight among {chosen[0]} ranks; {shards} are enough."
    )
