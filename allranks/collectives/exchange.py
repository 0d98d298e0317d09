"""What does it cost when ranks talk to each other one by one? All-to-all, and collectives done the plain way.

Pairwise: in round i, rank r sends to rank r+i. Linear: the root talks to one rank after another.
"""

from .rounds import Cost, checked, log2_up, split


def all_to_all_bytes(nbytes, world_size):
    """Bytes each rank sends to hand every other rank its p-th of `nbytes`: (p-1)/p of the message."""
    checked(nbytes, world_size)
    return (world_size - 1) * nbytes / world_size


def rooted_bytes(nbytes, world_size):
    """Bytes a rank sends, as a mean over the ranks, in a broadcast, reduce, gather or scatter.

    `nbytes` have to reach, or to leave, every rank but the root: p-1 messages, on p ranks. What each rank
    sends depends on the algorithm: `sent`.
    """
    checked(nbytes, world_size)
    return (world_size - 1) * nbytes / world_size


def pairwise(nbytes, world_size):
    """`Cost` of an all-to-all (or reduce-scatter) by pairwise exchange: p−1 rounds, (p−1)/p·n bytes.

    n is all that a rank hands out, its own part included (Thakur et al. 2005, section 4).
    """
    return Cost(world_size - 1, all_to_all_bytes(nbytes, world_size))


def bruck_all_to_all(nbytes, world_size):
    """`Cost` of Bruck's all-to-all, for short messages: ⌈log2 p⌉ rounds, for p = 2^k of n/2 bytes.

    In round k a rank sends on every part whose way to go has a 1 at binary place k; a part travels as many
    times as its way has ones (Thakur et al. 2005, section 4).
    """
    checked(nbytes, world_size)
    rounds = log2_up(world_size)
    parts = sum(way >> place & 1 for way in range(world_size) for place in range(rounds))
    return Cost(rounds, parts * nbytes / world_size)


def linear_broadcast(nbytes, world_size):
    """`Cost` of a broadcast (or reduce) whose root talks to one rank after another: p−1 rounds of n."""
    checked(nbytes, world_size)
    return Cost(world_size - 1, (world_size - 1) * nbytes)


def linear_scatter(nbytes, world_size):
    """`Cost` of a scatter (or gather) whose root talks to one rank after another: p−1 rounds of n/p."""
    checked(nbytes, world_size)
    return Cost(world_size - 1, (world_size - 1) * nbytes / world_size)


def central_all_reduce(nbytes, world_size):
    """`Cost` of an all-reduce by one rank that collects and hands out: 2(p−1) rounds of n bytes.

    A parameter server does this.
    """
    one_way = linear_broadcast(nbytes, world_size)
    return one_way.then(one_way)


def pairwise_sent(nbytes, world_size, element_size=1):
    """Bytes each rank sends in a pairwise all-to-all or reduce-scatter: all but its own chunk."""
    return [nbytes - chunk for chunk in split(nbytes, world_size, element_size)]


def bruck_all_to_all_sent(nbytes, world_size, element_size=1):
    """Bytes each rank sends in Bruck's all-to-all, if every rank cuts its message in the same way."""
    chunks = split(nbytes, world_size, element_size)
    ways = [  # a multiple of 2^k to go on, and how many parts have it
        (way, min(1 << place, world_size - way))
        for place in range(log2_up(world_size))
        for way in range(1 << place, world_size, 2 << place)
    ]
    return [sum(many * chunks[(rank + way) % world_size] for way, many in ways) for rank in range(world_size)]


def linear_broadcast_sent(nbytes, world_size):
    """Bytes each rank sends: rank 0, the root, (p−1)n; the others none."""
    checked(nbytes, world_size)
    return [(world_size - 1) * nbytes] + [0] * (world_size - 1)


def linear_scatter_sent(nbytes, world_size, element_size=1):
    """Bytes each rank sends: rank 0, the root, all but its chunk; the others none."""
    chunks = split(nbytes, world_size, element_size)
    return [nbytes - chunks[0]] + [0] * (world_size - 1)


def linear_gather_sent(nbytes, world_size, element_size=1):
    """Bytes each rank sends: its chunk; rank 0, the root, none."""
    return [part if rank else 0 for rank, part in enumerate(split(nbytes, world_size, element_size))]


def central_all_reduce_sent(nbytes, world_size):
    """Bytes each rank sends: rank 0 (p−1)n, the others n."""
    checked(nbytes, world_size)
    return [(world_size - 1) * nbytes] + [nbytes] * (world_size - 1)
