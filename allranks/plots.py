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


def collective_times(sizes, curves, measured=None, ylabel="time"):
    """Draw times of collectives against the bytes of the message: a line for each algorithm of `curves`.

    `measured` maps the same names to measured times, drawn as points.
    """
    plt.figure(figsize=(5.6, 3))
    looks = zip(("-", "--", "-.", ":"), ("o", "s", "^", "D"))
    for (name, curve), (style, marker) in zip(curves.items(), looks):
        (line,) = plt.loglog(sizes, curve, style, label=name.replace("_", " "))
        if measured:
            plt.loglog(sizes, measured[name], marker, color=line.get_color())
    plt.xlabel("size of the message (bytes)")
    plt.ylabel(ylabel)
    plt.legend(fontsize="small", title="lines: predicted, points: measured" if measured else None)
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
    plt.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=len(names), frameon=False)
    plt.show()


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


def held_over_time(history, marks, capacity=None):
    """Draw the bytes of each kind, stacked, event by event.

    `history` maps a kind to its bytes at each event, `marks` a label to the event at which it is written;
    `capacity`, if given, is a line.
    """
    figure, axes = plt.subplots(figsize=(6, 3.4))
    events = range(len(next(iter(history.values()))))
    layers = axes.stackplot(
        events, *([n / 1e6 for n in kind] for kind in history.values()), labels=list(history), step="post"
    )
    for layer, hatch in zip(layers, ("", "//", "xx", ".."), strict=False):
        layer.set(hatch=hatch, edgecolor="white", linewidth=0)
    for label, event in marks.items():
        axes.axvline(event, color="gray", linestyle=":", linewidth=1)
        axes.annotate(label, (event, 1.01), xycoords=("data", "axes fraction"), fontsize=8)
    if capacity is not None:
        axes.axhline(capacity / 1e6, color="black", linestyle="--", linewidth=1)
    axes.set(xlabel="event: a tensor more, or less", ylabel="held (MB)", xlim=(0, len(events) - 1))
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), ncol=len(history), fontsize=8, frameon=False)
    figure.tight_layout()
    plt.show()


def parts_by_model(parts, capacity, label):
    """Draw the bytes of each part of each model on a logarithmic axis, and the capacity of a device.

    `parts` maps a model to a map of parts to bytes; the line at `capacity` bytes carries `label`.
    """
    names = list(parts)
    plt.figure(figsize=(6, 0.42 * len(names) + 1.2))
    for part, marker in zip(next(iter(parts.values())), "osDv^x", strict=False):
        sizes = [parts[name][part] / 1e9 for name in names]
        fill, size = ("full", 6) if marker == "o" else ("none", 8)  # points may lie on one another
        plt.plot(sizes, range(len(names)), marker, fillstyle=fill, markersize=size, label=part)
    plt.axvline(capacity / 1e9, color="black", linestyle="--", linewidth=1)
    plt.annotate(label, (capacity / 1e9, 1.01), xycoords=("data", "axes fraction"), ha="center", fontsize=8)
    plt.xscale("log")
    plt.yticks(range(len(names)), names)
    plt.gca().invert_yaxis()
    plt.grid(axis="y", linewidth=0.4)
    plt.xlabel("GB")
    plt.legend(fontsize=8)
    plt.tight_layout()
    plt.show()


def layouts(points, marked):
    """Draw layouts as points (GB a device, MFU in %); `marked` maps a label to one of them."""
    plt.figure(figsize=(6, 3))
    plt.scatter(*zip(*points, strict=True), s=4, color="gray", linewidth=0)
    for (label, point), marker in zip(marked.items(), "osD^v", strict=False):
        plt.plot(*point, marker, markersize=9, fillstyle="none", markeredgewidth=2, label=label)
    plt.xlabel("memory of a device (GB)")
    plt.ylabel("model FLOPs utilisation (%)")
    plt.legend(fontsize=8)
    plt.tight_layout()
    plt.show()


