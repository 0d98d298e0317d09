"""What does a collective cost on a ring? Each rank sends to the next, p−1 times, a p-th of the message.

Bandwidth-optimal (Patarasuk & Yuan 2009), with a latency that grows with p.
"""

from .rounds import Cost, checked, split


def ring_all_reduce_bytes(nbytes, world_size):
    """Bytes each rank sends to sum `nbytes` over a ring: 2(p-1)/p of the message.

    A reduce-scatter and an all-gather move (p-1)/p each; no algorithm sends less (Patarasuk & Yuan 2009).
    """
    return ring_reduce_scatter_bytes(nbytes, world_size) + ring_all_gather_bytes(nbytes, world_size)


def ring_reduce_scatter_bytes(nbytes, world_size):
    """Bytes each rank sends until it holds the sum of its p-th part of `nbytes`: (p-1)/p of the message."""
    checked(nbytes, world_size)
    return (world_size - 1) * nbytes / world_size


def ring_all_gather_bytes(nbytes, world_size):
    """Bytes each rank sends until all ranks hold all `nbytes`, of which each had a p-th: (p-1)/p of it."""
    checked(nbytes, world_size)
    return (world_size - 1) * nbytes / world_size


def ring_reduce_scatter(nbytes, world_size):
    """`Cost` of a reduce-scatter of `nbytes`: p−1 rounds, (p−1)/p·n bytes (Chan et al. 2007, bucket)."""
    return Cost(world_size - 1, ring_reduce_scatter_bytes(nbytes, world_size))


def ring_all_gather(nbytes, world_size):
    """`Cost` of an all-gather to `nbytes`: p−1 rounds, (p−1)/p·n bytes (Thakur et al. 2005, section 4.1)."""
    return Cost(world_size - 1, ring_all_gather_bytes(nbytes, world_size))


def ring_all_reduce(nbytes, world_size):
    """`Cost` of an all-reduce of `nbytes`: 2(p−1) rounds, 2(p−1)/p·n bytes (Patarasuk & Yuan 2009)."""
    return ring_reduce_scatter(nbytes, world_size).then(ring_all_gather(nbytes, world_size))


def ring_gather_reduce(nbytes, world_size):
    """`Cost` of a reduce as ring reduce-scatter and a gather rank by rank: 2(p−1) rounds, 2(p−1)/p·n bytes.

    What gloo does (counted: `tests/ranks/test_collectives_gloo.py`).
    """
    return ring_all_reduce(nbytes, world_size)


def pipelined_ring(nbytes, world_size, pieces=1):
    """`Cost` of a broadcast (or reduce) along a chain, cut in k pieces: p−2+k rounds of n/k bytes.

    The first piece takes p−1 rounds to the last rank, and each other piece comes one round later. With many
    pieces the bytes tend to n, whatever p. NCCL broadcasts so.
    """
    checked(nbytes, world_size, pieces)
    rounds = world_size - 2 + pieces if world_size > 1 else 0
    return Cost(rounds, rounds * nbytes / pieces)


def ring_reduce_scatter_sent(nbytes, world_size, element_size=1):
    """Bytes each rank sends to reduce-scatter `nbytes` that p need not divide: n minus its own chunk.

    Rank r begins with chunk r−1 and passes on what it has summed, until it holds chunk r. The sum over ranks
    is (p−1)n exactly, the largest n − ⌊n/p⌋ (in elements).
    """
    return [nbytes - chunk for chunk in split(nbytes, world_size, element_size)]


def ring_all_gather_sent(nbytes, world_size, element_size=1):
    """Bytes each rank sends to all-gather `nbytes` that p need not divide: n minus the next rank's chunk.

    Rank r begins with chunk r and passes on what comes. The sum over ranks is (p−1)n exactly.
    """
    chunks = split(nbytes, world_size, element_size)
    return [nbytes - chunks[(rank + 1) % world_size] for rank in range(world_size)]


def ring_all_reduce_sent(nbytes, world_size, element_size=1):
    """Bytes each rank sends to all-reduce `nbytes` that p need not divide: 2n minus chunks r and r+1.

    The sum over ranks is 2(p−1)n exactly, for every n. Some rank has a largest chunk in every round, so the
    time is that of p·⌈n/p⌉ bytes.
    """
    scattered = ring_reduce_scatter_sent(nbytes, world_size, element_size)
    gathered = ring_all_gather_sent(nbytes, world_size, element_size)
    return [one + other for one, other in zip(scattered, gathered)]


def pipelined_ring_broadcast_sent(nbytes, world_size):
    """Bytes each rank sends in a broadcast along a chain: n, and the last rank none."""
    checked(nbytes, world_size)
    return [nbytes] * (world_size - 1) + [0]


def ring_gather_reduce_sent(nbytes, world_size, element_size=1):
    """Bytes each rank sends in a ring reduce-scatter and a gather: n; rank 0, the root, less its chunk."""
    root = split(nbytes, world_size, element_size)[0]
    return [nbytes - root] + [nbytes] * (world_size - 1)
