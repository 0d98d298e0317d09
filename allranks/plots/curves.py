"""How does one quantity follow another? Lines and points of what was computed or measured."""

import itertools

import matplotlib.pyplot as plt
from matplotlib.colors import LogNorm

from allranks.collectives import message_seconds


def losses(curves, ylabel="loss (nats per pixel)"):
    """Draw loss against step; `curves` maps a label to a list of losses."""
    plt.figure(figsize=(6, 3.2))
    for (label, curve), style in zip(curves.items(), ("-", "--", ":", "-."), strict=False):
        plt.plot(curve, style, label=label)
    plt.xlabel("step")
    plt.ylabel(ylabel)
    plt.legend()
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
    plt.figure(figsize=(5.4, 2.8))
    looks = zip(("-", "--", "-.", ":"), ("o", "s", "^", "D"))
    for (name, curve), (style, marker) in zip(curves.items(), looks):
        (line,) = plt.loglog(sizes, curve, style, label=name.replace("_", " "))
        if measured:
            plt.loglog(sizes, measured[name], marker, color=line.get_color())
    plt.xlabel("size of the message (bytes)")
    plt.ylabel(ylabel)
    plt.legend(fontsize="small", title="lines: predicted, points: measured" if measured else None)
    plt.show()


def layouts(points, marked, xlabel="memory of a device (GB)", ylabel="MFU (%)"):
    """Draw layouts as points, by default (GB a device, MFU in %); `marked` maps a label to one of them."""
    plt.figure(figsize=(5, 2.4))
    plt.scatter(*zip(*points, strict=True), s=4, color="gray", linewidth=0)
    for (label, point), marker in zip(marked.items(), "osD^v", strict=False):
        plt.plot(*point, marker, markersize=9, fillstyle="none", markeredgewidth=2, label=label)
    plt.xlabel(xlabel)
    plt.ylabel(ylabel)
    plt.legend(fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=len(marked), frameon=False)
    plt.tight_layout()
    plt.show()


def by_model(series, names, ylabel, xlabel="model", bottom=None, size=(6, 3.2)):
    """Draw a line for each of `series`, a dict from its label to a number for each of the models `names`.

    The vertical axis begins at `bottom`, and without one where the numbers do. size: in inches.
    """
    plt.figure(figsize=size)
    for (label, values), style in zip(series.items(), ("o-", "s--", "D:", "^-."), strict=False):
        plt.plot(range(len(names)), values, style, label=label)
    plt.xticks(range(len(names)), names, fontsize=8)
    plt.ylim(bottom=bottom)
    plt.xlabel(xlabel)
    plt.ylabel(ylabel)
    plt.legend(fontsize=8)
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


def against_bandwidth(gigabytes, curves, ylabel):
    """Draw a line for each of `curves`, label to values at the bandwidths `gigabytes` (GB/s)."""
    plt.figure(figsize=(4.4, 2.4))
    for (label, values), style in zip(curves.items(), ("-", "--", "-.", ":"), strict=False):
        plt.semilogx(gigabytes, values, style, label=label)
    plt.axhline(50, color="gray", linewidth=1)
    plt.ylim(0, 100)
    plt.xlabel("bandwidth (GB/s)")
    plt.ylabel(ylabel)
    plt.legend(fontsize=8)
    plt.tight_layout()
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


def against(x, curves, xlabel, ylabel, measured=None):
    """Draw a line for each of `curves`, label to values at `x`, on linear axes from 0.

    `measured` maps the same labels to measured values, drawn as points; the lines then have none.
    """
    plt.figure(figsize=(4.4, 2.3))
    for (label, values), style in zip(curves.items(), itertools.cycle(("-o", "--s", "-.^", ":D"))):
        *line, marker = style
        (drawn,) = plt.plot(x, values, "".join(line) if measured else style, markersize=4, label=label)
        if measured:
            plt.plot(x, measured[label], marker, markersize=4, color=drawn.get_color())
    plt.ylim(bottom=0)
    plt.xlim(left=0)
    plt.xlabel(xlabel)
    plt.ylabel(ylabel)
    beside = {
        "loc": "center left",
        "bbox_to_anchor": (1, 0.5),
        "title": "lines: predicted,\npoints: measured",
    }
    plt.legend(fontsize="small", **(beside if measured else {}))
    plt.show()


