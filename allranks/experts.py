"""Which expert gets which token, what is dropped, and what do the all-to-alls carry?

The model: every rank routes its own tokens, each to k different experts, of which some are more popular. An
expert takes at most a capacity of tokens from each rank: C = ⌈k · tokens / experts · factor⌉ (GShard,
Lepikhin et al. 2021, section 2.2; with k = 1 Switch Transformer, Fedus et al. 2022, section 2.2). First
choices go before second ones, earlier tokens before later ones; what finds no room is dropped. The experts
are spread over the ranks; an all-to-all carries the tokens there, in buffers of a fixed size, another back.
"""

import math
from collections import namedtuple

from .collectives import all_to_all_bytes
from .inputs import multiple, quantity, whole

Dispatch = namedtuple("Dispatch", "kept wanted taken")
"""What became of the tokens of a rank: `kept`, for each token whether each of its choices found room; how
many tokens `wanted` each expert, and how many it has `taken`."""


def popularity(experts, skew):
    """How often tokens prefer each expert, as whole numbers: 2^20 / (i + 1)^skew for expert i."""
    whole("experts", experts)
    quantity("skew", skew)
    return [int(2**20 / (i + 1) ** skew + 0.5) + 1 for i in range(experts)]


def draws(count, seed=1):
    """Whole numbers from 0 to 2^32 − 1: x ← 1664525 x + 1013904223 modulo 2^32.

    The generator of Numerical Recipes, section 7.1: the same numbers everywhere.
    """
    x, numbers = whole("seed", seed, 0) % 2**32, []
    for _ in range(whole("count", count, 0)):
        x = (1664525 * x + 1013904223) % 2**32
        numbers.append(x)
    return numbers


def route(tokens, experts, top_k, skew, seed=1):
    """The `top_k` different experts of each token, in the order of its preference.

    A stand-in for a learned router: drawn in proportion to `popularity`, without replacement.
    """
    whole("tokens", tokens)
    whole("top_k", top_k, 1, whole("experts", experts))
    numbers, weights, routes = draws(tokens * top_k, seed), popularity(experts, skew), []
    for token in range(tokens):
        left, chosen = list(weights), []
        for number in numbers[token * top_k : (token + 1) * top_k]:
            at = number * sum(left) >> 32
            expert = 0
            while at >= left[expert]:
                at, expert = at - left[expert], expert + 1
            chosen.append(expert)
            left[expert] = 0
        routes.append(tuple(chosen))
    return routes


def route_ranks(ranks, tokens, experts, top_k, skew, seed=1):
    """`route` for each of `ranks` ranks with `tokens` tokens, each with numbers of its own."""
    whole("seed", seed, 0)
    seeds = [(seed * 4096 + rank) * 2654435761 % 2**32 for rank in range(whole("ranks", ranks, 1, 4096))]
    return [route(tokens, experts, top_k, skew, own) for own in seeds]


def expert_capacity(tokens, experts, top_k, factor):
    """Tokens that an expert takes from a rank with `tokens`: ⌈k · tokens · factor / experts⌉."""
    whole("tokens", tokens)
    whole("top_k", top_k, 1, whole("experts", experts))
    quantity("factor", factor, positive=True)
    return math.ceil(top_k * tokens * factor / experts)


def dispatch(routes, experts, capacity):
    """`Dispatch` of the tokens with these routes: all first choices, then all second ones, and so on."""
    whole("experts", experts)
    whole("capacity", capacity, 0)
    wanted, taken = [0] * experts, [0] * experts
    kept = [[False] * len(chosen) for chosen in routes]
    for choice in range(max([len(chosen) for chosen in routes] or [0])):
        for token, chosen in enumerate(routes):
            expert = chosen[choice]
            wanted[expert] += 1
            if taken[expert] < capacity:
                taken[expert] += 1
                kept[token][choice] = True
    return Dispatch(kept, wanted, taken)


def dropped(dispatched):
    """How many choices of a `Dispatch` found no room."""
    return sum(dispatched.wanted) - sum(dispatched.taken)


def lost_tokens(dispatched):
    """How many tokens of a `Dispatch` reach no expert: only the residual connection carries them on."""
    return sum(not any(choices) for choices in dispatched.kept)


def empty_slots(dispatches, capacity):
    """The part of all buffers that carries no token: of `capacity` slots an expert on every rank."""
    slots = sum(len(each.taken) for each in dispatches) * whole("capacity", capacity)
    return 1 - sum(sum(each.taken) for each in dispatches) / slots


def rank_load(dispatches, ranks):
    """Tokens that each rank's experts work on, from the `Dispatch` of every rank; experts in equal parts."""
    experts = multiple("experts", len(dispatches[0].taken), "ranks", whole("ranks", ranks))
    part = experts // ranks
    return [
        sum(sum(each.taken[rank * part : (rank + 1) * part]) for each in dispatches) for rank in range(ranks)
    ]


def imbalance(loads):
    """The largest load over the mean one; 1.0 if there is no load."""
    return max(loads) * len(loads) / sum(loads) if sum(loads) else 1.0


def buffer_bytes(experts, capacity, hidden, element=2):
    """Bytes of what a rank hands to an all-to-all: a slot for each of `capacity` tokens of each expert."""
    whole("experts", experts)
    whole("capacity", capacity, 0)
    whole("hidden", hidden)
    return experts * capacity * hidden * quantity("element", element, positive=True)


def dispatch_bytes(experts, capacity, hidden, ranks, element=2):
    """Bytes each rank sends to the others in one all-to-all of a layer: (p−1)/p of its buffer, full or not.

    A layer has two in its forward pass, there and back, and two in its backward pass.
    """
    multiple("experts", experts, "ranks", whole("ranks", ranks))
    return all_to_all_bytes(buffer_bytes(experts, capacity, hidden, element), ranks)


def crossing_tokens(dispatches, ranks):
    """Tokens that each rank sends to another rank, if it sent only those: without empty slots."""
    experts = multiple("experts", len(dispatches[0].taken), "ranks", whole("ranks", ranks))
    part = experts // ranks
    return [
        sum(each.taken) - sum(each.taken[rank * part : (rank + 1) * part])
        for rank, each in enumerate(dispatches)
    ]
