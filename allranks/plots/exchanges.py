"""Who communicates what, with whom, in which order? Messages and collectives without a time axis."""

import matplotlib.pyplot as plt


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
