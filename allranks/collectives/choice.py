"""Which algorithm is best where? All of them by name, their times compared, and the bounds for any.

Sizes are nccl-tests': the message of an all-reduce, broadcast or reduce, and all that a reduce-scatter,
scatter or all-to-all begins with, and an all-gather or gather ends with.
"""

import math
from collections import OrderedDict

from ..inputs import one_of, quantity, whole
from . import doubling, exchange, ring, tree
from .rounds import Cost, checked, log2_up, send, send_sent

TABLE = (  # collective, algorithm, its cost, the bytes each rank sends
    ("all_reduce", "ring", ring.ring_all_reduce, ring.ring_all_reduce_sent),
    ("all_reduce", "binomial_tree", tree.binomial_all_reduce, tree.binomial_all_reduce_sent),
    ("all_reduce", "binary_tree", tree.binary_all_reduce, tree.binary_all_reduce_sent),
    ("all_reduce", "double_tree", tree.double_tree_all_reduce, tree.double_tree_all_reduce_sent),
    (
        "all_reduce",
        "recursive_doubling",
        doubling.recursive_doubling_all_reduce,
        doubling.recursive_doubling_all_reduce_sent,
    ),
    (
        "all_reduce",
        "halving_doubling",
        doubling.halving_doubling_all_reduce,
        doubling.halving_doubling_all_reduce_sent,
    ),
    ("all_reduce", "central", exchange.central_all_reduce, exchange.central_all_reduce_sent),
    ("reduce_scatter", "ring", ring.ring_reduce_scatter, ring.ring_reduce_scatter_sent),
    (
        "reduce_scatter",
        "recursive_halving",
        doubling.recursive_halving_reduce_scatter,
        doubling.recursive_halving_reduce_scatter_sent,
    ),
    ("reduce_scatter", "pairwise", exchange.pairwise, exchange.pairwise_sent),
    ("all_gather", "ring", ring.ring_all_gather, ring.ring_all_gather_sent),
    (
        "all_gather",
        "recursive_doubling",
        doubling.recursive_doubling_all_gather,
        doubling.recursive_doubling_all_gather_sent,
    ),
    ("all_gather", "bruck", doubling.bruck_all_gather, doubling.bruck_all_gather_sent),
    ("broadcast", "binomial_tree", tree.binomial_broadcast, tree.binomial_broadcast_sent),
    ("broadcast", "binary_tree", tree.binary_tree, tree.binary_broadcast_sent),
    ("broadcast", "double_tree", tree.double_tree_broadcast, tree.double_tree_broadcast_sent),
    ("broadcast", "pipelined_ring", ring.pipelined_ring, ring.pipelined_ring_broadcast_sent),
    (
        "broadcast",
        "scatter_all_gather",
        tree.scatter_all_gather_broadcast,
        tree.scatter_all_gather_broadcast_sent,
    ),
    ("broadcast", "linear", exchange.linear_broadcast, exchange.linear_broadcast_sent),
    ("reduce", "binomial_tree", tree.binomial_broadcast, tree.binomial_reduce_sent),
    ("reduce", "binary_tree", tree.binary_tree, tree.binomial_reduce_sent),
    ("reduce", "pipelined_ring", ring.pipelined_ring, tree.binomial_reduce_sent),
    ("reduce", "ring_gather", ring.ring_gather_reduce, ring.ring_gather_reduce_sent),
    ("reduce", "halving_gather", doubling.halving_gather_reduce, doubling.halving_gather_reduce_sent),
    ("reduce", "linear", exchange.linear_broadcast, tree.binomial_reduce_sent),
    ("gather", "binomial_tree", tree.binomial_scatter, tree.binomial_gather_sent),
    ("gather", "linear", exchange.linear_scatter, exchange.linear_gather_sent),
    ("scatter", "binomial_tree", tree.binomial_scatter, tree.binomial_scatter_sent),
    ("scatter", "linear", exchange.linear_scatter, exchange.linear_scatter_sent),
    ("all_to_all", "pairwise", exchange.pairwise, exchange.pairwise_sent),
    ("all_to_all", "bruck", exchange.bruck_all_to_all, exchange.bruck_all_to_all_sent),
    ("send", "direct", send, send_sent),
)
ALGORITHMS = OrderedDict()  # collective: algorithm: (cost, sent); MicroPython's dict has no order
for collective, algorithm, its_cost, its_sent in TABLE:
    ALGORITHMS.setdefault(collective, OrderedDict())[algorithm] = (its_cost, its_sent)
