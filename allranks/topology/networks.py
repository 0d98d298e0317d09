"""How far apart are two hosts of a network, and how many links join its halves?

The model: hosts (a GPU with its network card; in a torus, a chip that is its own switch) and switches,
joined by links that all carry the same in both directions. A hop is a link of the route from host to host,
the links at the two hosts included.
"""

from collections import namedtuple

from ..inputs import multiple, quantity, whole


class Network(namedtuple("Network", "name hosts switches links diameter mean_hops bisection")):
    """A network: its name, what it is built of, and how well it connects.

    hosts, switches, links: how many. diameter: hops of the longest route; mean_hops: of all routes between
    two different hosts. bisection: links between its two halves, None where it has no two equal halves.
    """

    __slots__ = ()

    def bisection_bandwidth(self, bandwidth):
        """Bytes/s that one half sends to the other at most, over links of `bandwidth` bytes/s each way."""
        quantity("bandwidth", bandwidth)
        return None if self.bisection is None else self.bisection * bandwidth

    @property
    def oversubscription(self):
        """Hosts of one half for each link to the other half.

        At 1 (full bisection) every host of a half can send to the other half at the speed of its link at
        once; at 7 it gets a seventh of it.
        """
        return None if self.bisection is None else self.hosts / 2 / self.bisection


def _mean(hosts_at, hosts):
    """Mean hops from a host to the others, of which `hosts_at` has (hops, how many)."""
    return sum(hops * count for hops, count in hosts_at) / (hosts - 1) if hosts > 1 else 0.0


def fat_tree(ports, oversubscription=1):
    """The fat tree of k-port switches, k = `ports`: k pods, k³/4 hosts (Al-Fares et al. 2008, section 2.2).

    A pod has k/2 edge switches with k/2 hosts each, and k/2 aggregation switches, each joined with all edge
    switches of its pod; (k/2)² core switches are joined with one aggregation switch of each pod. The tree
    is fat (Leiserson 1985): towards its root it keeps as many links as there are hosts. `oversubscription`:
    hosts of a pod for each of its links to the core, a divisor of k/2; there are as many times fewer core
    switches.

    >>> fat_tree(48).hosts
    27648
    """
    whole("ports", ports, 4), multiple("ports", ports, "two", 2)
    half = ports // 2
    multiple("ports / 2", half, "oversubscription", whole("oversubscription", oversubscription))
    hosts, core = ports * half * half, half * half // oversubscription
    same_edge, same_pod = half - 1, half * (half - 1)
    other_pod = hosts - half * half
    return Network(
        name="fat tree",
        hosts=hosts,
        switches=ports * ports + core,
        links=2 * hosts + core * ports,
        diameter=6,
        mean_hops=_mean([(2, same_edge), (4, same_pod), (6, other_pod)], hosts),
        bisection=core * half,
    )


def fat_tree_switches(hosts, ports):
    """Switches by level, (leaf, spine) or (leaf, spine, core), of a fat tree for `hosts` hosts, N.

    The tree has full bisection. Two levels of k-port switches reach k²/2 hosts, three k³/4. Half the ports
    of a leaf face hosts, all ports of the last level face down: ⌈2N/k⌉ leaves, then as many spines and
    ⌈N/k⌉ cores, or ⌈N/k⌉ spines alone.
    """
    whole("ports", ports, 4), multiple("ports", ports, "two", 2)
    whole("hosts", hosts, 1, ports**3 // 4)
    leaves, last = -(-2 * hosts // ports), -(-hosts // ports)
    return (leaves, last) if 2 * hosts <= ports * ports else (leaves, leaves, last)


def rail(nodes, ranks_per_node, units=1):
    """The rail-optimised network: `units` units of `nodes` nodes with g = `ranks_per_node` GPUs each.

    Rail r of a unit is a leaf switch that joins GPU r of each of the unit's nodes; in its node a GPU also
    reaches the others through a switch (NVLink). With more than one unit, g spines join all leaves: a leaf
    has as many links up as down, so `nodes` is a multiple of g. Two hops join GPUs of one node or one rail
    of a unit, four all others: over a spine, or over the GPU of the own node that is on the right rail
    (NVIDIA's PXN).
    """
    whole("nodes", nodes), whole("ranks_per_node", ranks_per_node)
    if whole("units", units) > 1:
        multiple("nodes", nodes, "ranks_per_node", ranks_per_node)
    hosts = nodes * ranks_per_node * units
    near = ranks_per_node - 1 + nodes - 1
    spines = ranks_per_node if units > 1 else 0
    far = hosts - 1 - near
    return Network(
        name="rail-optimised",
        hosts=hosts,
        switches=units * nodes + units * ranks_per_node + spines,
        links=2 * hosts + (hosts if units > 1 else 0),
        diameter=4 if far else 2 if near else 0,
        mean_hops=_mean([(2, near), (4, far)], hosts),
        bisection=None if nodes * units % 2 else hosts // 2,
    )


def dragonfly(routers, hosts_per_router, global_links):
    """The largest dragonfly of a = `routers` routers a group (Kim, Dally, Scott & Abts 2008, section 3).

    Each router has p = `hosts_per_router` hosts and h = `global_links` links to other groups. Every router
    is joined with all others of its group, and every group with every other by one global link: g = ah + 1
    groups, N = ap(ah + 1) hosts, routers with p + a + h - 1 ports. Balanced for uniform traffic at a = 2p =
    2h. Hops of minimal routes, which take at most one global link: l, g, l between the routers. The halves
    are ah/2 groups each and half of the last group; `routers` has to be even.
    """
    a = multiple("routers", whole("routers", routers, 2), "two", 2)
    p, h = whole("hosts_per_router", hosts_per_router), whole("global_links", global_links)
    groups = a * h + 1
    hosts = a * p * groups
    same_router, same_group = (2, p - 1), (3, (a - 1) * p)
    other = p * (groups - 1) / a  # hosts of other groups, by pairs of routers of the two groups
    return Network(
        name="dragonfly",
        hosts=hosts,
        switches=a * groups,
        links=hosts + groups * a * (a - 1) // 2 + groups * (groups - 1) // 2,
        diameter=5,
        mean_hops=_mean(
            [same_router, same_group, (3, other), (4, 2 * (a - 1) * other), (5, (a - 1) ** 2 * other)], hosts
        ),
        bisection=min((a * h // 2) ** 2 + (a // 2) ** 2, hosts // 2),
    )


def torus(*sides):
    """The torus of these `sides` (2-D or 3-D as in TPU pods, or any): a ring along each dimension.

    N = ∏ s chips, each its own switch; ⌊s/2⌋ hops at most along a side and s/4 on average (over all pairs,
    s even; (s² - 1)/(4s) for odd s). A plane across the longest side cuts 2N/s links, because each ring is
    cut twice (Dally & Towles 2004, chapter 5); a side of two has one link between its two chips, not two.
    """
    if not sides:
        raise ValueError("sides must hold at least one whole number, not none")
    hosts = 1
    for side in sides:
        hosts *= whole("side", side)
    mean = sum(side * side // 4 / side for side in sides)
    longest = max(sides)
    bisection = None if longest % 2 else hosts // longest * (1 if longest == 2 else 2)
    return Network(
        name="torus",
        hosts=hosts,
        switches=0,
        links=sum(hosts if side > 2 else hosts * (side - 1) // 2 for side in sides),
        diameter=sum(side // 2 for side in sides),
        mean_hops=mean * hosts / (hosts - 1) if hosts > 1 else 0.0,
        bisection=bisection,
    )
