"""How does a server do? Which bandwidth pays, and how many requests are in time."""

import itertools

import matplotlib.pyplot as plt

STYLES = ("-o", "--s", "-.^", ":D", "-v")


def break_even(tokens, curves, links):
    """Draw bandwidths (GB/s) against `tokens`, a line for each of `curves`, and level lines at `links`."""
    plt.figure(figsize=(4.4, 2.5))
    for (label, values), style in zip(curves.items(), itertools.cycle(STYLES)):
        plt.loglog(tokens, values, style, markersize=4, label=label)
    for label, bandwidth in links.items():
        plt.axhline(bandwidth, color="gray", linewidth=1)
        plt.annotate(label, (tokens[0], bandwidth), (0, 3), textcoords="offset points", fontsize=8)
    plt.xlabel("tokens in the cache")
    plt.ylabel("bandwidth (GB/s)")
    plt.ylim(top=100)
    plt.legend(fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    plt.tight_layout()
    plt.show()


def grouped(rows, xlabel):
    """Draw bars: a group for each of `rows`, which maps a label to values by series."""
    series = list(next(iter(rows.values())))
    thick = 0.8 / len(series)
    plt.figure(figsize=(5.2, 0.42 * len(rows) + 0.9))
    for place, (name, hatch) in enumerate(zip(series, itertools.cycle(("", "///", "...")))):
        at = [row + (place - (len(series) - 1) / 2) * thick for row in range(len(rows))]
        values = [each[name] for each in rows.values()]
        plt.barh(at, values, thick, label=name, hatch=hatch, edgecolor="white", linewidth=0)
    plt.yticks(range(len(rows)), rows)
    plt.gca().invert_yaxis()
    plt.xlabel(xlabel)
    plt.legend(fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=len(series), frameon=False)
    plt.tight_layout()
    plt.show()


def served(panels):
    """Draw what each request does in each step, a panel for each policy.

    `panels` maps a heading to steps, each a list of (request, phase): "waiting", "prefill", "decode", and
    where they occur "idle", a slot whose request has finished, "preempted" and "recompute".
    """
    looks = {
        "waiting": ("lightgray", ""),
        "prefill": ("C0", ""),
        "decode": ("C2", ""),
        "idle": ("white", "xxx"),
        "preempted": ("C1", "///"),
        "recompute": ("C3", "..."),
    }
    rows = 1 + max(request for steps in panels.values() for step in steps for request, _ in step)
    height = 0.12 * rows + 0.55
    figure, axes = plt.subplots(
        len(panels), 1, figsize=(6, height * len(panels) + 0.5), sharex=True, squeeze=False
    )
    shown = []
    for axis, (heading, steps) in zip(axes[:, 0], panels.items(), strict=True):
        for phase, (color, hatch) in looks.items():
            cells = [(at, row) for at, step in enumerate(steps) for row, kind in step if kind == phase]
            shown += [phase] * (bool(cells) and phase not in shown)
            axis.bar(
                [at for at, _ in cells],
                0.84,
                1,
                [row - 0.42 for _, row in cells],
                align="edge",
                facecolor=color,
                hatch=hatch,
                edgecolor="gray" if hatch else color,
                linewidth=0,
            )
        axis.set(ylim=(rows - 0.4, -0.6), yticks=[0, rows - 1], ylabel="request")
        axis.set_title(heading, loc="left", fontsize=10)
        axis.spines[["top", "right"]].set_visible(False)
    axes[-1, 0].set(xlabel="step", xlim=(0, None))
    marks = [
        plt.Rectangle((0, 0), 1, 1, facecolor=color, hatch=hatch, edgecolor="gray", linewidth=0.5)
        for color, hatch in (looks[phase] for phase in looks if phase in shown)
    ]
    figure.tight_layout()
    figure.legend(
        marks,
        [phase for phase in looks if phase in shown],
        loc="lower center",
        bbox_to_anchor=(0.5, 1),
        ncols=len(marks),
        fontsize=8,
        frameon=False,
    )
    plt.show()
