"""What does a collective cost on a tree? Few rounds, and inner ranks that send more than leaves.

Binomial: the ranks that know double each round. Binary: two children a rank, worth cutting into pieces.
Double binary: two trees, each for half of the message, where a rank that is inner in one is a leaf in the
other.
"""

from ..inputs import whole
from .ring import ring_all_gather_sent
from .rounds import Cost, checked, log2_down, log2_up, split


def tree_broadcast_rounds(world_size):
    """Rounds of a binomial-tree broadcast: ceil(log2 p), for the ranks that know double each round.

    Thakur, Rabenseifner & Gropp 2005, section 4.2.
    """
    checked(0, world_size)
    return log2_up(world_size)


def binomial_children(rank, world_size):
    """The ranks to which `rank` sends in a broadcast from rank 0, in order: rank + 2^k for all 2^k > rank."""
    whole("world_size", world_size), whole("rank", rank, 0, world_size - 1)
    step = 1 << (log2_down(rank) + 1 if rank else 0)
    children = []
    while rank + step < world_size:
        children.append(rank + step)
        step *= 2
    return children


def binomial_broadcast(nbytes, world_size):
    """`Cost` of a broadcast (or reduce) on a binomial tree: ⌈log2 p⌉ rounds of n (Thakur et al., 4.2)."""
    rounds = tree_broadcast_rounds(world_size)
    return Cost(rounds, rounds * nbytes)


def binomial_all_reduce(nbytes, world_size):
    """`Cost` of a reduce to rank 0 and a broadcast from it: 2⌈log2 p⌉ rounds of n bytes."""
    one_way = binomial_broadcast(nbytes, world_size)
    return one_way.then(one_way)


def binomial_scatter(nbytes, world_size):
    """`Cost` of a scatter (or gather) of `nbytes` in all: ⌈log2 p⌉ rounds, (p−1)/p·n bytes, for every p.

    A rank sends a child what that child's subtree needs (Chan et al. 2007, minimum spanning tree algorithms).
    """
    checked(nbytes, world_size)
    return Cost(log2_up(world_size), (world_size - 1) * nbytes / world_size)


def scatter_all_gather_broadcast(nbytes, world_size):
    """`Cost` of a broadcast as scatter and ring all-gather: ⌈log2 p⌉ + p−1 rounds, 2(p−1)/p·n bytes.

    Van de Geijn's algorithm for long messages (Thakur et al. 2005, section 4.2).
    """
    checked(nbytes, world_size)
    return Cost(
        log2_up(world_size) + world_size - 1,
        2 * (world_size - 1) * nbytes / world_size,
    )


def binomial_broadcast_sent(nbytes, world_size):
    """Bytes each rank sends in a broadcast from rank 0: n for each child, so rank 0 ⌈log2 p⌉·n."""
    checked(nbytes, world_size)
    return [nbytes * len(binomial_children(rank, world_size)) for rank in range(world_size)]


def binomial_reduce_sent(nbytes, world_size):
    """Bytes each rank sends in a reduce to rank 0, on any tree: n, and rank 0 none."""
    checked(nbytes, world_size)
    return [nbytes if rank else 0 for rank in range(world_size)]


def binomial_all_reduce_sent(nbytes, world_size):
    """Bytes each rank sends in a reduce and a broadcast: n up, and n down for each child."""
    down = binomial_broadcast_sent(nbytes, world_size)
    return [up + below for up, below in zip(binomial_reduce_sent(nbytes, world_size), down)]


def _subtree(rank, world_size, chunks):
    return sum(chunks[rank :: 1 << (log2_down(rank) + 1)]) if rank else sum(chunks)


def binomial_gather_sent(nbytes, world_size, element_size=1):
    """Bytes each rank sends in a gather to rank 0: the chunks of its subtree; rank 0 none."""
    chunks = split(nbytes, world_size, element_size)
    return [_subtree(rank, world_size, chunks) if rank else 0 for rank in range(world_size)]


def binomial_scatter_sent(nbytes, world_size, element_size=1):
    """Bytes each rank sends in a scatter from rank 0: the chunks of its subtree, but its own."""
    chunks = split(nbytes, world_size, element_size)
    return [_subtree(rank, world_size, chunks) - chunks[rank] for rank in range(world_size)]


def scatter_all_gather_broadcast_sent(nbytes, world_size, element_size=1):
    """Bytes each rank sends in a scatter from rank 0 and a ring all-gather."""
    scattered = binomial_scatter_sent(nbytes, world_size, element_size)
    gathered = ring_all_gather_sent(nbytes, world_size, element_size)
    return [one + other for one, other in zip(scattered, gathered)]


def binary_tree(nbytes, world_size, pieces=1):
    """`Cost` of a broadcast (or reduce) on a binary tree, cut in k pieces: d + 2(k−1) rounds of n/k bytes.

    The children of rank i are 2i+1 and, served second, 2i+2. A rank i+1 whose binary number has b digits, o
    of them ones, gets its first piece in round b+o−2; d is the largest of these, 2⌊log2 p⌋ where p+1 is a
    power of two. Each further piece comes two rounds later, because it is sent twice: with many pieces the
    bytes tend to 2n.
    """
    checked(nbytes, world_size, pieces)
    if world_size < 3:
        return Cost((world_size - 1) * pieces, (world_size - 1) * nbytes)
    rounds = binary_tree_depth(world_size) + 2 * (pieces - 1)
    return Cost(rounds, rounds * nbytes / pieces)


