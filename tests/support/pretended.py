"""Collectives carried out between pretended ranks, in one process.

`Network` carries out rounds of messages, counts them and their bytes, and refuses a round in which a rank
sends or receives twice. Each algorithm is written down here once more, from its description.
"""

import itertools


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
