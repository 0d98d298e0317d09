"""The cost of a collective is the published one."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks import collectives, hardware

SIZES = st.integers(1, 10**9)
WORLDS = st.integers(1, 300)
α, β = 1e-5, 1e-9
EVERY = [(name, algorithm) for name, algorithms in collectives.ALGORITHMS.items() for algorithm in algorithms]


@given(st.sampled_from(EVERY), SIZES, WORLDS)
def test_no_algorithm_beats_the_lower_bound(pair, nbytes, world_size):
    collective, algorithm = pair
    if algorithm in collectives.algorithms(collective, world_size):
        cost = collectives.cost(collective, algorithm, nbytes, world_size)
        bound = collectives.lower_bound(collective, nbytes, world_size)
        assert cost.rounds >= bound.rounds
        assert cost.nbytes >= bound.nbytes * (1 - 1e-12)


@given(st.sampled_from(EVERY), st.integers(0, 10**6))
def test_a_rank_that_is_alone_sends_nothing(pair, nbytes):
    assert collectives.cost(*pair, nbytes, 1) == (0, 0)
    assert collectives.sent(*pair, nbytes, 1) == [0]
    assert collectives.seconds(*pair, nbytes, 1, α, β) == 0


@given(st.sampled_from(EVERY), SIZES, SIZES, WORLDS)
def test_a_larger_message_never_takes_less_time(pair, one, other, world_size):
    if pair[1] in collectives.algorithms(pair[0], world_size):
        small, large = sorted((one, other))
        times = [collectives.seconds(*pair, nbytes, world_size, α, β) for nbytes in (small, large)]
        assert times[0] <= times[1] * (1 + 1e-9)


@given(st.sampled_from(EVERY), st.integers(1, 10**6), WORLDS)
def test_all_that_is_sent_is_what_has_to_arrive(pair, nbytes, world_size):
    """Where no byte takes a detour, all ranks together send (p−1)n, and twice that in an all-reduce."""
    collective, algorithm = pair
    detours = {
        ("all_to_all", "bruck"),
        ("all_reduce", "recursive_doubling"),
        ("broadcast", "scatter_all_gather"),
    }
    detours |= {(c, a) for c, a in EVERY if c in ("scatter", "gather") and a == "binomial_tree"}
    detours |= {("reduce", "halving_gather"), ("reduce", "ring_gather"), ("send", "direct")}
    if pair in detours or algorithm not in collectives.algorithms(collective, world_size):
        return
    traffic = sum(collectives.sent(collective, algorithm, nbytes, world_size))
    not_the_roots = nbytes - collectives.split(nbytes, world_size)[0]
    once = {"scatter": not_the_roots, "gather": not_the_roots}
    needed = once.get(collective, (world_size - 1) * nbytes) * (2 if collective == "all_reduce" else 1)
    assert traffic == needed


@given(SIZES, WORLDS)
def test_a_reduce_scatter_and_an_all_gather_are_an_all_reduce(nbytes, world_size):
    both = collectives.ring_reduce_scatter_bytes(nbytes, world_size) + collectives.ring_all_gather_bytes(
        nbytes, world_size
    )
    assert collectives.ring_all_reduce_bytes(nbytes, world_size) == both
    assert collectives.ring_all_reduce(nbytes, world_size) == (2 * (world_size - 1), both)
    bound = collectives.lower_bound("all_reduce", nbytes, world_size)
    assert both == pytest.approx(bound.nbytes) == pytest.approx(2 * (world_size - 1) / world_size * nbytes)


@given(st.integers(0, 10**6), WORLDS, st.sampled_from([1, 2, 4]))
def test_a_ring_with_uneven_chunks_sends_as_much_in_all(elements, world_size, element_size):
    nbytes = elements * element_size
    assert sum(collectives.split(nbytes, world_size, element_size)) == nbytes
    sent = collectives.ring_all_reduce_sent(nbytes, world_size, element_size)
    assert sum(sent) == 2 * (world_size - 1) * nbytes
    assert all(one % element_size == 0 for one in sent)
    assert max(sent) <= 2 * (nbytes - elements // world_size * element_size)
    mean = collectives.ring_all_reduce_bytes(nbytes, world_size)
    assert max(sent) - mean <= 2 * element_size and mean - min(sent) <= 2 * element_size


@given(SIZES, st.integers(1, 32), st.integers(1, 32))
def test_the_levels_of_a_hierarchy_send_what_a_flat_ring_sends(nbytes, g, nodes):
    levels = collectives.hierarchical_all_reduce(nbytes, g, nodes)
    flat = collectives.ring_all_reduce(nbytes, g * nodes)
    assert levels.intra.nbytes + levels.inter.nbytes == pytest.approx(flat.nbytes)
    assert levels.intra.rounds + levels.inter.rounds <= flat.rounds
    if nodes == 1:
        assert levels == (flat, (0, 0))
    if g == 1:
        assert levels == ((0, 0), flat)
    scatter, gather = (
        collectives.hierarchical_reduce_scatter(nbytes, g, nodes),
        collectives.hierarchical_all_gather(nbytes, g, nodes),
    )
    assert levels.inter.nbytes == pytest.approx(scatter.inter.nbytes + gather.inter.nbytes)
    assert levels.seconds(α, β, α, β) == pytest.approx(
        scatter.seconds(α, β, α, β) + gather.seconds(α, β, α, β)
    )
    if nodes > 1:  # the same bytes leave a node, up to a factor of 2, but over g links
        leave = collectives.flat_ring_node_bytes(nbytes, g, nodes)
        assert levels.inter.nbytes * g <= leave <= 2 * levels.inter.nbytes * g


@pytest.mark.parametrize("g, nodes", [(1, 4), (2, 2), (4, 3), (8, 2), (4, 1)])
def test_flat_rings_send_what_rings_through_a_card_each_send(g, nodes):
    p, n = g * nodes, 840.0
    for rings in range(1, g + 1):
        intra, inter = [0.0] * p, [0.0] * p
        for exit in range(rings):
            order = [node * g + (exit + 1 + place) % g for node in range(nodes) for place in range(g)]
            for rank, following in zip(order, order[1:] + order[:1], strict=True):
                kind = intra if rank // g == following // g else inter
                kind[rank] += collectives.ring_all_reduce_bytes(n / rings, p)
        made = collectives.flat_rings(n, g, nodes, rings)
        assert made.inter.nbytes == pytest.approx(max(inter))
        assert made.intra.nbytes == pytest.approx(max(intra) if p > 1 else 0)
        assert made.intra.rounds + made.inter.rounds == 2 * (p - 1)
        if rings == 1 and nodes > 1:
            assert made.inter.nbytes == pytest.approx(collectives.flat_ring_node_bytes(n, g, nodes))


def test_the_two_kinds_of_links_at_once_take_all_latencies_and_the_longer_transfer():
    made = collectives.Levels(collectives.Cost(14, 300.0), collectives.Cost(30, 200.0))
    assert made.seconds_at_once(1, 0.1, 10, 1) == 14 + 300 + 200
    assert made.seconds_at_once(1, 1, 10, 1) == 14 + 300 + 300 < made.seconds(1, 1, 10, 1)


@given(st.sampled_from(sorted(collectives.ALGORITHMS)), SIZES, WORLDS)
def test_the_best_is_none_of_the_slower_ones(collective, nbytes, world_size):
    name, seconds = collectives.best(collective, nbytes, world_size, α, β)
    for other in collectives.algorithms(collective, world_size):
        assert seconds <= collectives.seconds(collective, other, nbytes, world_size, α, β)
    assert seconds == collectives.seconds(collective, name, nbytes, world_size, α, β)


@given(st.sampled_from(EVERY), st.integers(1, 10**7), st.integers(2, 64))
def test_no_other_number_of_pieces_is_faster(pair, nbytes, world_size):
    if pair[1] in collectives.PIPELINED:
        k = collectives.best_pieces(*pair, nbytes, world_size, α, β)
        time = collectives.seconds(*pair, nbytes, world_size, α, β)
        for other in {1, max(k - 1, 1), k + 1, 2 * k, k // 2 + 1}:
            assert time <= collectives.cost(*pair, nbytes, world_size, other).seconds(α, β) * (1 + 1e-12)


@given(st.integers(2, 10))
def test_a_ring_beats_recursive_doubling_from_the_crossover_on(places):
    p = 2**places
    n = collectives.crossover("all_reduce", "ring", "recursive_doubling", p, α, β)
    if p == 2:
        assert n is None or n == 2 * α / β
        return
    assert n == pytest.approx(α / β * (2 * (p - 1) - places) / (places - 2 * (p - 1) / p))
    ring, doubled = (
        lambda nbytes, name=name: collectives.seconds("all_reduce", name, nbytes, p, α, β)
        for name in ("ring", "recursive_doubling")
    )
    assert ring(n) == pytest.approx(doubled(n))
    assert ring(0.9 * n) > doubled(0.9 * n) and ring(1.1 * n) < doubled(1.1 * n)


def test_where_p_is_no_power_of_two_a_ring_is_best_for_large_messages_and_doubling_for_small_ones():
    assert collectives.best("all_reduce", 100, 6, α, β)[0] == "recursive_doubling"
    assert collectives.best("all_reduce", 10**9, 6, α, β)[0] == "ring"
    assert collectives.best("all_reduce", 10**9, 8, α, β)[0] == "halving_doubling"
    assert collectives.best("broadcast", 100, 8, α, β)[0] == "binomial_tree"
    assert collectives.best("broadcast", 10**9, 8, α, β)[0] == "pipelined_ring"
    assert collectives.best("all_to_all", 100, 64, α, β)[0] == "bruck"
    assert collectives.best("all_to_all", 10**9, 64, α, β)[0] == "pairwise"


@given(st.floats(1, 1e11), WORLDS)
def test_the_protocol_is_the_fastest_and_short_messages_take_the_one_with_the_least_latency(nbytes, p):
    links = hardware.protocols("infiniband-ndr")
    name, took = collectives.by_protocol("all_reduce", "ring", nbytes, p, links)
    every = {
        each.name: collectives.seconds("all_reduce", "ring", nbytes, p, each.α, each.β) for each in links
    }
    assert took == min(every.values()) == every[name]
    for size, protocol in ((1.0, "LL"), (1e12, "Simple")):
        if p > 1:
            assert collectives.by_protocol("all_reduce", "ring", size, p, links)[0] == protocol


@pytest.mark.parametrize("p", [4, 8, 64, 1024])
def test_protocols_move_the_crossover_to_shorter_messages(p):
    links, one = hardware.protocols("infiniband-ndr"), hardware.link("infiniband-ndr")
    pair = ("ring", "recursive_doubling")
    at = collectives.crossover_by_protocol("all_reduce", *pair, p, links)
    assert at < collectives.crossover("all_reduce", *pair, p, one.α, one.β)
    before, after = (
        [collectives.by_protocol("all_reduce", name, size, p, links)[1] for name in pair]
        for size in (0.99 * at, 1.01 * at)
    )
    assert before[0] > before[1] and after[0] < after[1]
    alone = collectives.crossover_by_protocol("all_reduce", *pair, p, [one])
    assert alone == pytest.approx(collectives.crossover("all_reduce", *pair, p, one.α, one.β))
    assert collectives.crossover_by_protocol("all_reduce", "ring", "halving_doubling", 8, links) is None


def test_one_algorithm_that_is_never_slower_has_no_crossover():
    assert collectives.crossover("all_reduce", "ring", "halving_doubling", 8, α, β) is None
    with pytest.raises(ValueError, match="double_tree has no closed form"):
        collectives.crossover("all_reduce", "ring", "double_tree", 8, α, β)


def test_a_double_tree_has_a_rings_bytes_and_a_trees_latency():
    for nbytes, faster in ((1e5, 10), (1e9, 0.9)):  # in units of the double tree's time
        ring, tree, double = (
            collectives.seconds("all_reduce", name, nbytes, 1024, α, β)
            for name in ("ring", "binary_tree", "double_tree")
        )
        assert ring > faster * double
    assert tree == pytest.approx(2 * double, rel=0.05)
    assert double == pytest.approx(2 * 1e9 * β, rel=0.15)


@pytest.mark.parametrize(
    "collective, factor",
    [
        ("all_reduce", 1.75),
        ("reduce_scatter", 0.875),
        ("all_gather", 0.875),
        ("all_to_all", 0.875),
        ("gather", 0.875),
        ("scatter", 0.875),
        ("broadcast", 1),
        ("reduce", 1),
        ("send", 1),
        ("in_network_all_reduce", 7 / 9),
    ],
)
def test_the_bus_bandwidth_factors_are_those_of_nccl_tests(collective, factor):
    assert collectives.bus_bandwidth_factor(collective, 8) == factor
    assert collectives.bus_bandwidth(collective, 1e9, 8, 2.0) == factor * 5e8


@given(st.sampled_from(["all_reduce", "reduce_scatter", "all_gather", "all_to_all"]), WORLDS)
def test_the_bus_bandwidth_of_an_optimal_algorithm_without_latency_is_the_links(collective, world_size):
    if world_size > 1:
        name = "pairwise" if collective == "all_to_all" else "ring"
        seconds = collectives.seconds(collective, name, 1e6, world_size, 0.0, β)
        assert collectives.bus_bandwidth(collective, 1e6, world_size, seconds) == pytest.approx(1 / β)


def test_the_factor_of_an_all_reduce_tends_to_two():
    assert [collectives.ring_all_reduce_bytes(1, p) for p in (1, 2, 4, 8)] == [0, 1, 1.5, 1.75]
    assert collectives.ring_all_reduce_bytes(1, 10**6) == pytest.approx(2, rel=1e-5)


@pytest.mark.parametrize(
    "world_size, rounds", [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (8, 3), (9, 4), (1024, 10)]
)
def test_a_tree_broadcast_takes_log2_rounds(world_size, rounds):
    assert collectives.tree_broadcast_rounds(world_size) == rounds


def test_a_message_costs_its_latency_and_its_bytes():
    assert collectives.message_seconds(0, α=5e-6, β=1e-9) == 5e-6
    assert collectives.message_seconds(5000, α=5e-6, β=1e-9) == pytest.approx(1e-5)


@pytest.mark.parametrize(
    "wrong, complaint",
    [
        (lambda: collectives.ring_all_reduce_bytes(-1, 4), "nbytes must be a number of at least 0, not -1"),
        (lambda: collectives.ring_all_reduce_bytes(math.nan, 4), "not nan"),
        (lambda: collectives.rooted_bytes(10, 0), "world_size must be a whole number of at least 1, not 0"),
        (lambda: collectives.cost("all_sum", "ring", 10, 4), "collective must be one of 'all_reduce', "),
        (lambda: collectives.cost("broadcast", "ring", 10, 4), "algorithm must be one of 'binomial_tree', "),
        (lambda: collectives.cost("all_reduce", "ring", 10, 4, pieces=2), "pieces must be 1 with ring"),
        (lambda: collectives.sent("all_reduce", "ring", 10.5, 4), "nbytes must be a whole number"),
        (lambda: collectives.split(10, 3, element_size=4), "nbytes must be a multiple of element_size = 4"),
        (lambda: collectives.hierarchical_all_reduce(10, 0, 2), "ranks_per_node must be"),
        (lambda: collectives.flat_rings(10, 4, 2, 5), "rings must be a whole number from 1 to 4, not 5"),
        (lambda: collectives.message_seconds(10, -1e-6, 1e-9), "α must be a number of at least 0"),
        (lambda: collectives.bus_bandwidth("all_reduce", 10, 4, 0.0), "seconds must be a number above 0"),
        (lambda: collectives.crossover("all_reduce", "ring", "central", 4, 1e-6, 0.0), "β must be"),
    ],
)
def test_what_no_collective_can_have_is_refused(wrong, complaint):
    with pytest.raises(ValueError, match=complaint):
        wrong()