BUSES = tuple(ALGORITHMS) + ("in_network_all_reduce",)
PIPELINED = ("binary_tree", "double_tree", "pipelined_ring")
POWERS_OF_TWO = (
    ("reduce_scatter", "recursive_halving"),
    ("all_gather", "recursive_doubling"),
    ("reduce", "halving_gather"),
)


def algorithms(collective, world_size):
    """The names of the algorithms of a collective that exist for `world_size` ranks."""
    one_of("collective", collective, ALGORITHMS), whole("world_size", world_size)
    return [name for name in ALGORITHMS[collective] if _exists(collective, name, world_size)]


def _exists(collective, algorithm, world_size):
    return (collective, algorithm) not in POWERS_OF_TWO or world_size & (world_size - 1) == 0


def _functions(collective, algorithm):
    one_of("collective", collective, ALGORITHMS)
    return ALGORITHMS[collective][one_of("algorithm", algorithm, ALGORITHMS[collective])]


def cost(collective, algorithm, nbytes, world_size, pieces=1):
    """`Cost` (rounds and bytes on the longest path) of a collective of `nbytes` by an algorithm, at any size.

    pieces: into how many the message is cut by the algorithms that are `PIPELINED` (by a double tree, each
    half).
    """
    function = _functions(collective, algorithm)[0]
    whole("pieces", pieces)
    if algorithm in PIPELINED:
        return function(nbytes, world_size, pieces)
    if pieces != 1:
        raise ValueError(f"pieces must be 1 with {algorithm}, which is not pipelined, not {pieces}")
    return function(nbytes, world_size)


def sent(collective, algorithm, nbytes, world_size):
    """Bytes that each rank sends, as a list: exact for whole `nbytes`, also where p does not divide them.

    Roots are rank 0. `max` of the list is the busiest rank, `sum` the traffic; `rooted_bytes` and
    `ring_…_bytes` are its mean.
    """
    whole("nbytes", nbytes, 0), whole("world_size", world_size)
    return _functions(collective, algorithm)[1](nbytes, world_size)


def best_pieces(collective, algorithm, nbytes, world_size, α, β):
    """Into how many pieces to cut: a pipeline of a+bk rounds of m/k bytes is shortest at k = √(aβm/(bα)).

    Few pieces leave ranks waiting, many pay latency (Sanders, Speck & Träff 2009). 1 where nothing is
    pipelined.
    """
    checked(nbytes, world_size), quantity("α", α), quantity("β", β)
    if algorithm not in PIPELINED or world_size == 1 or nbytes < 2:
        return 1
    most = int(nbytes)
    one, two = (cost(collective, algorithm, nbytes, world_size, k) for k in (1, 2))
    growth = two.rounds - one.rounds
    first = one.rounds - growth
    if first <= 0:
        return 1
    if α == 0:
        return most
    at = math.sqrt(first * β * one.nbytes / one.rounds / (growth * α))
    low = min(max(int(at), 1), most)
    return min(
        (low, min(low + 1, most)),
        key=lambda k: cost(collective, algorithm, nbytes, world_size, k).seconds(α, β),
    )


def seconds(collective, algorithm, nbytes, world_size, α, β):
    """Seconds of a collective under the α–β model, pipelined with the best number of pieces.

    α in seconds, β in seconds per byte.
    """
    pieces = best_pieces(collective, algorithm, nbytes, world_size, α, β)
    return cost(collective, algorithm, nbytes, world_size, pieces).seconds(α, β)


