"""How is what was computed or measured shown? These functions draw; they compute nothing."""

import itertools
import math

import matplotlib.pyplot as plt
import plotly.graph_objects as go

from allranks.collectives import message_seconds

PHASES = {
    "forward": "",
    "backward": "/",
    "communicate": "x",
    "step": ".",
}  # told apart by pattern as by colour


def pictures(rows):
    """Draw rows of 8×8 pictures of greys from 0 to 16; `rows` maps a row's label to (count, 8, 8) greys."""
    count = max(len(row) for row in rows.values())
    figure, axes = plt.subplots(len(rows), count, figsize=(0.62 * count, 0.72 * len(rows)), squeeze=False)
    for line, (label, row) in zip(axes, rows.items(), strict=True):
        for place, picture in zip(line, row, strict=True):
            place.imshow(picture, cmap="gray_r", vmin=0, vmax=16)
            place.set(xticks=[], yticks=[])
        line[0].set_ylabel(label, rotation=0, ha="right", va="center")
    figure.tight_layout(pad=0.3)
    plt.show()


def losses(curves, ylabel="loss (nats per pixel)"):
    """Draw loss against step; `curves` maps a label to a list of losses."""
    plt.figure(figsize=(6, 3.2))
    for (label, curve), style in zip(curves.items(), ("-", "--", ":", "-."), strict=False):
        plt.plot(curve, style, label=label)
    plt.xlabel("step")
    plt.ylabel(ylabel)
    plt.legend()
    plt.show()


def messages(sent):
    """Draw who sends to whom; `sent` lists (round, source rank, destination rank), rounds in any numbers."""
    rounds = sorted({number for number, _, _ in sent})
    ranks = range(1 + max(max(source, destination) for _, source, destination in sent))
    plt.figure(figsize=(6, 0.38 * len(ranks) + 0.6))
    plt.hlines(ranks, 0, len(rounds), color="lightgray")
    for number, source, destination in sent:
        x = rounds.index(number)
        plt.annotate(
            "", (x + 0.8, destination), (x + 0.2, source), arrowprops={"arrowstyle": "->", "lw": 1.6}
        )
    plt.xticks([x + 0.5 for x in range(len(rounds))], [f"round {x + 1}" for x in range(len(rounds))])
    plt.yticks(ranks, [f"rank {rank}" for rank in ranks])
    plt.gca().invert_yaxis()
    plt.gca().spines[:].set_visible(False)
    plt.tick_params(length=0)
    plt.show()


def message_times(sizes, seconds, α, β):
    """Draw measured times of messages of `sizes` bytes, in units of α, and the line α + βn."""
    plt.figure(figsize=(6, 3.2))
    plt.loglog(sizes, [measured / α for measured in seconds], "o", label="measured")
    plt.loglog(sizes, [message_seconds(n, α, β) / α for n in sizes], "-", label="α + βn")
    plt.axvline(α / β, linestyle=":", color="gray")
    plt.xlabel("size of the message (bytes)")
    plt.ylabel("time, relative to α")
    plt.legend()
    plt.show()


def timeline(bars, unit):
    """Return a Plotly figure of what happened when.

    `bars` lists (row, phase, start, end): a label such as "rank 0", a phase of `PHASES`, times in `unit`.
    """
    figure = go.Figure()
    for phase, pattern in PHASES.items():
        mine = [bar for bar in bars if bar[1] == phase]
        if mine:
            figure.add_bar(
                name=phase,
                orientation="h",
                y=[row for row, _, _, _ in mine],
                base=[round(start, 4) for _, _, start, _ in mine],
                x=[round(end - start, 4) for _, _, start, end in mine],
                marker={"pattern": {"shape": pattern}},
                hovertemplate=f"%{{y}}: {phase}, %{{x:.3f}}<extra></extra>",
            )
    figure.update_layout(
        template="none",
        barmode="overlay",
        height=60 + 36 * len({row for row, _, _, _ in bars}),
        xaxis={"title": {"text": f"time ({unit})"}},
        yaxis={"autorange": "reversed"},
    )
    return figure


def parts(rows, xlabel):
    """Draw a bar for each of `rows`, a dict from its label to {part: amount}, its parts end to end."""
    names = list(dict.fromkeys(part for row in rows.values() for part in row))
    plt.figure(figsize=(6, 0.3 * len(rows) + 0.9))
    start = [0.0] * len(rows)
    for name, hatch in zip(names, itertools.cycle(("", "//", "xx", ".."))):
        amounts = [row.get(name, 0) for row in rows.values()]
        plt.barh(list(rows), amounts, left=start, hatch=hatch, label=name, edgecolor="white")
        start = [done + amount for done, amount in zip(start, amounts)]
    plt.gca().invert_yaxis()
    plt.xlabel(xlabel)
    plt.legend()
    plt.show()


def link_times(sizes, links):
    """Draw the seconds of one message of each of `sizes` bytes on `links`, records of `allranks.hardware`."""
    plt.figure(figsize=(6, 3.2))
    for link, style in zip(links, itertools.cycle(("-", "--", "-.", ":"))):
        plt.loglog(sizes, [message_seconds(n, link.α, link.β) for n in sizes], style, label=link.name)
    plt.xlabel("size of the message (bytes)")
    plt.ylabel("time of a message (s)")
    plt.legend()
    plt.show()


HEIGHTS = {"nvlink": -1, "host": 0, "edge": 1, "leaf": 1, "aggregation": 2, "core": 3, "spine": 3}


def networks(graphs):
    """Draw networks side by side; `graphs` maps a label to a graph as `allranks.topology` builds it."""
    figure, axes = plt.subplots(1, len(graphs), figsize=(3.1 * len(graphs), 2.8), squeeze=False)
    for ax, (label, graph) in zip(axes[0], graphs.items()):
        place = _places(graph)
        for one, others in graph.items():
            for other in others:
                if one < other:
                    ax.plot(*zip(place[one], place[other]), color="gray", lw=0.7, zorder=1)
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
    if kinds == {"host"}:  # a little slanted, so that the links around do not hide the others
        return {(kind, x, y): (x + 0.15 * y, y + 0.15 * x) for kind, x, y in graph}
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
