"""How is what was computed or measured shown? These functions draw; they compute nothing."""

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