def percentages(x, curves, xlabel, ylabel, dots=None):
    """Draw a line for each of `curves`, label to shares at `x`, in per cent; `dots` likewise as points."""
    plt.figure(figsize=(6, 2.9))
    for (label, values), style in zip(curves.items(), ("-", "--", "-."), strict=False):
        plt.semilogx(x, [100 * value for value in values], style, base=2, label=label)
    for label, values in (dots or {}).items():
        plt.semilogx(x, [100 * value for value in values], "o", base=2, fillstyle="none", label=label)
    plt.xticks(x, [f"{value:,}" for value in x], fontsize=8)
    plt.ylim(0, 100)
    plt.xlabel(xlabel)
    plt.ylabel(ylabel)
    plt.legend(fontsize=8)
    plt.tight_layout()
    plt.show()


def gaps(rows, names, xlabel="year", ylabel="MFU (%)"):
    """Draw two numbers and their gap for each of `rows`, label to (x, above, below); `names`: of the two."""
    plt.figure(figsize=(6, 3.2))
    for x, above, below in rows.values():
        plt.plot((x, x), (above, below), "-", color="gray", linewidth=1)
    for place, (name, marker) in enumerate(zip(names, ("o", "s"), strict=True), start=1):
        points = [(row[0], row[place]) for row in rows.values() if row[place] is not None]
        plt.plot(*zip(*points, strict=True), marker, label=name)
    for label, (x, above, _) in rows.items():
        plt.annotate(label, (x, above), (4, 3), textcoords="offset points", fontsize=8)
    first, last = (round(pick(row[0] for row in rows.values())) for pick in (min, max))
    plt.xticks(range(first, last + 1))
    plt.margins(x=0.16, y=0.12)
    plt.xlabel(xlabel)
    plt.ylabel(ylabel)
    plt.legend(fontsize=8, loc="lower left")
    plt.tight_layout()
    plt.show()


def utilization(gbits, curves, printed):
    """Draw the share of time that computes against Gbit/s: lines of `curves`, points of `printed`."""
    plt.figure(figsize=(6.4, 2.9))
    looks = zip(("-", "--", "-.", ":", (0, (5, 1, 1, 1))), ("o", "s", "^", "D", "v"))
    for (label, values), (style, marker) in zip(curves.items(), looks, strict=False):
        (line,) = plt.semilogx(gbits, [100 * value for value in values], linestyle=style, label=label)
        points = [(x, 100 * share) for x, share in printed[label]]
        plt.plot(*zip(*points), marker, markersize=5, color=line.get_color(), fillstyle="none")
    plt.minorticks_off()
    plt.xlabel("bandwidth (Gbit/s)")
    plt.ylabel("time that computes (%)")
    title = "lines: simulated,\npoints: printed"
    plt.legend(fontsize=8, title=title, loc="upper left", bbox_to_anchor=(1, 1))
    plt.tight_layout()
    plt.show()


def differences(rows, xlabel):
    """Draw how far each curve of `rows`, a dict from a label to numbers, is from 0; "=" where it is 0.

    Shades are on a logarithmic scale; at the right end of each row stands its largest number.
    """
    table = [[abs(x) or float("nan") for x in row] for row in rows.values()]
    sizes = [x for row in table for x in row if x > 0]  # not of nan
    scale = LogNorm(min(sizes) / 4, max(sizes))  # the smallest is not white: nothing is
    _, place = plt.subplots(figsize=(4.8, 0.22 * len(rows) + 0.7))
    place.imshow(table, norm=scale, cmap="Blues", aspect="auto")
    for line, row in enumerate(rows.values()):
        for column, x in enumerate(row):
            if x == 0:
                place.text(column, line, "=", ha="center", va="center")
        place.text(len(row) - 0.4, line, f"{max(map(abs, row)):.1g}", va="center", fontsize=8)
    place.set_yticks(range(len(rows)), rows, fontsize=8)
    place.set_xticks(range(len(table[0])), range(1, len(table[0]) + 1))
    place.set_xlabel(xlabel)
    place.spines[:].set_visible(False)
    place.tick_params(length=0)
    plt.show()
