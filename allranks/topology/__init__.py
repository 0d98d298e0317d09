"""How are the ranks connected, and what does it cost to place an axis of the mesh on which link?

`networks` counts hops and cuts of fat tree, rail-optimised network, dragonfly and torus in closed form;
`graphs` builds the same networks link by link; `placement` lays a mesh of ranks on nodes, racks and pods
and prices its traffic.
"""

from .graphs import cut, distances, dragonfly_graph, fat_tree_graph, rail_graph, torus_graph
from .networks import Network, dragonfly, fat_tree, fat_tree_switches, rail, torus
from .placement import Axis, Level, coordinates, groups, layout_seconds, place, ring_bandwidth, spans
from .volumes import Traffic, traffic

__all__ = [
    "Axis",
    "Level",
    "Network",
    "Traffic",
    "coordinates",
    "cut",
    "distances",
    "dragonfly",
    "dragonfly_graph",
    "fat_tree",
    "fat_tree_graph",
    "fat_tree_switches",
    "groups",
    "layout_seconds",
    "place",
    "rail",
    "rail_graph",
    "ring_bandwidth",
    "spans",
    "torus",
    "torus_graph",
    "traffic",
]
