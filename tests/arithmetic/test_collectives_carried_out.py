"""What an algorithm sends when it is carried out is what its cost predicts, and its result is right."""

import math

import pytest
from pretended import (
    Network,
    binomial_down,
    binomial_up,
    double,
    halve,
    joined,
    messages_of,
    pick,
    places,
    put,
    relay,
    ring_gather,
    ring_scatter,
    run_all_reduce,
    subtree,
    swap,
    total,
)

from allranks import collectives

PLAIN = ["ring", "binomial_tree", "recursive_doubling", "halving_doubling", "central"]


@pytest.mark.parametrize("world_size", range(1, 9))
@pytest.mark.parametrize("algorithm", PLAIN)
@pytest.mark.parametrize("nbytes", [840, 13, 3])
def test_an_all_reduce_that_is_carried_out_sends_what_is_predicted(algorithm, world_size, nbytes):
    network, held = Network(world_size), messages_of(nbytes, world_size)
    run_all_reduce(algorithm, network, held)
    assert held == [total(nbytes, world_size)] * world_size
    agree(network, "all_reduce", algorithm, nbytes, world_size)


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
