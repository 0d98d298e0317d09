"""Routing is the same every time and follows the popularity; no expert takes more than its capacity."""

import itertools
import math
import random

import pytest

from allranks import collectives, experts

SETTINGS = list(itertools.product((1, 7, 32), (1, 2, 8), (1, 2), (0, 1.5), (0.5, 1, 1.25)))
SETTINGS = [each for each in SETTINGS if each[2] <= each[1]]
ALL = pytest.mark.parametrize("tokens, count, k, skew, factor", SETTINGS)


def route_and_dispatch(tokens, count, k, skew, factor, seed=1):
    """(routes, capacity, dispatch)"""
    routes = experts.route(tokens, count, k, skew, seed)
    capacity = experts.expert_capacity(tokens, count, k, factor)
    return routes, capacity, experts.dispatch(routes, count, capacity)


@ALL
def test_every_token_has_k_different_experts(tokens, count, k, skew, factor):
    routes = experts.route(tokens, count, k, skew)
    assert len(routes) == tokens
    assert all(len(set(chosen)) == k and set(chosen) <= set(range(count)) for chosen in routes)
    assert routes == experts.route(tokens, count, k, skew)


@ALL
def test_dispatch_is_that_of_queues_filled_one_by_one(tokens, count, k, skew, factor):
    routes, capacity, done = route_and_dispatch(tokens, count, k, skew, factor)
    queues = [[] for _ in range(count)]
    for choice, token in itertools.product(range(k), range(tokens)):
        queues[routes[token][choice]].append((token, choice))
    assert done.wanted == [len(queue) for queue in queues]
    assert done.taken == [min(len(queue), capacity) for queue in queues]
    for queue in queues:
        for place, (token, choice) in enumerate(queue):
            assert done.kept[token][choice] == (place < capacity)
    assert experts.dropped(done) == tokens * k - sum(map(sum, done.kept))
    assert experts.lost_tokens(done) == sum(set(each) == {False} for each in done.kept)


@pytest.mark.parametrize("skew", [0, 0.5, 1, 2])
def test_first_choices_follow_the_popularity(skew):
    routes = experts.route(20_000, 4, 1, skew)
    weights = [1 / (i + 1) ** skew for i in range(4)]
    for expert in range(4):
        share = sum(chosen == (expert,) for chosen in routes) / len(routes)
        assert share == pytest.approx(weights[expert] / sum(weights), abs=0.01)


def test_second_choices_are_drawn_from_the_others():
    routes = experts.route(20_000, 3, 2, 1)
    rng = random.Random(0)
    weights, pairs = [6, 3, 2], []
    for _ in range(20_000):
        first = rng.choices(range(3), weights)[0]
        rest = [expert for expert in range(3) if expert != first]
        pairs.append((first, rng.choices(rest, [weights[expert] for expert in rest])[0]))
    for pair in itertools.permutations(range(3), 2):
        assert routes.count(pair) / 20_000 == pytest.approx(pairs.count(pair) / 20_000, abs=0.015)


def test_the_generator_is_the_published_one():
    assert experts.draws(3, 0) == [0x3C6EF35F, 0x47502932, 0xD1CCF6E9]  # Numerical Recipes


@pytest.mark.parametrize(
    "tokens, count, k, factor, capacity",
    [(64, 8, 1, 1, 8), (64, 8, 2, 1, 16), (64, 8, 1, 1.25, 10), (6, 4, 1, 1, 2), (6, 3, 1, 1.5, 3)],
)
def test_capacity_is_an_equal_share_times_the_factor(tokens, count, k, factor, capacity):
    assert experts.expert_capacity(tokens, count, k, factor) == capacity
    assert capacity == math.ceil(k * tokens / count * factor)


def test_with_room_for_all_nothing_is_dropped():
    done = route_and_dispatch(32, 8, 2, 2, 8 / 2)[2]
    assert experts.dropped(done) == experts.lost_tokens(done) == 0 and sum(done.taken) == 64


@pytest.mark.parametrize("count, ranks", [(8, 1), (8, 2), (8, 8), (6, 3)])
def test_loads_and_crossings_are_those_of_the_tokens(count, ranks):
    all_routes = [experts.route(16, count, 2, 1, seed) for seed in range(ranks)]
    dispatches = [experts.dispatch(routes, count, 5) for routes in all_routes]
    loads, crossing = [0] * ranks, [0] * ranks
    for rank, (routes, done) in enumerate(zip(all_routes, dispatches)):
        for chosen, kept in zip(routes, done.kept):
            for expert in itertools.compress(chosen, kept):
                owner = expert // (count // ranks)
                loads[owner] += 1
                crossing[rank] += owner != rank
    assert experts.rank_load(dispatches, ranks) == loads
    assert experts.crossing_tokens(dispatches, ranks) == crossing
    assert experts.imbalance(loads) == pytest.approx(max(loads) / (sum(loads) / ranks))


def test_ranks_route_with_numbers_of_their_own():
    routes = experts.route_ranks(8, 5000, 4, 1, 0)
    firsts = [[chosen[0] for chosen in each] for each in routes]
    for one, other in itertools.combinations(firsts, 2):
        assert sum(a == b for a, b in zip(one, other)) / 5000 == pytest.approx(0.25, abs=0.03)
    assert len({first[0] for first in firsts}) > 1 and routes == experts.route_ranks(8, 5000, 4, 1, 0)
    assert routes != experts.route_ranks(8, 5000, 4, 1, 0, seed=2)


def test_empty_slots_are_those_without_a_token():
    dispatches = [experts.dispatch([(0,), (0,), (1,)], 4, 2), experts.dispatch([(3,)] * 5, 4, 2)]
    assert experts.empty_slots(dispatches, 2) == 1 - (3 + 2) / 16


def test_an_all_to_all_carries_the_buffer_but_for_the_own_part():
    buffer = 8 * 10 * 4096 * 2
    assert experts.buffer_bytes(8, 10, 4096) == buffer
    assert experts.dispatch_bytes(8, 10, 4096, 4) == collectives.all_to_all_bytes(buffer, 4) == buffer * 3 / 4
    assert experts.imbalance([0, 0]) == 1.0


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: experts.route(4, 2, 3, 0), "top_k must be a whole number from 1 to 2, not 3"),
        (lambda: experts.route(4, 2, 1, -1), "skew must be a number of at least 0, not -1"),
        (lambda: experts.expert_capacity(4, 2, 1, 0), "factor must be a number above 0, not 0"),
        (lambda: experts.dispatch_bytes(8, 1, 64, 3), "experts must be a multiple of ranks = 3, not 8"),
        (lambda: experts.route(4, 2, 1, 0, -1), "seed must be a whole number of at least 0"),
    ],
)
def test_a_slip_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
