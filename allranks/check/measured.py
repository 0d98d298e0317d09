"""Is a measurement reported as one: a table with units, a plot of that table, three sentences that read it?

It is graded by form: no speed is right or wrong. A task has three functions of the student's, of which the
first and the last return what was written down after measuring, so that a grader sees the same numbers:

    table()       rows in order of measuring: [{"ranks": 2, "tokens/s": [811.7, 809.2, …], "at (s)": 4.2}, …];
                  "at (s)" is time.perf_counter() when the row was finished
    plot(rows)    draws those rows with matplotlib: lines, points or bars, labelled axes with units
    reflection()  three sentences, each with a number of two or more digits from the table, or a ratio of two

A column's unit is what stands in parentheses, or its whole name: "message (B)", "ranks", "tokens/s". A check:

    @exercise
    def scaling(table, plot, reflection):
        return by_form(table, plot, reflection, x="ranks", y="tokens/s", xs=(1, 2, 4), ratio_to=1)
"""

import difflib
import itertools
import math
import re
import statistics

from allranks.check import plotted
from allranks.check.labs import is_written, on_ranks

STAMP = "at (s)"
IN_SECONDS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}
FACTORS = {prefix: factor for prefix, factor in plotted.PREFIXES.items() if prefix} | {
    "%": 100.0, "per": 100.0, "milli": 1e3, "micro": 1e6, "thousand": 1e-3, "million": 1e-6, "billion": 1e-9,
}  # fmt: skip
NUMBER = re.compile(r"(?<![\w.])\d+(?:[,\u202f]\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?")


def by_form(
    table, plot, reflection, *, x, y, xs, repeats=5, ratio_to=None, counted=False, derived=None, task=""
):
    """Return the sentence for a report in good form, or fail with what is missing.

    x: the column of conditions (numbers or names), of which `xs` have to be there. y: the measured column, or
    a tuple of them; a cell lists `repeats` values or more. ratio_to: the x to whose row a plot may relate the
    others. counted: repeated values may be equal, as counted bytes are. derived(rows): more numbers, such as
    those of a fit, that sentences may quote. task: text that no sentence may copy.
    """
    is_written(table, plot, reflection)
    ys = (y,) if isinstance(y, str) else tuple(y)
    rows, sentences = on_ranks(lambda: plotted.plain((table(), reflection())), world_size=1)[0]
    _is_table(rows, x, ys, tuple(xs), repeats, counted)
    plotted.shows(plot, rows, x, ys, ratio_to)
    numbers = {*_numbers(rows, x, ys), *(derived(rows) if derived else ())}
    _are_sentences(sentences, numbers, task)
    values = sum(len(row[name]) for row in rows for name in ys)
    return (
        f"{len(rows)} rows hold {values} measured values, drawn with units, and three sentences discuss them."
    )


def _is_table(rows, x, ys, xs, repeats, counted):
    assert isinstance(rows, list | tuple) and rows and all(isinstance(row, dict) for row in rows), (
        f"The table is {str(rows)[:40]}; expected a list of rows: dicts with {', '.join((x, *ys, STAMP))}."
    )
    for number, row in enumerate(rows):
        for name in (x, *ys, STAMP):
            assert name in row, (
                f"Row {number} has no {name!r}: a column's name has its unit; it has {list(row)}."
            )
        for name in ys:
            _are_repeated(row[name], repeats, counted, f"Row {number}, {name!r},")
        assert _is_number(row[STAMP]), (
            f"Row {number}, {STAMP!r}, is {row[STAMP]!r}; expected seconds on a clock."
        )
    conditions = [row[x] for row in rows]
    assert not (missing := [one for one in xs if one not in conditions]), f"No row has {x} = {missing[0]}."
    assert len(set(conditions)) == len(rows), (
        f"Two rows have the same {x!r}; put repeats into one row's list."
    )
    for before, after in itertools.pairwise(rows):
        gap = after[STAMP] - before[STAMP]
        assert gap > 0, (
            f"{STAMP!r} goes from {before[STAMP]:g} to {after[STAMP]:g}: rows come in order of measuring."
        )
        for name in ys:
            took = min(sum(before[name]), sum(after[name])) * IN_SECONDS.get(plotted.unit_of(name), 0.0)
            assert took <= 1.01 * gap, (
                f"The repeats of {x} = {after[x]} take {took:g} s, but its row came only {gap:g} s later."
            )
    for name in () if len(rows) == 1 else ys:
        _are_not_invented([row[name] for row in rows], name, counted)


