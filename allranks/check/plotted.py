"""Does a plot show a table? What draws it runs on a rank, and only points and texts come back from there."""

import copy
import re
import statistics
import warnings

from allranks.check.labs import on_ranks

PREFIXES = {
    "": 1.0, "k": 1e-3, "M": 1e-6, "G": 1e-9, "T": 1e-12, "m": 1e3, "µ": 1e6, "n": 1e9,
    "Ki": 2.0**-10, "Mi": 2.0**-20, "Gi": 2.0**-30,
}  # fmt: skip
IN_WORDS = {"s": "seconds", "ms": "milliseconds", "µs": "microseconds", "B": "bytes"}
RATIO = ("ratio", "speed", "relative", "times", "×", "efficiency", "share", "%")
STATISTICS = (statistics.median, statistics.fmean, min, max)


def unit_of(column):
    """What stands in parentheses at the end of a column's name, or all of it."""
    found = re.search(r"\(([^()]*)\)\s*$", column)
    return found[1] if found else column


def shows(plot, rows, x, ys, ratio_to=None):
    """Fail unless `plot(rows)` draws each column of `ys` over `x`, also when the values are others."""
    others = copy.deepcopy(rows)
    for number, row in enumerate(others):
        row |= {name: [value * (1.1 + 0.2 * number) for value in row[name]] for name in ys}
    axes, again = on_ranks(lambda: [_drawn(plot, table) for table in (rows, others)], world_size=1)[0]
    assert axes, "The plot has no axes with data: draw the rows with matplotlib."
    for name in ys:
        complaints = [said for ax in axes for said in _ways(ax, rows, x, name, ratio_to)]
        assert complaints, (
            f"No axes show {name!r} of all rows over {x!r}: draw its values, or their medians or means."
        )
        assert None in complaints, complaints[0]
        assert any(True for ax in again for _ in _ways(ax, others, x, name, ratio_to)), (
            f"Given other values of {name!r}, plot draws the old ones: draw the rows that it is given."
        )


def _ways(ax, rows, x, name, ratio_to):
    """For each way in which `ax` shows the column `name` over `x`: what its labels lack, or None."""
    of_names = any(isinstance(row[x], str) for row in rows)
    for prefix, scale in {"": 1.0}.items() if of_names else PREFIXES.items():
        drawn = [[y for at, y in ax["points"] if _is_at(at, row[x], scale, ax["ticks"])] for row in rows]
        if not all(drawn):
            continue
        where = _lacks("x", ax["x"], prefix, "" if of_names else unit_of(x))
        for above, factor in PREFIXES.items():
            shown = [(*row[name], *(of(row[name]) for of in STATISTICS)) for row in rows]
            if _are_drawn([[factor * value for value in values] for values in shown], drawn):
                yield where or _lacks("y", ax["y"], above, unit_of(name))
        for ratios in _ratios(rows, x, name, ratio_to):
            if _are_drawn([[ratio] for ratio in ratios], drawn):
                said = any(word in ax["y"].lower() for word in RATIO)
                yield where or (None if said else f"The y axis shows a ratio, and its label is {ax['y']!r}.")


def _ratios(rows, x, name, ratio_to):
    """Speed-ups, slow-downs and efficiencies against the row whose x is `ratio_to`, also in per cent."""
    first = [row for row in rows if ratio_to is not None and row[x] == ratio_to]
    for of in STATISTICS if first else ():
        ratios = [of(row[name]) / of(first[0][name]) for row in rows]
        ways = [ratios, [1 / ratio for ratio in ratios]]
        if not isinstance(ratio_to, str) and all(row[x] for row in rows):  # an efficiency, by the x
            ways += [[r * ratio_to / row[x] for r, row in zip(way, rows, strict=True)] for way in tuple(ways)]
        yield from (*ways, *([100 * ratio for ratio in way] for way in ways))


def _lacks(axis, label, prefix, unit):
    """What is missing in the label of an axis that shows `unit` with `prefix`; None if nothing is."""
    words = label.replace("$\\mu$", "µ").replace("\u03bc", "µ").strip()
    pattern = rf"(?<![^\W\d_]){prefix}\s*{re.escape(unit)}(?![^\W\d_])"  # not as a part of a word
    if named := IN_WORDS.get(prefix + unit):
        pattern += rf"|\b(?i:{named})\b"
    if words and (re.search(pattern, words) or not unit):
        return None
    return f"The {axis} axis has the label {label!r}; say what it shows, in {prefix + unit or 'words'}."


def _is_at(place, value, scale, ticks):
    """Whether a point drawn at `place` belongs to the condition `value`."""
    if not isinstance(place, str):
        if not isinstance(value, str) and _near(place, value * scale):
            return True
        place = ticks.get(f"{place:.0f}", "")
    return scale == 1 and " ".join(place.split()) == str(value)


def _are_drawn(values, drawn):
    return all(any(_near(y, v) for y in ys for v in of) for ys, of in zip(drawn, values, strict=True))


def _near(a, b):
    return not isinstance(a, str) and abs(a - b) <= 1e-3 * abs(b)


def plain(value):
    """`value` as what the checks' process reads: numbers, texts, lists and dicts; else its text."""
    if isinstance(value, dict):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if hasattr(value, "tolist"):  # of numpy or torch
        return plain(value.tolist())
    return value if type(value) in (bool, int, float, str, type(None)) else repr(value)


def _drawn(plot, rows):
    """On a rank: `[{"x", "y", "points", "ticks"}, …]`, the labels and data of all axes that `plot` leaves."""
    import matplotlib

    matplotlib.use("Agg", force=True)
    from matplotlib import pyplot

    pyplot.close("all")
    kept, pyplot.close, pyplot.show = (pyplot.close, pyplot.show), lambda *_: None, lambda *_, **__: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            plot(copy.deepcopy(rows))
            figures = [pyplot.figure(number) for number in pyplot.get_fignums()]
            axes = [ax for figure in figures for ax in figure.axes]
            return plain([part for ax in axes for part in _parts(ax) if part["points"]])
    finally:
        pyplot.close, pyplot.show = kept
        pyplot.close("all")


def _parts(ax):
    """What `ax` shows upright, and what it shows in horizontal bars, whose axes change places."""
    labels = ax.get_xlabel(), ax.get_ylabel()
    bars = [(box, box.get_x(), box.get_width(), box.get_y(), box.get_height()) for box in ax.patches]
    lying = [getattr(holder, "orientation", "") == "horizontal" for holder in ax.containers]
    if any(lying):
        points = [(y + height / 2, x + width) for _, x, width, y, height in bars]
        yield {"x": labels[1], "y": labels[0], "points": points, "ticks": _ticks(ax.yaxis)}
        return
    points = [point for line in ax.lines for point in zip(line.get_xdata(), line.get_ydata(), strict=True)]
    points += [tuple(point) for dots in ax.collections for point in dots.get_offsets()]
    points += [(x + width / 2, y + height) for _, x, width, y, height in bars]
    points += [(x + width / 2, height) for _, x, width, _, height in bars]  # also in a stack
    yield {"x": labels[0], "y": labels[1], "points": points, "ticks": _ticks(ax.xaxis)}


def _ticks(axis):
    places, texts = axis.get_ticklocs(), [label.get_text() for label in axis.get_ticklabels()]
    return {f"{place:.0f}": text for place, text in zip(places, texts, strict=False)}
