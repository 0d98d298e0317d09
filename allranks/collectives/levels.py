"""What does a collective cost on nodes with fast links inside and slow ones between? Bytes on each kind.

p = g·N ranks: N nodes of g ranks. Inside a node a ring; between nodes g rings at once, each of the N ranks
that have the same place in their node. With one node, or one rank a node, this is the flat ring.
"""

from collections import namedtuple

from ..inputs import quantity, whole
from .ring import ring_all_gather, ring_all_reduce, ring_reduce_scatter
from .rounds import Cost


class Levels(namedtuple("Levels", "intra inter")):
    """The `Cost` inside a node and between nodes; `nbytes` of each is also what every rank sends there."""

    __slots__ = ()

    def seconds(self, α_intra, β_intra, α_inter, β_inter):
        """Seconds, one level after the other: α in seconds and β in seconds per byte of each kind of link."""
        return self.intra.seconds(α_intra, β_intra) + self.inter.seconds(α_inter, β_inter)

    def seconds_at_once(self, α_intra, β_intra, α_inter, β_inter):
        """Seconds if both kinds of links carry their bytes at once: all latencies, the longer transfer."""
        waits = self.intra.rounds * α_intra + self.inter.rounds * α_inter
        return waits + max(self.intra.nbytes * β_intra, self.inter.nbytes * β_inter)


def _checked(nbytes, ranks_per_node, nodes):
    quantity("nbytes", nbytes), whole("ranks_per_node", ranks_per_node), whole("nodes", nodes)


def hierarchical_all_reduce(nbytes, ranks_per_node, nodes):
    """`Levels` of an all-reduce: reduce-scatter inside, all-reduce of n/g between nodes, all-gather inside.

    Inside 2(g−1) rounds and 2(g−1)/g·n bytes, between 2(N−1) rounds and 2(N−1)/N·n/g. The sum of bytes is the
    flat ring's 2(p−1)/p·n; what changes is that the slow links see a g-th of the message, and N−1 latencies,
    not p−1.
    """
    _checked(nbytes, ranks_per_node, nodes)
    inside = ring_reduce_scatter(nbytes, ranks_per_node).then(ring_all_gather(nbytes, ranks_per_node))
    return Levels(inside, ring_all_reduce(nbytes / ranks_per_node, nodes))


def hierarchical_reduce_scatter(nbytes, ranks_per_node, nodes):
    """`Levels` of a reduce-scatter of `nbytes`: inside (g−1)/g·n bytes, then between nodes (N−1)/N·n/g."""
    _checked(nbytes, ranks_per_node, nodes)
    return Levels(
        ring_reduce_scatter(nbytes, ranks_per_node), ring_reduce_scatter(nbytes / ranks_per_node, nodes)
    )


def hierarchical_all_gather(nbytes, ranks_per_node, nodes):
    """`Levels` of an all-gather that ends with `nbytes`: between nodes (N−1)/N·n/g, then inside (g−1)/g·n."""
    _checked(nbytes, ranks_per_node, nodes)
    return Levels(ring_all_gather(nbytes, ranks_per_node), ring_all_gather(nbytes / ranks_per_node, nodes))


def hierarchical_all_to_all(nbytes, ranks_per_node, nodes):
    """`Levels` of an all-to-all: inside g−1 rounds, (g−1)/g·n bytes, then between N−1 rounds, (N−1)/N·n.

    First each rank hands a neighbour all that goes to ranks of the neighbour's place, then places exchange.
    The slow links carry what they carry in a flat all-to-all, in N−1 messages a rank and not (N−1)g.
    """
    _checked(nbytes, ranks_per_node, nodes)
    return Levels(ring_all_gather(nbytes, ranks_per_node), ring_all_gather(nbytes, nodes))


def flat_rings(nbytes, ranks_per_node, nodes, rings=1):
    """`Levels` of an all-reduce over `rings` flat rings at once, node after node, through a card each.

    Each ring has a part of the message, as NCCL's channels have. Of the 2(p−1) hops that a chunk makes, one
    after another, 2(N−1) are between nodes (NCCL 2.30.7, src/graph/tuning.cc). The bytes are those of the
    busiest rank: it sends 2(p−1)/p·n, and what leaves the node through its card not inside. The two kinds of
    links are busy at once: `seconds_at_once`.
    """
    _checked(nbytes, ranks_per_node, nodes)
    whole("rings", rings, 1, ranks_per_node)
    flat = ring_all_reduce(nbytes, ranks_per_node * nodes)
    if nodes == 1:
        return Levels(flat, Cost(0, 0.0))
    across, leaving = 2 * (nodes - 1), flat.nbytes / rings
    inside = flat.nbytes - (leaving if rings == ranks_per_node else 0)
    return Levels(Cost(flat.rounds - across, inside), Cost(across, leaving))


def flat_ring_node_bytes(nbytes, ranks_per_node, nodes):
    """Bytes that leave each node in a flat ring over all ranks, node after node: 2(p−1)/p·n, on one link.

    In the hierarchical one 2(N−1)/N·n leave it, spread over the links of g ranks.
    """
    _checked(nbytes, ranks_per_node, nodes)
    return ring_all_reduce(nbytes, ranks_per_node * nodes).nbytes if nodes > 1 else 0.0
