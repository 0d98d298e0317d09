"""Which links does a network have? The same networks as in `networks`, link by link, to draw and to count on.

The model: a graph is a dict from a node to the list of its neighbours, as often as there are links between
the two. A node is a tuple: its kind ("host", "edge", "aggregation", "core", "leaf", "spine", "router",
"nvlink") and where it is.
"""

from ..inputs import multiple, whole


def _graph(links):
    graph = {}
    for one, other in links:
        graph.setdefault(one, []).append(other)
        graph.setdefault(other, []).append(one)
    return graph


def fat_tree_graph(ports, oversubscription=1):
    """The links of `networks.fat_tree`; hosts are ("host", pod, edge, number).

    Aggregation switch i of every pod is joined with the core switches ("core", i, 0), ("core", i, 1), …
    """
    whole("ports", ports, 4), multiple("ports", ports, "two", 2)
    half = ports // 2
    multiple("ports / 2", half, "oversubscription", whole("oversubscription", oversubscription))
    links = []
    for pod in range(ports):
        for i in range(half):
            links += [(("edge", pod, i), ("host", pod, i, host)) for host in range(half)]
            links += [(("aggregation", pod, i), ("edge", pod, j)) for j in range(half)]
            links += [(("core", i, j), ("aggregation", pod, i)) for j in range(half // oversubscription)]
    return _graph(links)


def rail_graph(nodes, ranks_per_node, units=1):
    """The links of `networks.rail`; hosts are ("host", unit, node, number).

    Every spine has `nodes`/g links to each leaf.
    """
    whole("nodes", nodes), whole("ranks_per_node", ranks_per_node)
    if whole("units", units) > 1:
        multiple("nodes", nodes, "ranks_per_node", ranks_per_node)
    links = []
    for unit in range(units):
        for node in range(nodes):
            for r in range(ranks_per_node):
                links.append((("nvlink", unit, node), ("host", unit, node, r)))
                links.append((("leaf", unit, r), ("host", unit, node, r)))
                if units > 1:
                    links.append((("spine", (node + r) % ranks_per_node), ("leaf", unit, r)))
    return _graph(links)


def dragonfly_graph(routers, hosts_per_router, global_links):
    """The links of `networks.dragonfly`; hosts are ("host", group, router, number).

    The k-th global link of a group, counted over its routers, leads to the k-th of the other groups.
    """
    a, p, h = (
        whole("routers", routers, 2),
        whole("hosts_per_router", hosts_per_router),
        whole("global_links", global_links),
    )
    groups = a * h + 1
    links = []
    for group in range(groups):
        for router in range(a):
            here = ("router", group, router)
            links += [(here, ("host", group, router, host)) for host in range(p)]
            links += [(here, ("router", group, other)) for other in range(router)]
        for other in range(group):
            links.append((("router", group, other // h), ("router", other, (group - 1) // h)))
    return _graph(links)


def torus_graph(*sides):
    """The links of `networks.torus`; hosts are ("host", x, y, …)."""
    if not sides:
        raise ValueError("sides must hold at least one whole number, not none")
    hosts = 1
    for side in sides:
        hosts *= whole("side", side)
    links = []
    for number in range(hosts):
        place = ["host"]
        for side in sides:
            place.append(number % side)
            number //= side
        for i, side in enumerate(sides, 1):
            if side > 2 or place[i] < side - 1:
                ahead = list(place)
                ahead[i] = (place[i] + 1) % side
                links.append((tuple(place), tuple(ahead)))
    return _graph(links) if links else {tuple(place): []}


def distances(graph, source):
    """Hops from `source` to every node that can be reached, a dict: breadth-first search."""
    hops = {source: 0}
    waiting = [source]
    for node in waiting:
        for neighbour in graph[node]:
            if neighbour not in hops:
                hops[neighbour] = hops[node] + 1
                waiting.append(neighbour)
    return hops


def cut(graph, one_half):
    """Fewest links whose removal parts the hosts `one_half` from all others: a maximal flow between them."""
    room = {}
    for node, neighbours in graph.items():
        for neighbour in neighbours:
            room[node, neighbour] = room.get((node, neighbour), 0) + 1
    starts = [node for node in graph if node in one_half]
    ends = {node for node in graph if node[0] == "host" and node not in one_half}
    flow = 0
    while True:
        back = {node: None for node in starts}
        waiting, reached = list(starts), None
        for node in waiting:
            if node in ends:
                reached = node
                break
            for neighbour in graph[node]:
                if neighbour not in back and room[node, neighbour]:
                    back[neighbour] = node
                    waiting.append(neighbour)
        if reached is None:
            return flow
        flow += 1
        while back[reached] is not None:
            room[back[reached], reached] -= 1
            room[reached, back[reached]] += 1
            reached = back[reached]
