"""Who is wired to whom? Networks as links and nodes."""

import itertools
import math

import matplotlib.pyplot as plt
from matplotlib.colors import ListedColormap

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


def who_sends_to_whom(sent, node, labels):
    """Draw a square for each pair of ranks that talk; `sent` maps (source, destination) to kilobytes.

    Lines separate nodes of `node` ranks; `labels` maps a pair to the name of the axis along which they talk.
    """
    ranks = 1 + max(max(pair) for pair in sent)
    axes = plt.subplots(figsize=(4.6, 4.2))[1]
    names = list(dict.fromkeys(labels.values()))
    for (source, destination), kilobytes in sent.items():
        name, corner = labels[source, destination], (destination - 0.5, source - 0.5)
        axes.add_patch(plt.Rectangle(corner, 1, 1, facecolor=f"C{names.index(name)}", alpha=0.3))
        axes.text(destination, source, f"{name}\n{kilobytes:.0f}", ha="center", va="center", fontsize=8)
    for edge in range(node, ranks, node):
        axes.axhline(edge - 0.5, color="gray")
        axes.axvline(edge - 0.5, color="gray")
    axes.set(xlim=(-0.5, ranks - 0.5), ylim=(ranks - 0.5, -0.5), xlabel="to rank", ylabel="from rank")
    axes.set(xticks=range(ranks), yticks=range(ranks), aspect="equal")
    plt.tight_layout()
    plt.show()


def blocks(rows):
    """Draw matrices in blocks; `rows` maps a label to {name: {(row, column) of a block: who holds it}}."""
    columns = max(len(matrices) for matrices in rows.values())
    figure, axes = plt.subplots(len(rows), columns, figsize=(6, 1.25 * len(rows)), squeeze=False)
    for line, (label, matrices) in zip(axes, rows.items(), strict=True):
        for place, (name, held) in zip(line, matrices.items(), strict=False):
            high, wide = (1 + max(index) for index in zip(*held, strict=True))
            for (row, column), who in held.items():
                corner, colour = (column / wide, row / high), f"C{(row * wide + column) % 10}"
                box = plt.Rectangle(
                    corner, 1 / wide, 1 / high, facecolor=colour, alpha=0.25, edgecolor="gray"
                )
                place.add_patch(box)
                middle = ((column + 0.5) / wide, (row + 0.5) / high)
                place.text(*middle, who, ha="center", va="center", fontsize=8)
            place.set(xlim=(0, 1), ylim=(1, 0), xticks=[], yticks=[])
            place.set_ylabel(name, rotation=0, ha="right", va="center")
            place.spines[:].set_visible(False)
        line[0].set_title(label, fontsize=8, loc="left")
    figure.tight_layout()
    plt.show()


def rank_groups(rows):
    """Draw ranks in the colours of their groups; `rows` maps a label to groups, tuples of ranks."""
    size = max(len(sum(map(tuple, groups), ())) for groups in rows.values())
    figure, axes = plt.subplots(len(rows), 1, figsize=(min(6, 0.75 * size), 0.85 * len(rows)), squeeze=False)
    for axis, (label, groups) in zip(axes[:, 0], rows.items(), strict=True):
        for number, group in enumerate(groups):
            for rank in group:
                style = {"facecolor": f"C{number % 10}", "alpha": 0.3, "edgecolor": "gray"}
                axis.add_patch(plt.Rectangle((rank + 0.05, 0), 0.9, 1, hatch="/.x+"[number % 4], **style))
                axis.text(rank + 0.5, 0.5, f"{rank}", ha="center", va="center", fontsize=9)
        axis.set(xlim=(0, size), ylim=(-0.1, 1.1), xticks=[], yticks=[])
        axis.set_title(label, fontsize=9, loc="left")
        axis.spines[:].set_visible(False)
    figure.tight_layout()
    plt.show()


def cuts(panels):
    """Draw who holds what; `panels` maps a label to (tokens, weights).

    `tokens` lists the rank, or "all", that meets each part of them; `weights` has such a list for each layer.
    """
    lines = -(-len(panels) // 3)
    figure, axes = plt.subplots(lines, 3, figsize=(6, 1.4 * lines), squeeze=False)
    for place in axes.flat[len(panels) :]:
        place.remove()
    for place, (label, (tokens, weights)) in zip(axes.flat, panels.items(), strict=False):
        for left, table in ((0, [[who] for who in tokens]), (1.6, weights)):
            rows = 1 if all(line == table[0] for line in table) else len(table)
            columns = 1 if all(len(set(line)) == 1 for line in table) else len(table[0])
            high, wide = len(table) / rows, len(table[0]) / columns  # equal neighbours are one box
            for row, column in itertools.product(range(rows), range(columns)):
                who, corner = table[row][column], (left + column * wide, row * high)
                colour = "gray" if who == "all" else f"C{who}"
                style = {"facecolor": colour, "alpha": 0.3, "antialiased": False}
                place.add_patch(plt.Rectangle(corner, wide, high, **style))
                middle = corner[0] + wide / 2, corner[1] + high / 2
                place.text(*middle, who, ha="center", va="center", fontsize=8)
        place.set(
            xlim=(-0.1, 1.7 + len(weights[0])), ylim=(max(len(tokens), len(weights)) + 0.1, -0.1), yticks=[]
        )
        place.set_xticks([0.5, 1.6 + len(weights[0]) / 2], ["tokens", "weights"], fontsize=8)
        place.set_title(label, fontsize=9, loc="left")
        place.spines[:].set_visible(False)
        place.tick_params(length=0)
    figure.tight_layout()
    plt.show()


def owned(panels, of="rank"):
    """Draw whose each pair is; `panels` maps a label to a matrix of numbers (`of` what), nan for nobody's."""
    figure, axes = plt.subplots(1, len(panels), figsize=(2.1 * len(panels), 2.4), squeeze=False)
    ranks = sorted(
        {int(rank) for matrix in panels.values() for row in matrix for rank in row if rank == rank}
    )
    steps = [
        0.9 * place / max(1, len(ranks) - 1) for place in range(len(ranks))
    ]  # viridis without its yellow
    colours = ListedColormap([plt.get_cmap("viridis")(step) for step in steps])
    for place, (label, matrix) in zip(axes[0], panels.items(), strict=True):
        place.imshow(matrix, cmap=colours, vmin=ranks[0] - 0.5, vmax=ranks[-1] + 0.5, interpolation="nearest")
        place.set(xticks=[], yticks=[], xlabel="keys", ylabel="queries")
        place.set_title(label, fontsize=9)
    patches = [plt.Rectangle((0, 0), 1, 1, facecolor=colour) for colour in colours.colors]
    names = [f"{of} {rank}" for rank in ranks]
    figure.legend(patches, names, loc="lower center", ncols=len(ranks), frameon=False, fontsize=9)
    figure.tight_layout(rect=(0, 0.1, 1, 1))
    plt.show()