def _are_repeated(values, repeats, counted, where):
    assert isinstance(values, list | tuple), (
        f"{where} is {str(values)[:40]}; expected a list of {repeats} repeats."
    )
    assert len(values) >= repeats, f"{where} has {len(values)} repeats; the task asks for {repeats}."
    for value in values:
        assert _is_number(value) and value > 0, f"{where} has {value!r}; expected positive numbers."
    assert counted or len(set(values)) > 1, (
        f"{where} repeats one value; measured ones differ. Do not round them."
    )


def _are_not_invented(columns, name, counted):
    medians = [statistics.median(column) for column in columns]
    assert len(set(medians)) > 1, f"All rows have the same median of {name!r}: were they measured apart?"
    if counted:
        return
    scaled = [[value / column[0] for value in column] for column in columns]
    assert len({tuple(round(value, 9) for value in column) for column in scaled}) > 1, (
        f"In {name!r} all rows are multiples of one: measure each of them."
    )
    steps = [[b - a for a, b in itertools.pairwise(sorted(column))] for column in columns]
    assert len(columns[0]) < 4 or any(max(one) - min(one) > 1e-6 * max(one) for one in steps), (
        f"In {name!r} the repeats of every row are evenly spaced; no clock measures that."
    )
    digits = [float(f"{value:.2g}") == value for column in columns for value in column]
    assert not all(digits), f"In {name!r} no value has more than two digits: write down what was measured."


def _numbers(rows, x, ys):
    """What follows from the table: its values, and ratios and differences between rows and columns."""
    for name in ys:
        for row in rows:
            middles = statistics.median(row[name]), statistics.fmean(row[name])
            found = {*row[name], *middles, max(row[name]) - min(row[name])}
            yield from (*found, statistics.pstdev(row[name]) / middles[1], max(row[name]) / min(row[name]))
        for a, b in itertools.permutations(rows, 2):
            for middle in (statistics.median, statistics.fmean):
                ratio = middle(a[name]) / middle(b[name])
                share = ratio * b[x] / a[x] if _is_number(a[x]) and a[x] and _is_number(b[x]) else ratio
                yield from (ratio, abs(ratio - 1), share, abs(middle(a[name]) - middle(b[name])))
    for row, (a, b) in itertools.product(rows, itertools.permutations(ys, 2)):
        yield statistics.median(row[a]) / statistics.median(row[b])


def _are_sentences(sentences, numbers, task):
    assert isinstance(sentences, list | tuple) and len(sentences) == 3, (
        f"The reflection is {str(sentences)[:40]!r}; expected three sentences, in a tuple or list."
    )
    for number, text in enumerate(sentences, start=1):
        words = set(re.findall(r"[^\W\d_]{2,}", text.lower())) if isinstance(text, str) else ()
        shown = f"Sentence {number} is {str(text)[:40]!r}"
        assert len(words) >= 3, f"{shown}: write a whole sentence."
        assert text.strip()[-1] in ".!?", f"{shown}: end it with a full stop."
        assert any(_follows(found[0], text[found.end() :], numbers) for found in NUMBER.finditer(text)), (
            f"Sentence {number} has no number of two or more digits from the table, "
            "nor a ratio of two rows' medians."
        )
    others = [part for part in re.split(r"(?<=[.!?])\s+", task) if part]
    for one, other in (*itertools.combinations(sentences, 2), *itertools.product(sentences, others)):
        alike = difflib.SequenceMatcher(
            None, *(NUMBER.sub("", text).lower() for text in (one, other))
        ).ratio()
        assert alike < 0.85, f"{one[:40]!r} repeats {other[:40]!r}: say something else about your numbers."


def _follows(text, tail, numbers):
    """Whether `text`, of two or more digits, is one of `numbers` as it would be rounded.

    The `tail` after it may begin with a prefix of a unit, or with %.
    """
    tail = tail.lstrip().replace("\u03bc", "µ")
    factors = [factor for word, factor in FACTORS.items() if tail.startswith(word)]
    mantissa, _, exponent = re.sub(r"[,\u202f]", "", text).partition("e")
    value, digits = float(f"{mantissa}e{exponent or 0}"), mantissa.replace(".", "").lstrip("0")
    last = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
    if "." not in mantissa:
        last *= 10.0 ** (len(mantissa) - len(mantissa.rstrip("0"))) if len(mantissa.strip("0")) > 1 else 1.0
    scaled = (number * factor for number in numbers for factor in (1.0, *factors))
    return len(digits) >= 2 and any(abs(value - one) <= 0.51 * last + 1e-3 * abs(one) for one in scaled)


def _is_number(value):
    return type(value) in (int, float) and math.isfinite(value)
