"""What does a collective cost on nodes with fast links inside and slow ones between? Bytes on each kind.

p = g·N ranks: N nodes of g ranks. Inside a node a ring; between nodes g rings at once, each of the N ranks
that have the same place in their node. With one node, or one rank a node, this is the flat ring.
"""

from collections import namedtuple

from ..inputs import quantity, whole
from .ring import ring_all_gather, ring_all_reduce, ring_reduce_scatter


class Levels(namedtuple("Levels", "intra inter")):
    """The `Cost` inside a node and between nodes; `nbytes` of each is also what every rank sends there."""

    __slots__ = ()

    def seconds(self, α_intra, β_intra, α_inter, β_inter):
        """Seconds, one level after the other: α in seconds and β in seconds per byte of each kind of link."""
        return self.intra.seconds(α_intra, β_intra) + self.inter.seconds(α_inter, β_inter)


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


def flat_ring_node_bytes(nbytes, ranks_per_node, nodes):
    """Bytes that leave each node in a flat ring over all ranks, node after node: 2(p−1)/p·n, on one link.

    In the hierarchical one 2(N−1)/N·n leave it, spread over the links of g ranks.
    """
    _checked(nbytes, ranks_per_node, nodes)
    return ring_all_reduce(nbytes, ranks_per_node * nodes).nbytes if nodes > 1 else 0.0