def by_model(series, names, ylabel):
    """Draw a line for each of `series`, a dict from its label to a number for each of the models `names`."""
    plt.figure(figsize=(6, 3.2))
    for (label, values), style in zip(series.items(), ("o-", "s--", "D:", "^-."), strict=False):
        plt.plot(range(len(names)), values, style, label=label)
    plt.xticks(range(len(names)), names)
    plt.xlabel("model")
    plt.ylabel(ylabel)
    plt.legend(fontsize=8)
    plt.tight_layout()
    plt.show()


def held_in_a_step(histories):
    """Draw what a rank holds during a step; `histories` maps a label to bytes after each operation."""
    plt.figure(figsize=(6, 3.2))
    for (label, held), style in zip(histories.items(), ("-", "--", ":", "-."), strict=False):
        last = len(held) - 1
        at = [operation / last for operation in range(len(held))]
        plt.plot(at, [n / 1e6 for n in held], style, label=label)
    plt.ylim(bottom=0)
    plt.xlabel("operations of the step, from the first (0) to the last (1)")
    plt.ylabel("held on a rank (MB)")
    plt.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, 1.18), ncol=len(histories), frameon=False)
    plt.tight_layout()
    plt.show()


def sent_by_rank(series, bound):
    """Draw a bar for each label and rank of `series`, in multiples of the message, and a line at `bound`."""
    plt.figure(figsize=(6, 2.8))
    width = 0.8 / len(series)
    for i, ((label, sent), hatch) in enumerate(zip(series.items(), ("", "//", "xx", ".."), strict=False)):
        places = [rank - 0.4 + (i + 0.5) * width for rank in range(len(sent))]
        plt.bar(places, sent, width, hatch=hatch, edgecolor="white", label=label.replace("_", " "))
    plt.axhline(bound, linestyle=":", color="gray", label="bound")
    plt.xlabel("rank")
    plt.ylabel("sent (multiples of n)")
    plt.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=4, fontsize=8, frameon=False)
    plt.tight_layout()
    plt.show()


def roofline(points):
    """Draw operations under a roof; `points` maps a name to (intensity / ridge, share of the peak)."""
    figure, axes = plt.subplots(figsize=(5.4, 2.7))
    left, right = min(0.01, *(x for x, _ in points.values())) / 2, 2 * max(x for x, _ in points.values())
    axes.loglog([left, 1, right], [left, 1, 1], "-", color="gray", label="roof")
    for (name, point), marker in zip(points.items(), itertools.cycle("oD^vsP*"), strict=False):
        axes.loglog(*point, marker, label=name)
    axes.axvline(1, linestyle=":", color="gray")
    axes.set(xlabel="FLOPs a byte, relative to the ridge", ylabel="share of the peak")
    axes.minorticks_off()
    axes.legend(fontsize=8)
    figure.tight_layout()
    plt.show()


def kept_over_a_step(curves, ylabel):
    """Draw what is kept, event by event, a panel for each curve.

    `curves` maps a label to (what is kept after each event, the event at which forward ends).
    """
    figure, axes = plt.subplots(1, len(curves), figsize=(6, 2.2), sharey=True, squeeze=False)
    for place, (label, (kept, turn)) in zip(axes.flat, curves.items(), strict=True):
        place.step(range(len(kept)), kept, where="post")
        place.axvline(turn, linestyle=":", color="gray")
        place.set(xlabel=label, xticks=[turn / 2, (turn + len(kept)) / 2])
        place.set_xticklabels(["forward", "backward"], fontsize=8)
        place.tick_params(axis="x", length=0)
    axes[0, 0].set_ylabel(ylabel)
    figure.tight_layout()
    plt.show()


def ratios(x, curves, xlabel, ylabel):
    """Draw a line for each of `curves`, label to values at `x`, on logarithmic axes, and a line at 1."""
    plt.figure(figsize=(6, 3.2))
    for (label, values), style in zip(curves.items(), itertools.cycle(("-o", "--s", "-.^", ":D"))):
        plt.loglog(x, values, style, markersize=4, label=label)
    plt.axhline(1, color="gray", linewidth=1)
    plt.xlabel(xlabel)
    plt.ylabel(ylabel)
    plt.legend(fontsize="small")
    plt.show()