def binary_tree_depth(world_size):
    """Rounds until a first piece has reached all ranks of a binary tree, children served in turn."""
    best, digits, ones = 0, log2_down(world_size) + 1, 0
    for place in range(digits - 1, -1, -1):
        if world_size >> place & 1:
            if ones:  # the largest number below world_size that has a 0 here
                best = max(best, digits + ones + place)
            ones += 1
    return max(best, digits + ones, 2 * digits - 2) - 2


def binary_all_reduce(nbytes, world_size, pieces=1):
    """`Cost` of a reduce and then a broadcast on a binary tree: twice `binary_tree`."""
    one_way = binary_tree(nbytes, world_size, pieces)
    return one_way.then(one_way)


def binary_broadcast_sent(nbytes, world_size):
    """Bytes each rank sends in a broadcast on a binary tree: n for each child, so a leaf none."""
    checked(nbytes, world_size)
    return [
        nbytes * ((2 * rank + 1 < world_size) + (2 * rank + 2 < world_size)) for rank in range(world_size)
    ]


def binary_all_reduce_sent(nbytes, world_size):
    """Bytes each rank sends in a reduce and a broadcast on a binary tree: n up, and n down for each child."""
    down = binary_broadcast_sent(nbytes, world_size)
    return [up + below for up, below in zip(binomial_reduce_sent(nbytes, world_size), down)]


def double_binary_tree(world_size):
    """Two trees over the same ranks, as two lists of parents (−1 for a root): NCCL 2.4's.

    In the first, odd ranks are leaves, and the parent of a rank changes its lowest one to the next higher
    place. The second is the first in a mirror (p even) or moved on by one rank (p odd), so that its leaves
    are the even ranks. Both have height ⌈log2 p⌉ (Sanders, Speck & Träff 2009, the same idea).
    """
    checked(0, world_size)
    first = [_parent(rank, world_size) for rank in range(world_size)]
    if world_size % 2:
        moved = [first[rank - 1] for rank in range(world_size)]
        return first, [-1 if up < 0 else (up + 1) % world_size for up in moved]
    mirrored = [first[world_size - 1 - rank] for rank in range(world_size)]
    return first, [-1 if up < 0 else world_size - 1 - up for up in mirrored]


def _parent(rank, world_size):
    if rank == 0:
        return -1
    lowest = rank & -rank
    up = (rank - lowest) | lowest << 1
    return up if up < world_size else rank - lowest


def double_tree_all_reduce(nbytes, world_size, pieces=1):
    """`Cost` of an all-reduce on two binary trees, a half each, in k pieces: 4(h+k−1) rounds of n/(2k).

    h = ⌈log2 p⌉ is the height. Trees can be laid out so that in every round a rank sends at most one piece
    and receives at most one, each of its links being used every other round (Sanders, Speck & Träff 2009): a
    reduce of k pieces takes at most 2(h+k−1) rounds, a broadcast as many. With many pieces the bytes tend to
    2n: nearly a ring's, with a latency that grows like log p.
    """
    checked(nbytes, world_size, pieces)
    if world_size == 1:
        return Cost(0, 0)
    rounds = 4 * (log2_up(world_size) + pieces - 1)
    return Cost(rounds, rounds * nbytes / (2 * pieces))


def double_tree_broadcast(nbytes, world_size, pieces=1):
    """`Cost` of a broadcast on two trees over all but the root, in k pieces each: 2(h+k−1) rounds of n/(2k).

    The root feeds both trees in turn; h = 1 + ⌈log2(p−1)⌉ (Sanders, Speck & Träff 2009). With many pieces the
    bytes tend to n, half of a single binary tree's.
    """
    checked(nbytes, world_size, pieces)
    if world_size == 1:
        return Cost(0, 0)
    rounds = 2 * (log2_up(world_size - 1) + pieces)
    return Cost(rounds, rounds * nbytes / (2 * pieces))


def double_tree_all_reduce_sent(nbytes, world_size, element_size=1):
    """Bytes each rank sends in an all-reduce on two trees: in each, its half up, and down for each child.

    A rank with two children in one tree and none in the other sends 2n; the sum over ranks is 2(p−1)n.
    """
    sent = [0] * world_size
    for parents, half in zip(double_binary_tree(world_size), split(nbytes, 2, element_size)):
        for rank, parent in enumerate(parents):
            if parent >= 0:
                sent[rank] += half
                sent[parent] += half
    return sent


def double_tree_broadcast_sent(nbytes, world_size, element_size=1):
    """Bytes each rank sends in a broadcast on two trees: n for rank 0, its half for each child."""
    checked(nbytes, world_size)
    if world_size == 1:
        return [0]
    sent = [nbytes] + [0] * (world_size - 1)
    for parents, half in zip(double_binary_tree(world_size - 1), split(nbytes, 2, element_size)):
        for parent in parents:
            if parent >= 0:
                sent[parent + 1] += half
    return sent
