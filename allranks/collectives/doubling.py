"""What does a collective cost when ranks exchange in pairs, at distances 1, 2, 4, …? About log2 p rounds.

With p no power of two, an all-reduce first folds: of the first 2r ranks, r = p − 2^⌊log2 p⌋, each even one
gives its message to the odd one after it, stands aside, and gets the result at the end (Thakur et al. 2005;
MPICH).
"""

from .rounds import Cost, checked, log2_down, log2_up, power_of_two, split


def _folded(world_size):
    """(log2 of the ranks that exchange, ranks that stand aside)"""
    places = log2_down(world_size)
    return places, world_size - (1 << places)


def recursive_doubling_all_reduce(nbytes, world_size):
    """`Cost` of an all-reduce in which partners swap whole messages: ⌊log2 p⌋ rounds of n, 2 more to fold.

    The fewest rounds there can be where p is a power of two (Thakur et al. 2005, section 4).
    """
    checked(nbytes, world_size)
    places, aside = _folded(world_size)
    rounds = places + 2 * (aside > 0)
    return Cost(rounds, rounds * nbytes)


def halving_doubling_all_reduce(nbytes, world_size):
    """`Cost` of Rabenseifner's all-reduce: recursive halving, then recursive doubling.

    2⌊log2 p⌋ rounds and 2(q−1)/q·n bytes, q = 2^⌊log2 p⌋; 2 rounds and 2n bytes more to fold (Thakur et al.
    2005, section 4). With p a power of two it sends a ring's bytes in a tree's rounds.
    """
    checked(nbytes, world_size)
    places, aside = _folded(world_size)
    folds, q = 2 * (aside > 0), 1 << places
    return Cost(2 * places + folds, 2 * (q - 1) * nbytes / q + folds * nbytes)


def recursive_halving_reduce_scatter(nbytes, world_size):
    """`Cost` of a reduce-scatter in which partners swap the other's half: log2 p rounds, (p−1)/p·n bytes.

    p has to be a power of two (Thakur et al. 2005, section 4).
    """
    checked(nbytes, world_size)
    return Cost(power_of_two(world_size), (world_size - 1) * nbytes / world_size)


def recursive_doubling_all_gather(nbytes, world_size):
    """`Cost` of an all-gather in which partners swap all they have: log2 p rounds, (p−1)/p·n bytes.

    p has to be a power of two (Thakur et al. 2005, section 4.1).
    """
    checked(nbytes, world_size)
    return Cost(power_of_two(world_size), (world_size - 1) * nbytes / world_size)


def bruck_all_gather(nbytes, world_size):
    """`Cost` of Bruck's all-gather, for every p: ⌈log2 p⌉ rounds, (p−1)/p·n bytes.

    In round k a rank sends what it has, at most 2^k parts, to the rank 2^k before it (Thakur et al. 2005,
    section 4.1).
    """
    checked(nbytes, world_size)
    return Cost(log2_up(world_size), (world_size - 1) * nbytes / world_size)


def halving_gather_reduce(nbytes, world_size):
    """`Cost` of Rabenseifner's reduce: recursive halving, then a binomial gather.

    2·log2 p rounds, 2(p−1)/p·n bytes; p has to be a power of two (Thakur et al. 2005, section 4).
    """
    one_way = recursive_halving_reduce_scatter(nbytes, world_size)
    return one_way.then(one_way)


def recursive_doubling_all_reduce_sent(nbytes, world_size):
    """Bytes each rank sends: ⌊log2 p⌋·n; one that stands aside n, and its partner n more than the others."""
    checked(nbytes, world_size)
    places, aside = _folded(world_size)
    return _with_folds([places * nbytes] * (1 << places), nbytes, aside)


def halving_doubling_all_reduce_sent(nbytes, world_size, element_size=1):
    """Bytes each rank sends in Rabenseifner's all-reduce, p and n arbitrary: the sum is 2(p−1)n."""
    places, aside = _folded(world_size)
    chunks = split(nbytes, 1 << places, element_size)
    scattered = [nbytes - chunk for chunk in chunks]
    gathered = _doubling(chunks, places)
    return _with_folds([one + other for one, other in zip(scattered, gathered)], nbytes, aside)


def _doubling(chunks, places):
    """What each rank sends in an all-gather by doubling: its block of 1, 2, 4, … chunks."""
    return [
        sum(sum(chunks[rank >> place << place : ((rank >> place) + 1) << place]) for place in range(places))
        for rank in range(len(chunks))
    ]


def _with_folds(sent, nbytes, aside):
    all_ranks = []
    for rank, mine in enumerate(sent):
        all_ranks += [nbytes, mine + nbytes] if rank < aside else [mine]
    return all_ranks


def recursive_halving_reduce_scatter_sent(nbytes, world_size, element_size=1):
    """Bytes each rank sends: all but its own chunk. p has to be a power of two."""
    power_of_two(world_size)
    return [nbytes - chunk for chunk in split(nbytes, world_size, element_size)]


def recursive_doubling_all_gather_sent(nbytes, world_size, element_size=1):
    """Bytes each rank sends: its chunk, its pair's, its four's, … p has to be a power of two."""
    return _doubling(split(nbytes, world_size, element_size), power_of_two(world_size))


def bruck_all_gather_sent(nbytes, world_size, element_size=1):
    """Bytes each rank sends in Bruck's all-gather: in round k its own and the next chunks, at most 2^k."""
    chunks = split(nbytes, world_size, element_size) * 2
    rounds = [min(1 << k, world_size - (1 << k)) for k in range(log2_up(world_size))]
    return [sum(sum(chunks[rank : rank + many]) for many in rounds) for rank in range(world_size)]


def halving_gather_reduce_sent(nbytes, world_size, element_size=1):
    """Bytes each rank sends in Rabenseifner's reduce to rank 0: all but its chunk, then its subtree's.

    p has to be a power of two. Rank r gathers from r+1, r+2, r+4, … below its lowest one.
    """
    chunks = split(nbytes, world_size, element_size)
    scattered = recursive_halving_reduce_scatter_sent(nbytes, world_size, element_size)
    return [
        mine + (sum(chunks[rank : rank + (rank & -rank)]) if rank else 0)
        for rank, mine in enumerate(scattered)
    ]
