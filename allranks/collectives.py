"""What does a collective cost? The bytes that each rank sends.

The model: p ranks in a ring, each connected to the next; sizes in bytes. A collective that is made of
p-1 steps around the ring sends one p-th of the message at each step.
"""


def ring_all_reduce_bytes(nbytes, world_size):
    """Bytes each rank sends to sum `nbytes` over a ring: 2(p-1)/p of the message.

    A reduce-scatter and an all-gather move (p-1)/p each; no algorithm sends less (Patarasuk & Yuan 2009).
    """
    return ring_reduce_scatter_bytes(nbytes, world_size) + ring_all_gather_bytes(nbytes, world_size)


def ring_reduce_scatter_bytes(nbytes, world_size):
    """Bytes each rank sends until it holds the sum of its p-th part of `nbytes`: (p-1)/p of the message."""
    return (world_size - 1) * nbytes / world_size


def ring_all_gather_bytes(nbytes, world_size):
    """Bytes each rank sends until all ranks hold all `nbytes`, of which each had a p-th: (p-1)/p of it."""
    return (world_size - 1) * nbytes / world_size


def all_to_all_bytes(nbytes, world_size):
    """Bytes each rank sends to hand every other rank its p-th of `nbytes`: (p-1)/p of the message."""
    return (world_size - 1) * nbytes / world_size


def rooted_bytes(nbytes, world_size):
    """Bytes a rank sends, as a mean over the ranks, in a broadcast, reduce, gather or scatter.

    `nbytes` have to reach, or to leave, every rank but the root: p-1 messages, on p ranks.
    """
    return (world_size - 1) * nbytes / world_size


def tree_broadcast_rounds(world_size):
    """Rounds of a binomial-tree broadcast: ceil(log2 p), for the ranks that know double each round.

    Thakur, Rabenseifner & Gropp 2005, section 4.2.
    """
    return (world_size - 1).bit_length()


def message_seconds(nbytes, α, β):
    """Seconds that one message of `nbytes` takes: α + βn (Hockney's model; Thakur et al. 2005, section 3).

    α is the latency in seconds, β the seconds for each byte, the inverse of the bandwidth.
    """
    return α + β * nbytes
