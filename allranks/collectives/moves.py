"""Who sends which chunk to whom in an all-reduce, and whose contributions does a chunk hold after each round?

A rank sends at most one message a round and receives at most one, all at once; what arrives is added to what
is there, or takes its place. Chunks are equal parts of the message. The rounds are those whose `Cost` the
other modules count.
"""

from collections import namedtuple

from ..inputs import multiple, one_of, whole
from .rounds import Cost, checked, log2_down, log2_up

PLAYED = ("ring", "binomial_tree", "recursive_doubling", "halving_doubling", "two_level")

Move = namedtuple("Move", "source target first last adds")
"""A message from rank `source` to `target`: chunks `first` to `last` − 1, added or (`adds` False) copied."""

Round = namedtuple("Round", "phase inside moves")
"""Messages that travel at once; `inside` where all of them stay inside a node of a two-level all-reduce."""


def all_reduce_chunks(algorithm, world_size, ranks_per_node=1):
    """Into how many chunks an algorithm of `PLAYED` cuts the message.

    Ring p, halving and doubling the largest power of two up to p, two-level p (a ring's chunks inside a node,
    each cut again for the ring between nodes), trees and recursive doubling 1.
    """
    _checked(algorithm, world_size, ranks_per_node)
    if algorithm == "halving_doubling":
        return 1 << log2_down(world_size)
    return world_size if algorithm in ("ring", "two_level") else 1


def all_reduce_rounds(algorithm, world_size, ranks_per_node=1):
    """The rounds of an all-reduce by an algorithm of `PLAYED`, as a list of `Round`.

    Ring: Patarasuk & Yuan 2009; trees, doubling, halving: Thakur et al. 2005, section 4. Two-level: rank r is
    at place r mod g of node ⌊r/g⌋ with g = ranks_per_node, which has to divide p (`hierarchical_all_reduce`).
    """
    _checked(algorithm, world_size, ranks_per_node)
    ranks = list(range(world_size))
    if algorithm == "ring":
        scatter, gather = _ring(ranks, 0, 1)
        return _named("reduce-scatter", scatter) + _named("all-gather", gather)
    if algorithm == "binomial_tree":
        return _binomial(world_size)
    if algorithm == "two_level":
        return _two_level(world_size, ranks_per_node)
    return _paired(world_size, algorithm == "halving_doubling")


def contributions(algorithm, world_size, rounds, ranks_per_node=1):
    """What the ranks hold after the first `rounds` rounds: for rank and chunk the ranks whose values it sums.

    A list for each rank, in it for each chunk a sorted tuple of ranks; all ranks, where the sum is complete.
    """
    whole("rounds", rounds, 0)
    chunks = all_reduce_chunks(algorithm, world_size, ranks_per_node)
    held = [[(rank,)] * chunks for rank in range(world_size)]
    for each in all_reduce_rounds(algorithm, world_size, ranks_per_node)[:rounds]:
        before = [list(row) for row in held]
        for source, target, first, last, adds in each.moves:
            for chunk in range(first, last):
                arrives = before[source][chunk]
                held[target][chunk] = tuple(sorted(before[target][chunk] + arrives)) if adds else arrives
    return held


def round_cost(one_round, chunks, nbytes):
    """`Cost` of one `Round` of a message of `nbytes` in `chunks` equal parts: its largest message."""
    checked(nbytes, 1, chunks)
    return Cost(1, max(move.last - move.first for move in one_round.moves) * nbytes / chunks)


def meeting(one, other):
    """Message size in bytes at which two times, a + b·n seconds each, are equal; None where they never are.

    one, other: pairs (a in seconds, b in seconds per byte). `crossover` for algorithms on one kind of link.
    """
    ahead, gain = one[0] - other[0], other[1] - one[1]
    return ahead / gain if ahead * gain > 0 else None


def _checked(algorithm, world_size, ranks_per_node):
    one_of("algorithm", algorithm, PLAYED), whole("world_size", world_size)
    whole("ranks_per_node", ranks_per_node)
    if algorithm == "two_level":
        multiple("world_size", world_size, "ranks_per_node", ranks_per_node)


def _named(phase, rounds, inside=False):
    return [Round(phase, inside, moves) for moves in rounds]


def _ring(ranks, start, block):
    """Rounds of moves of a reduce-scatter and of an all-gather on a ring of `ranks`.

    The chunks from `start` are in as many blocks as there are ranks, each of `block` chunks.
    """
    p = len(ranks)

    def moves(i, lag, adds):
        for r in range(p):
            first = start + (r - lag - i) % p * block
            yield Move(ranks[r], ranks[(r + 1) % p], first, first + block, adds)

    scatter = [list(moves(i, 1, True)) for i in range(p - 1)]
    return scatter, [list(moves(i, 0, False)) for i in range(p - 1)]


def _together(lanes):
    """What several groups do at once: in each round the moves of all."""
    return [[move for moves in at_once for move in moves] for at_once in zip(*lanes)]


def _two_level(world_size, g):
    nodes = world_size // g
    inside = [_ring(list(range(node * g, node * g + g)), 0, nodes) for node in range(nodes)]
    between = [_ring(list(range(place, world_size, g)), place * nodes, 1) for place in range(g)]
    return (
        _named("reduce-scatter inside nodes", _together([scatter for scatter, _ in inside]), True)
        + _named("reduce-scatter between nodes", _together([scatter for scatter, _ in between]))
        + _named("all-gather between nodes", _together([gather for _, gather in between]))
        + _named("all-gather inside nodes", _together([gather for _, gather in inside]), True)
    )


def _binomial(world_size):
    """A reduce to rank 0, the farthest first, and a broadcast back the same way."""
    reduce, broadcast = [], []
    for k in range(log2_up(world_size)):
        pairs = [(rank, rank + (1 << k)) for rank in range(1 << k) if rank + (1 << k) < world_size]
        broadcast.append([Move(near, far, 0, 1, False) for near, far in pairs])
        reduce.append([Move(far, near, 0, 1, True) for near, far in pairs])
    return _named("reduce", reduce[::-1]) + _named("broadcast", broadcast)


def _paired(world_size, halving):
    """Exchanges at distances that double, after what is beyond a power of two has been folded in."""
    places = log2_down(world_size)
    q = 1 << places
    aside = world_size - q
    ranks = [2 * i + 1 if i < aside else i + aside for i in range(q)]
    chunks = q if halving else 1
    fold = [[Move(2 * i, 2 * i + 1, 0, chunks, True) for i in range(aside)]] if aside else []
    unfold = [[Move(2 * i + 1, 2 * i, 0, chunks, False) for i in range(aside)]] if aside else []
    exchanges, gather = [], []
    for distance in [1 << place for place in range(places)]:
        if halving:
            theirs, mine = [], []
            for i in range(q):
                j = i ^ distance
                at = j // distance * distance
                theirs.append(Move(ranks[i], ranks[j], at, at + distance, True))
                at = i // distance * distance
                mine.append(Move(ranks[i], ranks[j], at, at + distance, False))
            exchanges.append(theirs)
            gather.append(mine)
        else:
            exchanges.append([Move(ranks[i], ranks[i ^ distance], 0, 1, True) for i in range(q)])
    return (
        _named("fold", fold)
        + _named("halving" if halving else "exchange", exchanges[::-1] if halving else exchanges)
        + _named("doubling", gather)
        + _named("unfold", unfold)
    )
