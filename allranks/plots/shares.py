"""What is the whole made of? Bars of parts, of ranks and of groups."""

import itertools

import matplotlib.pyplot as plt


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