def against_ranks(ways, curves, ylabel):
    """Draw a line for each of `curves`, label to values at the numbers of ranks `ways`, and a line at 1."""
    plt.figure(figsize=(6, 3.2))
    for (label, values), style in zip(curves.items(), ("-o", "--s", "-.^", ":D"), strict=False):
        plt.loglog(ways, values, style, markersize=4, label=label)
    plt.axhline(1, color="gray", linewidth=1)
    plt.minorticks_off()
    plt.xticks(ways, ways)
    plt.xlabel("ranks")
    plt.ylabel(ylabel)
    plt.legend(fontsize=8)
    plt.tight_layout()
    plt.show()


def whole_units(panels):
    """Draw from when to when each unit is whole; `panels` maps a label to (unit, from, to) in order."""
    units = sorted({unit for bars in panels.values() for unit, _, _ in bars})
    height = 0.28 * len(units) * len(panels) + 1.2
    _, axes = plt.subplots(len(panels), sharex=True, squeeze=False, figsize=(6, height))
    for (place,), (label, bars) in zip(axes, panels.items(), strict=True):
        for unit, begin, end in bars:
            place.barh(units.index(unit), end - begin, left=begin, height=0.7, color="C0", edgecolor="white")
        place.set_yticks(range(len(units)), units)
        place.invert_yaxis()
        place.set_title(label, fontsize=9, loc="left")
    axes[-1][0].set_xlabel("moments of the step, in order")
    plt.tight_layout()
    plt.show()


def gantt(simulated, measured, xlabel):
    """Draw measured operations over simulated ones, a lane for each rank.

    Both list (rank, kind, start, end), kind "F" or "BW", in one unit: measured below the line of the rank,
    simulated above it.
    """
    looks = {"F": ("forward", "C0", ""), "BW": ("backward", "C1", "//")}
    ranks = 1 + max(rank for rank, *_ in simulated)
    _, axes = plt.subplots(figsize=(6, 0.62 * ranks + 1.1))
    for bars, top, alpha in ((simulated, -0.4, 0.45), (measured, 0.0, 1.0)):
        for rank, kind, start, end in bars:
            _, color, hatch = looks[kind]
            axes.broken_barh(
                [(start, end - start)],
                (rank + top, 0.38),
                facecolor=color,
                alpha=alpha,
                hatch=hatch,
                edgecolor="white",
            )
    for name, color, hatch in looks.values():
        axes.barh(0, 0, facecolor=color, hatch=hatch, edgecolor="white", label=name)
    axes.set_yticks(range(ranks), [f"rank {rank}" for rank in range(ranks)])
    axes.invert_yaxis()
    axes.set(xlabel=xlabel, xlim=(0, None))
    axes.legend(
        loc="lower center",
        bbox_to_anchor=(0.5, 1),
        ncols=2,
        fontsize=8,
        frameon=False,
        title="above: simulated, below: measured",
        title_fontsize=8,
    )
    plt.tight_layout()
    plt.show()


def binades(rows, lines):
    """Draw a histogram for each of `rows`, label to {exponent: share}, one above the other; mark `lines`.

    A bar stands on the numbers from 2 to the exponent to twice that; `lines` maps a label to an exponent.
    """
    figure, axes = plt.subplots(len(rows), 1, figsize=(6, 1.5 * len(rows) + 0.6), sharex=True, squeeze=False)
    for (place,), (label, shares) in zip(axes, rows.items(), strict=True):
        place.bar(list(shares), [100 * share for share in shares.values()], width=0.9, align="edge")
        for (line, exponent), style in zip(lines.items(), itertools.cycle((":", "--", "-"))):
            place.axvline(exponent, linestyle=style, color="gray", label=line)
        place.set_ylabel(f"{label}\n% a binade")
    axes[0][0].legend(loc="upper left", fontsize="small")
    axes[-1][0].set_xlabel("log₂ of the size")
    figure.tight_layout()
    plt.show()
