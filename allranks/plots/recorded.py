"""What did each rank do at the same time? Traces of several ranks on one axis."""

import matplotlib.pyplot as plt

TINTS = ("#e8eef4", "#f6eadb", "#e3f0ea", "#f1e6ee", "#eeeeee")


def traces(panels, unit="ms", stop=None):
    """Draw the traces of all ranks, one axis for each panel, two lanes for each rank.

    `panels` maps a heading to what ranks recorded: objects with `rank`, `phases`, `computing`, `collectives`,
    in seconds, as `allranks.profiles` has them. The upper lane is computation on a tint for each phase, the
    lower one collectives; of two that overlap, the second is drawn thinner. `stop`: seconds after which to
    cut.
    """
    scale = {"s": 1, "ms": 1e3, "µs": 1e6}[unit]
    names = list(dict.fromkeys(p.name for ranks in panels.values() for one in ranks for p in one.phases))
    rows = max(map(len, panels.values()))
    height = (0.42 if len(panels) == 1 else 0.24) * rows + 0.5
    figure, axes = plt.subplots(len(panels), 1, figsize=(6, height * len(panels) + 0.3), squeeze=False)
    for axis, (heading, ranks) in zip(axes[:, 0], panels.items(), strict=True):
        for place, recorded in enumerate(ranks):
            _draw_rank(axis, place, recorded, names, scale)
        axis.set_yticks(range(len(ranks)), [f"rank {one.rank}" for one in ranks], fontsize=9)
        axis.set_ylim(len(ranks) - 0.5, -0.5)
        axis.set_xlim(0, stop and stop * scale)
        axis.tick_params(axis="x", labelsize=9)
        axis.set_title(heading, loc="left", fontsize=9)
        axis.spines[["top", "right", "left"]].set_visible(False)
        axis.tick_params(axis="y", length=0)
    axes[-1, 0].set_xlabel(f"time ({unit})", fontsize=9)
    marks = [plt.Rectangle((0, 0), 1, 1, color="C0"), plt.Rectangle((0, 0), 1, 1, color="C3")]
    marks += [plt.Rectangle((0, 0), 1, 1, color=TINTS[turn % len(TINTS)]) for turn in range(len(names))]
    words = ["computation", "collective", *(f"“{name}”" for name in names)]
    figure.tight_layout()
    figure.legend(
        marks, words, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=4, fontsize=9, frameon=False
    )
    plt.show()


def _draw_rank(axis, place, recorded, names, scale):
    for phase in recorded.phases:
        tint = TINTS[names.index(phase.name) % len(TINTS)]
        _bars(axis, [(phase.start, phase.end)], place - 0.42, 0.84, tint, scale)
    _bars(axis, recorded.computing, place - 0.36, 0.3, "C0", scale)
    until, thick, thin = 0, [], []
    for one in recorded.collectives:
        (thick if one.start >= until else thin).append((one.start, one.end))
        until = max(until, one.end)
    _bars(axis, thick, place + 0.02, 0.3, "C3", scale, edgecolor="white", linewidth=0.5)
    _bars(axis, thin, place + 0.1, 0.14, "C1", scale, edgecolor="white", linewidth=0.4)


def _bars(axis, intervals, bottom, height, color, scale, **style):
    pieces = [(start * scale, (end - start) * scale) for start, end in intervals]
    axis.broken_barh(
        pieces, (bottom, height), facecolor=color, antialiased=False, **({"linewidth": 0} | style)
    )


def attempts(made, spans):
    """Draw attempts at steps in time, a row for each replica: a line if it was kept, a cross if not.

    made: objects with `replica`, `seconds` and `kept`. spans: maps a label to (replica, start, end), drawn as
    a bar in the replica's row.
    """
    replicas = sorted({each.replica for each in made})
    plt.figure(figsize=(6, 0.45 * len(replicas) + 0.9))
    for number, (label, (replica, start, end)) in enumerate(spans.items()):
        plt.barh(replica, end - start, 0.6, start, color=f"C{number + 1}", alpha=0.35, label=label)
    for kept, marker, label in ((True, "|", "step kept"), (False, "x", "step thrown away")):
        at = [(each.seconds, each.replica) for each in made if each.kept == kept]
        plt.plot(*zip(*at), marker, color="C0" if kept else "C3", label=label)
    plt.yticks(replicas, [f"replica {replica}" for replica in replicas])
    plt.ylim(replicas[-1] + 0.6, -0.6)
    plt.xlabel("time (s)")
    plt.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, fontsize=8, frameon=False)
    plt.gca().spines[["top", "right"]].set_visible(False)
    plt.show()
