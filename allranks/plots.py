"""How is what was computed or measured shown? These functions draw; they compute nothing."""

import matplotlib.pyplot as plt
import plotly.graph_objects as go

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


def timeline(bars, unit):
    """Return a Plotly figure of what each rank did when.

    `bars` lists (rank, phase, start, end) with a phase of `PHASES`; `unit` names the unit of time.
    """
    figure = go.Figure()
    for phase, pattern in PHASES.items():
        mine = [bar for bar in bars if bar[1] == phase]
        if mine:
            figure.add_bar(
                name=phase,
                orientation="h",
                y=[rank for rank, _, _, _ in mine],
                base=[round(start, 4) for _, _, start, _ in mine],
                x=[round(end - start, 4) for _, _, start, end in mine],
                marker={"pattern": {"shape": pattern}},
                hovertemplate=f"rank %{{y}}: {phase}, %{{x:.3f}}<extra></extra>",
            )
    figure.update_layout(
        template="none",
        barmode="overlay",
        height=280,
        xaxis={"title": {"text": f"time ({unit})"}},
        yaxis={"title": {"text": "rank"}, "dtick": 1, "autorange": "reversed"},
    )
    return figure
