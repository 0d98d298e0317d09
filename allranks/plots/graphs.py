"""Who is wired to whom? Networks as links and nodes."""

import math

import matplotlib.pyplot as plt

HEIGHTS = {"nvlink": -1, "host": 0, "edge": 1, "leaf": 1, "aggregation": 2, "core": 3, "spine": 3}


def networks(graphs):
    """Draw networks, two in a row; `graphs` maps a label to a graph as `allranks.topology` builds it."""
    lines = -(-len(graphs) // 2)
    figure, axes = plt.subplots(lines, 2, figsize=(6, 2.5 * lines), squeeze=False)
    for ax, (label, graph) in zip(axes.flat, graphs.items()):
        place = _places(graph)
        for one, others in graph.items():
            for other in others:
                if one < other:
                    ax.plot(
                        *zip(place[one], place[other]), color="darkgray", lw=1, antialiased=False, zorder=1
                    )
        for host, marker in ((True, "o"), (False, "s")):
            nodes = [place[node] for node in graph if (node[0] == "host") == host]
            ax.scatter(*zip(*nodes) if nodes else ([], []), s=16 if host else 30, marker=marker, zorder=2)
        ax.set(xticks=[], yticks=[], xlabel=label)
        ax.spines[:].set_visible(False)
    figure.tight_layout()
    plt.show()


def _places(graph):
    """Where to draw the nodes of a graph: a torus on a grid, a dragonfly in a circle, others in layers."""
    kinds = {node[0] for node in graph}
    if kinds == {"host"}:  # bent, so that the links around do not hide the others
        x0, y0 = (max(place) / 2 for place in zip(*(node[1:] for node in graph)))
        return {
            node: (node[1] + 0.2 * (node[2] - y0) ** 2, node[2] + 0.2 * (node[1] - x0) ** 2) for node in graph
        }
    if "router" in kinds:
        routers = sorted(node for node in graph if node[0] == "router")
        angle = {node: 2 * math.pi * i / len(routers) for i, node in enumerate(routers)}
        angle |= {n: angle["router", n[1], n[2]] + 0.1 * (n[3] - 0.5) for n in graph if n[0] == "host"}
        reach = {"router": 1, "host": 1.2}
        return {n: (reach[n[0]] * math.cos(a), reach[n[0]] * math.sin(a)) for n, a in angle.items()}
    places = {}
    for kind in kinds:
        nodes = sorted(node for node in graph if node[0] == kind)
        places |= {node: ((i + 0.5) / len(nodes), HEIGHTS[kind]) for i, node in enumerate(nodes)}
    return places
