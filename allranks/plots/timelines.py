"""What happens when, and where? Operations, messages and memory over time."""

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


def calls(ranks):
    """Draw what each rank communicates, in order; `ranks` has its list of (kind, bytes of a message).

    Where the calls of all ranks are equal, each is one box for all of them. Bytes stand in the first box of
    their kind and size.
    """
    kinds = list(dict.fromkeys(kind for made in ranks for kind, _ in made))
    equal = all(made == ranks[0] for made in ranks)
    rows = (
        [((len(ranks) - 1) / 2, len(ranks), ranks[0])] if equal else [(i, 1, m) for i, m in enumerate(ranks)]
    )
    plt.figure(figsize=(6, 0.19 * len(ranks) + 0.6))
    for middle, high, made in rows:
        for place, (kind, nbytes) in enumerate(made):
            colour, new = f"C{kinds.index(kind)}", (kind, nbytes) not in made[:place]
            plt.barh(middle, 0.9, high - 0.1, left=place - 0.45, color=colour, alpha=0.4, antialiased=False)
            plt.text(place, middle, nbytes if new else "", ha="center", va="center", fontsize=7)
    for kind in kinds:
        plt.bar(0, 0, color=f"C{kinds.index(kind)}", alpha=0.4, label=kind.replace("_", "-"))
    plt.yticks(range(len(ranks)), [f"rank {rank}" for rank in range(len(ranks))], fontsize=8)
    plt.xticks([])
    plt.xlim(-0.6, max(7.5, max(map(len, ranks)) - 0.4))
    plt.ylim(len(ranks) - 0.4, -0.6)
    plt.gca().spines[:].set_visible(False)
    plt.tick_params(length=0)
    plt.legend(loc="lower left", bbox_to_anchor=(0, 0.97), ncols=len(kinds), fontsize=8, frameon=False)
    plt.show()


def queues(panels):
    """Draw what each rank has queued, and whom the first operation of a queue waits for.

    `panels` maps a heading to (queues, arrows): for each rank the words of its operations, first to last, and
    pairs of places (rank, operation) that need each other.
    """
    figure, axes = plt.subplots(len(panels), 1, figsize=(5, 2 * len(panels)), squeeze=False)
    for axis, (heading, (ranks, arrows)) in zip(axes[:, 0], panels.items(), strict=True):
        boxes = {}
        for rank, operations in enumerate(ranks):
            for place, words in enumerate(operations):
                frame = {"boxstyle": "round,pad=0.4", "facecolor": "none", "edgecolor": f"C{rank}"}
                text = axis.text(place, rank, words, ha="center", va="center", fontsize=11, bbox=frame)
                boxes[rank, place] = text.get_bbox_patch()
        for (rank, place), (other, target) in arrows:
            style = {
                "arrowstyle": "->",
                "lw": 1.6,
                "patchA": boxes[rank, place],
                "patchB": boxes[other, target],
            }
            axis.annotate("", (target, other), (place, rank), arrowprops=style)
        axis.set(xlim=(-0.6, 1.6), ylim=(len(ranks) - 0.4, -0.6), xticks=[])
        axis.set_yticks(range(len(ranks)), [f"rank {rank}" for rank in range(len(ranks))], fontsize=11)
        axis.set_title(heading, loc="left", fontsize=11)
        axis.spines[:].set_visible(False)
        axis.tick_params(length=0)
    figure.tight_layout()
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


def entered(dumps):
    """Draw the collectives that each rank has entered, in its order, with their lines; see `hang.Dump`.

    Equal operations have one colour; a frame marks the last one of each rank, in which it may be waiting.
    """
    kinds = list(dict.fromkeys(call.name for dump in dumps.values() for call in dump.history.calls))
    plt.figure(figsize=(5.6, 0.45 * len(dumps) + 0.3))
    for row, dump in enumerate(dumps.values()):
        for place, call in enumerate(dump.history.calls):
            is_last = call is dump.history.calls[-1]
            colour, edge = f"C{kinds.index(call.name)}", "C3" if is_last else "none"
            plt.barh(row, 0.92, 0.8, left=place - 0.46, facecolor="none", edgecolor=edge, linewidth=2)
            plt.barh(row, 0.92, 0.8, left=place - 0.46, color=colour, alpha=0.35)
            line = f"\nline {call.place.line}" if call.place else ""
            plt.text(place, row, call.name.replace("_", "-") + line, ha="center", va="center", fontsize=9)
    plt.yticks(range(len(dumps)), [f"rank {rank}" for rank in dumps], fontsize=10)
    plt.xticks([])
    plt.xlim(-0.6, max(len(dump.history.calls) for dump in dumps.values()) - 0.4)
    plt.ylim(len(dumps) - 0.45, -0.55)
    plt.gca().spines[:].set_visible(False)
    plt.tick_params(length=0)
    plt.tight_layout()
    plt.show()
