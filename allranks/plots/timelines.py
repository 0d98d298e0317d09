"""What happens when, and where? Operations and memory over time."""

import matplotlib.pyplot as plt
import plotly.graph_objects as go

PHASES = {
    "forward": "",
    "backward": "/",
    "communicate": "x",
    "step": ".",
}  # told apart by pattern as by colour


PASSES = {  # of a pipeline: kind -> name, colour, hatch
    "F": ("forward", "C0", ""),
    "BW": ("backward", "C1", "//"),
    "B": ("input gradient", "C1", "//"),
    "W": ("weight gradient", "C2", "-"),
}


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


def gantt(simulated, measured, xlabel):
    """Draw measured operations over simulated ones, a lane for each rank.

    Both list (rank, kind, start, end), in one unit: measured below the line of the rank, simulated above it.
    kind: "F" forward, "BW" backward, or its parts, "B" input gradient and "W" weight gradient.
    """
    looks = {kind: PASSES[kind] for kind in PASSES if any(kind == bar[1] for bar in simulated)}
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
                hatch=hatch if alpha == 1 else "",
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
        ncols=len(looks),
        fontsize=8,
        frameon=False,
        title="above: simulated, below: measured",
        title_fontsize=8,
    )
    plt.tight_layout()
    plt.show()


def lanes(panels, xlabel):
    """Draw when each rank runs what, a panel for each schedule, all on one time axis.

    `panels` maps a label to slots (rank, (kind, micro-batch, stage), start, end), as a simulated timeline has
    them; kind as in `gantt`. A box carries the number of its micro-batch; a rank's later stages are darker.
    """
    tall = [1 + max(rank for rank, *_ in slots) for slots in panels.values()]
    size = (6, sum(0.24 * ranks + 0.4 for ranks in tall) + 0.6)
    figure, axes = plt.subplots(len(panels), sharex=True, squeeze=False, figsize=size, height_ratios=tall)
    kinds = {slot[1][0] for slots in panels.values() for slot in slots}
    end_of_all = max(slot[3] for slots in panels.values() for slot in slots)
    for place, ranks, (label, slots) in zip(axes[:, 0], tall, panels.items(), strict=True):
        for rank, (kind, microbatch, stage), start, end in slots:
            shade = 1 if stage >= ranks else 0.45
            style = {"facecolor": PASSES[kind][1], "alpha": shade, "edgecolor": "white"}
            place.broken_barh([(start, end - start)], (rank - 0.44, 0.88), linewidth=0.6, **style)
            if end - start > end_of_all / 55:  # a narrower box has no room for a number
                at = ((start + end) / 2, rank + 0.04)
                place.text(*at, microbatch, ha="center", va="center", fontsize=6)
        place.set_yticks(range(ranks), [f"rank {rank}" for rank in range(ranks)], fontsize=8)
        place.set(xlim=(0, end_of_all), ylim=(ranks - 0.5, -0.5))
        place.set_title(label, fontsize=9, loc="left")
    axes[-1, 0].set_xlabel(xlabel)
    looks = [PASSES[kind] for kind in PASSES if kind in kinds]
    boxes = [plt.Rectangle((0, 0), 1, 1, facecolor=colour, alpha=0.6) for _, colour, _ in looks]
    names = [name for name, *_ in looks]
    figure.legend(boxes, names, loc="upper right", ncols=len(looks), fontsize=8, frameon=False)
    figure.tight_layout()
    plt.show()


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