def best(collective, nbytes, world_size, α, β):
    """(name, seconds) of the fastest algorithm of a collective; the first named wins a tie."""
    names = algorithms(collective, world_size)
    times = [(name, seconds(collective, name, nbytes, world_size, α, β)) for name in names]
    return min(times, key=lambda pair: pair[1])


def by_protocol(collective, algorithm, nbytes, world_size, links):
    """(name, seconds) of the fastest protocol for a collective by an algorithm; the first named wins a tie.

    links: records with name, α and β, one for each protocol, as from `hardware.protocols`.
    """
    times = [
        (each.name, seconds(collective, algorithm, nbytes, world_size, each.α, each.β)) for each in links
    ]
    return min(times, key=lambda pair: pair[1])


def crossover_by_protocol(collective, one, other, world_size, links):
    """Message size in bytes at which two algorithms take the same time, each with its fastest protocol.

    None where one is as fast for a terabyte as for a byte. The sizes are halved on a logarithmic scale.
    """

    def ahead(nbytes):
        mine, its = (by_protocol(collective, name, nbytes, world_size, links)[1] for name in (one, other))
        return mine <= its

    low, high = 1.0, 1e12
    first = ahead(low)
    if ahead(high) == first:
        return None
    for _ in range(100):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if ahead(middle) == first else (low, middle)
    return low


def crossover(collective, one, other, world_size, α, β):
    """Message size in bytes at which two algorithms take the same time; None where one is never slower.

    Costs r·α + c·nβ and r'·α + c'·nβ are equal at n = (α/β)(r − r')/(c' − c). Ring and recursive doubling of
    an all-reduce, p a power of two: n = (α/β)(2(p−1) − log2 p)/(log2 p − 2(p−1)/p).
    """
    for name in (one, other):
        if name in PIPELINED:
            raise ValueError(f"{name} has no closed form: the best number of pieces depends on the size")
    quantity("α", α), quantity("β", β, positive=True)
    a, b = cost(collective, one, 1, world_size), cost(collective, other, 1, world_size)
    rounds, nbytes = a.rounds - b.rounds, b.nbytes - a.nbytes
    return α / β * rounds / nbytes if rounds * nbytes > 0 else None


def lower_bound(collective, nbytes, world_size):
    """`Cost` below which no algorithm can be, in rounds and, separately, in bytes (Chan et al. 2007).

    ⌈log2 p⌉ rounds: what one rank has reaches at most twice as many ranks each round. Bytes: n out of, or
    into, the root; (p−1)/p·n where each rank lacks all but a p-th; 2(p−1)/p·n for an all-reduce (Patarasuk &
    Yuan 2009).
    """
    one_of("collective", collective, ALGORITHMS), checked(nbytes, world_size)
    if world_size == 1:
        return Cost(0, 0)
    if collective == "send":
        return Cost(1, nbytes)
    most = (world_size - 1) * nbytes / world_size
    needed = {"all_reduce": 2 * most, "broadcast": nbytes, "reduce": nbytes}.get(collective, most)
    return Cost(log2_up(world_size), needed)


def bus_bandwidth_factor(collective, world_size):
    """Bus bandwidth divided by algorithm bandwidth, as nccl-tests defines it (doc/PERFORMANCE.md).

    all_reduce 2(n−1)/n; reduce_scatter, all_gather, all_to_all, gather, scatter (n−1)/n; broadcast, reduce,
    send 1; in_network_all_reduce, where switches sum, (n−1)/(n+1).
    """
    one_of("collective", collective, BUSES), whole("world_size", world_size)
    n = world_size
    if collective in ("broadcast", "reduce", "send"):
        return 1.0
    if collective == "in_network_all_reduce":
        return (n - 1) / (n + 1)
    return (2 if collective == "all_reduce" else 1) * (n - 1) / n


def bus_bandwidth(collective, nbytes, world_size, seconds):
    """Bytes per second to compare with the hardware's peak: n/t times the factor, t measured (nccl-tests)."""
    quantity("nbytes", nbytes), quantity("seconds", seconds, positive=True)
    return bus_bandwidth_factor(collective, world_size) * nbytes / seconds
