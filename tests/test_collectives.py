"""The cost of a collective is the published one, and what its algorithm does when it is carried out.

`Network` carries out rounds of messages between pretended ranks, counts them and their bytes, and refuses a
round in which a rank sends or receives twice. Each algorithm is written down here once more, from its
description, and has to leave the right result.
"""

import itertools
import math

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from allranks import collectives, launch
from allranks.trace import trace

SIZES = st.integers(1, 10**9)
WORLDS = st.integers(1, 300)
α, β = 1e-5, 1e-9
EVERY = [(name, algorithm) for name, algorithms in collectives.ALGORITHMS.items() for algorithm in algorithms]


class Network:
    def __init__(self, world_size):
        self.sent = [0] * world_size
        self.rounds = self.path = 0

    def round(self, messages):
        """Carry out (source, destination, data) at once; return the data by destination."""
        sources, destinations, data = zip(*messages)
        assert len(set(sources)) == len(sources) and len(set(destinations)) == len(destinations)
        for source, _, one in messages:
            self.sent[source] += len(one)
        self.rounds += 1
        self.path += max(map(len, data))
        return dict(zip(destinations, data))


def places(nbytes, parts):
    """Which bytes each chunk has."""
    starts = [part * (nbytes // parts) + min(part, nbytes % parts) for part in range(parts + 1)]
    return [range(start, end) for start, end in itertools.pairwise(starts)]


def messages_of(nbytes, world_size):
    return [[10**rank * (1 + place) for place in range(nbytes)] for rank in range(world_size)]


def total(nbytes, world_size):
    return [sum(10**rank for rank in range(world_size)) * (1 + place) for place in range(nbytes)]


def pick(data, where):
    return [(place, data[place]) for place in where]


def put(data, came, add=False):
    for place, value in came:
        data[place] = value + (data[place] if add else 0)


def swap(network, held, outgoing, add):
    """One round: outgoing[source] = (destination, places of the bytes)."""
    came = network.round(
        [
            (source, destination, pick(held[source], where))
            for source, (destination, where) in outgoing.items()
        ]
    )
    for destination, data in came.items():
        put(held[destination], data, add)


def ring_scatter(network, held, chunks):
    p = len(held)
    for step in range(p - 1):
        swap(network, held, {r: ((r + 1) % p, chunks[(r - 1 - step) % p]) for r in range(p)}, add=True)


def ring_gather(network, held, chunks):
    p = len(held)
    for step in range(p - 1):
        swap(network, held, {r: ((r + 1) % p, chunks[(r - step) % p]) for r in range(p)}, add=False)


def fold(exchange):
    """Run `exchange(network, held of 2^k ranks, their real numbers)` with the other ranks standing aside."""

    def run(network, held):
        p = len(held)
        aside = p - (1 << (p.bit_length() - 1))
        whole = range(len(held[0]))
        if aside:
            swap(network, held, {2 * i: (2 * i + 1, whole) for i in range(aside)}, add=True)
        exchange(network, held, [2 * i + 1 for i in range(aside)] + list(range(2 * aside, p)))
        if aside:
            swap(network, held, {2 * i + 1: (2 * i, whole) for i in range(aside)}, add=False)

    return run


def doubling(network, held, ranks):
    for k in range(len(ranks).bit_length() - 1):
        whole = range(len(held[0]))
        swap(network, held, {ranks[i]: (ranks[i ^ 1 << k], whole) for i in range(len(ranks))}, add=True)


def joined(chunks, first, count):
    return [place for chunk in chunks[first : first + count] for place in chunk]


def halve(network, held, ranks, chunks):
    for k in reversed(range(len(ranks).bit_length() - 1)):
        outgoing = {}
        for i, rank in enumerate(ranks):
            partner = i ^ 1 << k
            outgoing[rank] = ranks[partner], joined(chunks, partner >> k << k, 1 << k)
        swap(network, held, outgoing, add=True)


def double(network, held, ranks, chunks):
    for k in range(len(ranks).bit_length() - 1):
        outgoing = {r: (ranks[i ^ 1 << k], joined(chunks, i >> k << k, 1 << k)) for i, r in enumerate(ranks)}
        swap(network, held, outgoing, add=False)


def halving_doubling(network, held, ranks):
    chunks = places(len(held[0]), len(ranks))
    halve(network, held, ranks, chunks)
    double(network, held, ranks, chunks)


def binomial_down(network, held, where):
    """where(rank): the bytes that go to a rank, from the one that knows."""
    know = 1
    while know < len(held):
        news = range(know, min(2 * know, len(held)))
        swap(network, held, {rank - know: (rank, where(rank)) for rank in news}, add=False)
        know *= 2


def binomial_up(network, held, where, add):
    know = 1 << max(len(held) - 1, 0).bit_length()
    while know > 1:
        know //= 2
        olds = range(know, min(2 * know, len(held)))
        if olds:
            swap(network, held, {rank: (rank - know, where(rank)) for rank in olds}, add)


def subtree(chunks):
    def where(rank):
        return [place for chunk in chunks[rank :: 1 << rank.bit_length()] for place in chunk]

    return where


def relay(network, edges, pieces, upward=False):
    """Broadcast (or reduce) `pieces` numbered pieces of a byte over edges (stream, parent, child), greedily.

    Links that share an end are used in alternate rounds.
    """
    if not edges:
        return
    colour = coloured(edges)
    children, roots = {}, set()
    for stream, parent, child in edges:
        children.setdefault((stream, parent), []).append(child)
        roots.add((stream, parent))
    roots -= {(stream, child) for stream, _, child in edges}
    if upward:
        have = {(s, r): 0 for s, a, b in edges for r in (a, b)}  # complete pieces, in order
        done = dict.fromkeys(edges, 0)
        limit = lambda s, r: min([done[s, r, c] for c in children.get((s, r), [])], default=pieces)  # noqa: E731
    else:
        have = {(s, r): 0 for s, a, b in edges for r in (a, b)} | dict.fromkeys(roots, pieces)
        done = dict.fromkeys(edges, 0)
    turn = 0
    while min(done.values()) < pieces:
        ready = []
        for edge in edges:
            stream, parent, child = edge
            known = limit(stream, child) if upward else have[stream, parent]
            if colour[edge] == turn % 2 and done[edge] < known:
                ready.append(edge)
        moves = [(e[2], e[1], "x") if upward else (e[1], e[2], "x") for e in ready]
        if moves:
            network.round(moves)
        else:  # a round in which nothing can move is a round all the same
            network.rounds += 1
        for edge in ready:
            done[edge] += 1
            if not upward:
                have[edge[0], edge[2]] += 1
        turn += 1


def coloured(edges):
    """0 or 1 for each edge, so that no two of one colour share a parent or a child."""
    colour = {}
    for first in edges:
        todo = [(first, 0)] if first not in colour else []
        while todo:
            edge, mine = todo.pop()
            if edge in colour:
                assert colour[edge] == mine
                continue
            colour[edge] = mine
            todo += [(e, 1 - mine) for e in edges if e != edge and (e[1] == edge[1] or e[2] == edge[2])]
    return colour


def run_all_reduce(algorithm, network, held):
    p, n = len(held), len(held[0])
    whole = range(n)
    chunks = places(n, p)
    if algorithm == "ring":
        ring_scatter(network, held, chunks)
        ring_gather(network, held, chunks)
    if algorithm == "binomial_tree":
        binomial_up(network, held, lambda rank: whole, add=True)
        binomial_down(network, held, lambda rank: whole)
    if algorithm == "recursive_doubling":
        fold(doubling)(network, held)
    if algorithm == "halving_doubling":
        fold(halving_doubling)(network, held)
    if algorithm == "central":
        for rank in range(1, p):
            swap(network, held, {rank: (0, whole)}, add=True)
        for rank in range(1, p):
            swap(network, held, {0: (rank, whole)}, add=False)


PLAIN = ["ring", "binomial_tree", "recursive_doubling", "halving_doubling", "central"]


@pytest.mark.parametrize("world_size", range(1, 9))
@pytest.mark.parametrize("algorithm", PLAIN)
@pytest.mark.parametrize("nbytes", [840, 13, 3])
def test_an_all_reduce_that_is_carried_out_sends_what_is_predicted(algorithm, world_size, nbytes):
    network, held = Network(world_size), messages_of(nbytes, world_size)
    run_all_reduce(algorithm, network, held)
    assert held == [total(nbytes, world_size)] * world_size
    cost = collectives.cost("all_reduce", algorithm, nbytes, world_size)
    assert network.sent == collectives.sent("all_reduce", algorithm, nbytes, world_size)
    assert network.rounds == cost.rounds
    if nbytes == 840:
        assert network.path == pytest.approx(cost.nbytes)


@pytest.mark.parametrize("world_size", range(1, 9))
@pytest.mark.parametrize("algorithm", ["ring", "recursive_halving", "pairwise"])
@pytest.mark.parametrize("nbytes", [840, 13])
def test_a_reduce_scatter_that_is_carried_out_sends_what_is_predicted(algorithm, world_size, nbytes):
    if algorithm not in collectives.algorithms("reduce_scatter", world_size):
        with pytest.raises(ValueError, match="power of two"):
            collectives.cost("reduce_scatter", algorithm, nbytes, world_size)
        return
    network, held = Network(world_size), messages_of(nbytes, world_size)
    chunks, own = places(nbytes, world_size), messages_of(nbytes, world_size)
    if algorithm == "ring":
        ring_scatter(network, held, chunks)
    elif algorithm == "recursive_halving":
        halve(network, held, range(world_size), chunks)
    else:
        for step in range(1, world_size):
            came = network.round(
                [
                    (r, (r + step) % world_size, pick(own[r], chunks[(r + step) % world_size]))
                    for r in range(world_size)
                ]
            )
            for rank, data in came.items():
                put(held[rank], data, add=True)
    for rank, mine in enumerate(held):
        assert pick(mine, chunks[rank]) == pick(total(nbytes, world_size), chunks[rank])
    agree(network, "reduce_scatter", algorithm, nbytes, world_size)


def agree(network, collective, algorithm, nbytes, world_size):
    cost = collectives.cost(collective, algorithm, nbytes, world_size)
    assert network.sent == collectives.sent(collective, algorithm, nbytes, world_size)
    assert network.rounds == cost.rounds
    if nbytes == 840:
        assert network.path == pytest.approx(cost.nbytes)


@pytest.mark.parametrize("world_size", range(1, 9))
@pytest.mark.parametrize("algorithm", ["ring", "recursive_doubling", "bruck"])
@pytest.mark.parametrize("nbytes", [840, 13])
def test_an_all_gather_that_is_carried_out_sends_what_is_predicted(algorithm, world_size, nbytes):
    if algorithm not in collectives.algorithms("all_gather", world_size):
        return
    network, chunks = Network(world_size), places(nbytes, world_size)
    held = [[place if place in chunk else None for place in range(nbytes)] for chunk in chunks]
    if algorithm == "ring":
        ring_gather(network, held, chunks)
    elif algorithm == "recursive_doubling":
        double(network, held, range(world_size), chunks)
    else:
        have = 1
        while have < world_size:
            many = min(have, world_size - have)
            outgoing = {
                r: ((r - have) % world_size, joined(chunks + chunks, r, many)) for r in range(world_size)
            }
            swap(network, held, outgoing, add=False)
            have += many
    assert held == [list(range(nbytes))] * world_size
    agree(network, "all_gather", algorithm, nbytes, world_size)


@pytest.mark.parametrize("world_size", range(1, 9))
@pytest.mark.parametrize("nbytes", [840, 13])
@pytest.mark.parametrize("algorithm", ["binomial_tree", "linear", "scatter_all_gather"])
def test_a_broadcast_that_is_carried_out_sends_what_is_predicted(algorithm, world_size, nbytes):
    network, chunks = Network(world_size), places(nbytes, world_size)
    held = [list(range(nbytes))] + [[None] * nbytes for _ in range(world_size - 1)]
    if algorithm == "binomial_tree":
        binomial_down(network, held, lambda rank: range(nbytes))
    elif algorithm == "linear":
        for rank in range(1, world_size):
            swap(network, held, {0: (rank, range(nbytes))}, add=False)
    else:
        binomial_down(network, held, subtree(chunks))
        ring_gather(network, held, chunks)
    assert held == [list(range(nbytes))] * world_size
    agree(network, "broadcast", algorithm, nbytes, world_size)


@pytest.mark.parametrize("world_size", range(1, 9))
@pytest.mark.parametrize("nbytes", [840, 13])
@pytest.mark.parametrize("algorithm", ["binomial_tree", "linear", "ring_gather", "halving_gather"])
def test_a_reduce_that_is_carried_out_sends_what_is_predicted(algorithm, world_size, nbytes):
    if algorithm not in collectives.algorithms("reduce", world_size):
        return
    network, held = Network(world_size), messages_of(nbytes, world_size)
    if algorithm == "binomial_tree":
        binomial_up(network, held, lambda rank: range(nbytes), add=True)
    elif algorithm == "linear":
        for rank in range(1, world_size):
            swap(network, held, {rank: (0, range(nbytes))}, add=True)
    elif algorithm == "ring_gather":
        chunks = places(nbytes, world_size)
        ring_scatter(network, held, chunks)
        for rank in range(1, world_size):
            swap(network, held, {rank: (0, chunks[rank])}, add=False)
    else:
        chunks, step = places(nbytes, world_size), 1
        halve(network, held, range(world_size), chunks)
        while step < world_size:
            outgoing = {r: (r - step, joined(chunks, r, step)) for r in range(step, world_size, 2 * step)}
            swap(network, held, outgoing, add=False)
            step *= 2
    assert held[0] == total(nbytes, world_size)
    agree(network, "reduce", algorithm, nbytes, world_size)


@pytest.mark.parametrize("world_size", range(1, 9))
@pytest.mark.parametrize("nbytes", [840, 13])
@pytest.mark.parametrize("algorithm", ["binomial_tree", "linear"])
def test_a_scatter_and_a_gather_that_are_carried_out_send_what_is_predicted(algorithm, world_size, nbytes):
    chunks = places(nbytes, world_size)
    down, held = Network(world_size), [[None] * nbytes for _ in range(world_size)]
    held[0] = list(range(nbytes))
    up, parts = Network(world_size), [[p if p in chunk else None for p in range(nbytes)] for chunk in chunks]
    if algorithm == "binomial_tree":
        binomial_down(down, held, subtree(chunks))
        binomial_up(up, parts, subtree(chunks), add=False)
    else:
        for rank in range(1, world_size):
            swap(down, held, {0: (rank, chunks[rank])}, add=False)
            swap(up, parts, {rank: (0, chunks[rank])}, add=False)
    assert all(pick(held[r], chunk) == [(p, p) for p in chunk] for r, chunk in enumerate(chunks))
    assert parts[0] == list(range(nbytes))
    agree(down, "scatter", algorithm, nbytes, world_size)
    agree(up, "gather", algorithm, nbytes, world_size)


@pytest.mark.parametrize("world_size", range(1, 9))
@pytest.mark.parametrize("nbytes", [840, 13])
@pytest.mark.parametrize("algorithm", ["pairwise", "bruck"])
def test_an_all_to_all_that_is_carried_out_sends_what_is_predicted(algorithm, world_size, nbytes):
    p, network, chunks = world_size, Network(world_size), places(nbytes, world_size)
    held = [[(source, to, len(chunks[to])) for to in range(p)] for source in range(p)]

    def carry(step, goes):
        outgoing = {r: [part for part in held[r] if goes(r, part)] for r in range(p)}
        # A part of m bytes is m items long in the network's eyes.
        came = network.round(
            [
                (r, (r + step) % p, [part for part in parts for _ in range(part[2])])
                for r, parts in outgoing.items()
            ]
        )
        for r in range(p):
            held[r] = [part for part in held[r] if part not in outgoing[r]]
        for r, parts in came.items():
            held[r] += dict.fromkeys(parts)

    if algorithm == "pairwise":
        for step in range(1, p):
            carry(step, lambda r, part, step=step: part[1] == (r + step) % p)
    else:
        for k in range(max(p - 1, 0).bit_length()):
            carry(1 << k, lambda r, part, k=k: (part[1] - part[0]) % p >> k & 1)
    for rank, parts in enumerate(held):
        assert sorted(parts) == [(source, rank, len(chunks[rank])) for source in range(p)]
    agree(network, "all_to_all", algorithm, nbytes, world_size)


@pytest.mark.parametrize("world_size", range(2, 9))
@pytest.mark.parametrize("pieces", [1, 2, 7])
@pytest.mark.parametrize("upward", [False, True])
def test_a_pipeline_takes_the_predicted_rounds(world_size, pieces, upward):
    chain = [(0, rank - 1, rank) for rank in range(1, world_size)]
    network = Network(world_size)
    done = dict.fromkeys(chain, 0)
    while (
        min(done.values()) < pieces
    ):  # on a chain nobody has two neighbours on one side: no need to take turns
        order = chain[::-1] if upward else chain
        ready = [
            edge for at, edge in enumerate(order) if done[edge] < (done[order[at - 1]] if at else pieces)
        ]
        network.round([(b, a, "x") if upward else (a, b, "x") for _, a, b in ready])
        for edge in ready:
            done[edge] += 1
    cost = collectives.cost("broadcast", "pipelined_ring", pieces, world_size, pieces)
    assert (network.rounds, network.path) == cost
    expected = collectives.sent("reduce" if upward else "broadcast", "pipelined_ring", pieces, world_size)
    assert network.sent == expected


@pytest.mark.parametrize("world_size", range(2, 20))
@pytest.mark.parametrize("pieces", [1, 2, 7])
def test_a_binary_tree_takes_the_predicted_rounds(world_size, pieces):
    network, have = Network(world_size), [pieces] + [0] * (world_size - 1)
    turn = 0
    while min(have) < pieces:
        ready = []
        for child in range(1, world_size):
            parent, second = (child - 1) // 2, child % 2 == 0
            twins = 2 * parent + 2 < world_size
            if have[child] < have[parent] and (
                not twins or have[2 * parent + 1 + (not second)] >= have[child] + second
            ):
                ready.append((parent, child, "x"))
        chosen = {}
        for parent, child, data in ready:  # the one that is behind is served first, the left one among equals
            if parent not in chosen or have[child] < have[chosen[parent][1]]:
                chosen[parent] = parent, child, data
        network.round(list(chosen.values()))
        for _, child, _ in chosen.values():
            have[child] += 1
        turn += 1
    cost = collectives.cost("broadcast", "binary_tree", pieces, world_size, pieces)
    assert network.rounds == cost.rounds == cost.nbytes
    assert network.sent == collectives.sent("broadcast", "binary_tree", pieces, world_size)


@pytest.mark.parametrize("world_size", range(2, 34))
def test_a_double_tree_is_two_trees_with_the_leaves_of_one_inside_the_other(world_size):
    trees = collectives.double_binary_tree(world_size)
    both = set(range(world_size))
    for parents in trees:
        assert parents.count(-1) == 1
        for rank in range(world_size):
            height = 0
            while parents[rank] >= 0:
                rank, height = parents[rank], height + 1
            assert height <= math.ceil(math.log2(world_size))
        inner = set(parents) - {-1}
        assert all(parents.count(rank) <= 2 for rank in inner)
        both &= inner
    assert len(both) <= world_size % 2  # with an odd number of ranks the root is inner in both


@pytest.mark.parametrize("world_size", range(2, 18))
@pytest.mark.parametrize("pieces", [1, 2, 7])
def test_a_double_tree_takes_at_most_the_predicted_rounds(world_size, pieces):
    trees = collectives.double_binary_tree(world_size)
    edges = [(t, up, r) for t, parents in enumerate(trees) for r, up in enumerate(parents) if up >= 0]
    network = Network(world_size)
    relay(network, edges, pieces, upward=True)
    up = network.rounds
    relay(network, edges, pieces)
    cost = collectives.cost("all_reduce", "double_tree", 2 * pieces, world_size, pieces)
    assert max(up, network.rounds - up) <= cost.rounds / 2
    assert network.sent == collectives.sent("all_reduce", "double_tree", 2 * pieces, world_size)

    trees = collectives.double_binary_tree(world_size - 1)
    edges = [(t, up + 1, r + 1) for t, parents in enumerate(trees) for r, up in enumerate(parents)]
    network = Network(world_size)
    relay(network, edges, pieces)
    cost = collectives.cost("broadcast", "double_tree", 2 * pieces, world_size, pieces)
    assert network.rounds <= cost.rounds
    assert network.sent == collectives.sent("broadcast", "double_tree", 2 * pieces, world_size)


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


@pytest.mark.parametrize("g, nodes", [(2, 2), (2, 3), (4, 2), (3, 2)])
def test_a_hierarchical_all_reduce_that_is_carried_out_sends_what_is_predicted(g, nodes):
    world_size, nbytes = g * nodes, 840
    held = messages_of(nbytes, world_size)
    chunks = places(nbytes, g)
    intra, inter = Network(g), Network(nodes)
    members = [[held[node * g + place] for place in range(g)] for node in range(nodes)]
    for each in members:
        intra = Network(g)
        ring_scatter(intra, each, chunks)
    for place in range(g):
        inter, parts = Network(nodes), [[members[n][place][b] for b in chunks[place]] for n in range(nodes)]
        ring_scatter(inter, parts, places(len(chunks[place]), nodes))
        ring_gather(inter, parts, places(len(chunks[place]), nodes))
        for node in range(nodes):
            put(members[node][place], zip(chunks[place], parts[node]))
    for each in members:
        ring_gather(intra := Network(g), each, chunks)
    assert held == [total(nbytes, world_size)] * world_size
    levels = collectives.hierarchical_all_reduce(nbytes, g, nodes)
    assert inter.sent == [levels.inter.nbytes] * nodes
    assert [2 * sent for sent in intra.sent] == [levels.intra.nbytes] * g
    assert (2 * intra.rounds, inter.rounds) == (levels.intra.rounds, levels.inter.rounds)


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


N = 120_000  # bytes


def on_the_wire():
    rank, p = dist.get_rank(), dist.get_world_size()
    whole, chunk = torch.ones(N, dtype=torch.uint8), torch.ones(N // p, dtype=torch.uint8)
    chunks = list(torch.ones(p, N // p, dtype=torch.uint8))
    calls = {
        "all_reduce": lambda: dist.all_reduce(whole),
        "broadcast": lambda: dist.broadcast(whole, src=0),
        "reduce": lambda: dist.reduce(whole, dst=0),
        "all_gather": lambda: dist.all_gather_single(whole, chunk),
        "reduce_scatter": lambda: dist.reduce_scatter_single(chunk, whole),
        "all_to_all": lambda: dist.all_to_all_single(whole, whole.clone()),
        "gather": lambda: dist.gather(chunk, chunks if rank == 0 else None, dst=0),
        "scatter": lambda: dist.scatter(chunk, chunks if rank == 0 else None, src=0),
    }
    sent = {}
    for name, call in calls.items():
        dist.barrier()
        with trace() as counted:
            call()
        dist.barrier()
        sent[name] = counted.wire
    return sent


@pytest.fixture(scope="module", params=[2, 4, 5])
def gloo(request):
    by_rank = launch(on_the_wire, world_size=request.param)
    return request.param, {name: [sent[name] for sent in by_rank] for name in by_rank[0]}


@pytest.mark.parametrize(
    "collective, algorithm",
    [
        ("all_reduce", "ring"),
        ("broadcast", "binomial_tree"),
        ("reduce", "ring_gather"),
        ("all_gather", "ring"),
        ("all_to_all", "pairwise"),
        ("gather", "linear"),
        ("scatter", "linear"),
    ],
)
def test_each_rank_of_gloo_sends_what_its_algorithm_says(gloo, collective, algorithm):
    world_size, wire = gloo
    for counted, sent in zip(wire[collective], collectives.sent(collective, algorithm, N, world_size)):
        assert sent <= counted <= sent + 0.02 * N  # headers


def test_gloos_reduce_scatter_is_an_all_reduce_of_which_each_rank_keeps_its_part(gloo):
    world_size, wire = gloo
    sent = collectives.sent("all_reduce", "ring", N, world_size)
    assert all(s <= counted <= s + 0.02 * N for s, counted in zip(sent, wire["reduce_scatter"]))


def doubled():
    """Recursive doubling with real messages: the sum, and what this rank has sent."""
    rank, p = dist.get_rank(), dist.get_world_size()
    x, theirs = torch.full((100,), rank), torch.empty(100, dtype=torch.int64)
    with trace() as counted:
        distance = 1
        while distance < p:
            ops = [(dist.isend, x), (dist.irecv, theirs)]
            for work in dist.batch_isend_irecv([dist.P2POp(op, t, rank ^ distance) for op, t in ops]):
                work.wait()
            x += theirs
            distance *= 2
    return x[0].item(), counted.sent, counted.calls["send"]


@pytest.mark.parametrize("world_size", [2, 4, 8])
def test_real_ranks_that_double_send_what_is_predicted(world_size):
    results = launch(doubled, world_size=world_size)
    assert [x for x, _, _ in results] == [sum(range(world_size))] * world_size
    assert [sent for _, sent, _ in results] == collectives.sent(
        "all_reduce", "recursive_doubling", 800, world_size
    )
    assert results[0][2] == collectives.cost("all_reduce", "recursive_doubling", 800, world_size).rounds


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
        (lambda: collectives.message_seconds(10, -1e-6, 1e-9), "α must be a number of at least 0"),
        (lambda: collectives.bus_bandwidth("all_reduce", 10, 4, 0.0), "seconds must be a number above 0"),
        (lambda: collectives.crossover("all_reduce", "ring", "central", 4, 1e-6, 0.0), "β must be"),
    ],
)
def test_what_no_collective_can_have_is_refused(wrong, complaint):
    with pytest.raises(ValueError, match=complaint):
        wrong()
