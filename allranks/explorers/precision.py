"""What does a format hold? Its bits and range beside others', its numbers around a value, and what it loses.

Below, a histogram of gradients whose binary logarithm is normal, as they are and multiplied by a loss scale:
what is rounded to 0, keeps fewer bits, or is too large. Numbers are those of `allranks.precision`.
"""

import math

from ..precision import (
    FORMATS,
    bits,
    largest,
    lost,
    neighbours,
    number_format,
    rounded,
    smallest,
    smallest_normal,
    spacing,
)
from .frame.controls import Choice, Integer, Scale
from .frame.handles import handle, handles_over
from .frame.svg import (
    WIDE,
    block,
    hatches,
    legend,
    line,
    mark,
    marks_over,
    number,
    path,
    picture,
    rectangle,
    text,
)
from .frame.words import figures
from .precision_histogram import binades, gradients, hand_on, places, power, raised, share

TITLE = "Floating-point formats, and what gradients lose in them"

WORDS = {"fp8_e4m3": "fp8 E4M3", "fp8_e5m2": "fp8 E5M2"}
NAMES = tuple((form.name, WORDS.get(form.name, form.name)) for form in FORMATS)


def said(x, digits=3):
    """A number of any size: 0.5, 65,504, 5.96 × 10⁻⁸."""
    size, exponent = abs(x), 0
    if x == 0 or 0.0001 <= size < 10**6:
        return figures(x, digits).replace("-", "−")
    exponent = math.floor(math.log10(size))
    mantissa = size / 10.0**exponent
    if mantissa + 0.5 / 10 ** (digits - 1) >= 10:
        mantissa, exponent = mantissa / 10, exponent + 1
    shown = figures(mantissa, digits)
    times = "" if shown == "1" else f"{shown} × "
    return f"{'−' if x < 0 else ''}{times}10{raised(exponent)}"


VALUES = tuple((m * 10**k, said(m * 10**k)) for k in range(0, 6) for m in (1, 3))
VALUES = tuple((m / 10**k, said(m / 10**k)) for k in range(9, 0, -1) for m in (1, 3)) + VALUES
CONTROLS = (
    Choice("dtype", "format", NAMES, "fp16"),
    Scale("x", "a value x", VALUES, 1),
    Scale("middle", "gradients around", tuple((k, power(k)) for k in range(-40, 1)), -18),
    Integer("spread", "spread σ in binades", 1, 6, 4),
    Scale("scale", "loss scale", tuple((k, power(k)) for k in range(0, 25)), 10),
)
LEFT = 84
RANGE_LOW, RANGE_HIGH = -152, 130


def draw(width, *, dtype, x, middle, spread, scale):
    """The picture, from the bits of all formats down to the histogram."""
    name, hatch = WORDS.get(dtype, dtype), f"precision-{width}"
    marks, top = layouts(width, dtype)
    held = [hand_on_range(width, x, top)]
    touch = formats(width, top)
    drawn, top = ranges(width, dtype, x, top, hatch)
    marks += drawn
    touch += nearby(width, x, top + 34)
    drawn, top = ruler(width, dtype, name, x, top + 34)
    marks += drawn
    plain, scaled = lost(dtype, middle, spread), lost(dtype, middle, spread, 2.0**scale)
    marks.append(text(0, top + 36, f"gradients around {power(middle)} in {name}", bold=True))
    top += 42
    for label, k, what in (("as they are", 0, plain), (f"times {power(scale)}", scale, scaled)):
        drawn, top = gradients(width, dtype, top, hatch, label, middle + k, spread, what)
        marks += drawn
        touch += places(width, dtype, top, middle, spread, label != "as they are")
        held.append(hand_on(width, top, middle, scale, label != "as they are"))
    marks += binades(width, top)
    entries = (
        ("alarm", "rounded to 0", False),
        ("backward-input", "fewer bits", True),
        ("forward", "all bits", False),
        ("comm", "too large", True),
    )
    drawn, height = legend(0, top + 46, width, entries, hatch)
    words = (
        f"{name} has {bits(dtype)} bits, {number_format(dtype).exponent_bits} of exponent and "
        f"{number_format(dtype).mantissa_bits} of mantissa: largest {said(largest(dtype), 5)}, smallest "
        f"{said(smallest(dtype))}. {around(dtype, x)} Of gradients around {power(middle)}, "
        f"{share(plain.zero)} round to 0, {share(plain.subnormal)} keep fewer bits, "
        f"{share(plain.overflow)} are too large; times {power(scale)}: "
        f"{share(scaled.zero)}, {share(scaled.subnormal)}, {share(scaled.overflow)}."
    )
    return {
        "svg": picture(width, top + 40 + height, hatches(hatch), marks, drawn),
        "text": words,
        "marks": marks_over(width, top + 40 + height, touch),
        "handles": handles_over(width, top + 40 + height, held),
        "result": (share(kept(scaled)), f"of the gradients keep all their bits, scaled by {power(scale)}"),
        "insight": insight(name, plain, scaled, scale),
    }


def kept(what):
    """The share of gradients that lose nothing."""
    return max(0.0, 1 - what.zero - what.subnormal - what.overflow)


def insight(name, plain, scaled, scale):
    """What the scale does for the gradients, in a sentence."""
    low = share(plain.zero + plain.subnormal)
    if not scale:
        if kept(plain) > 0.999:
            return f"{name} has room for these gradients as they are; a loss scale would add nothing."
        if plain.overflow > plain.zero + plain.subnormal:
            return f"{share(plain.overflow)} are too large for {name}: a loss scale would make it worse."
        return f"Unscaled, {low} lie below the normal range of {name}; {share(plain.zero)} become 0."
    if scaled.overflow > scaled.zero + scaled.subnormal:
        return f"The scale is too large: {share(scaled.overflow)} exceed the largest number of {name}."
    if kept(scaled) - kept(plain) < 0.001:
        return f"In {name} the scale changes nothing: as many gradients keep all their bits without it."
    return f"Unscaled, only {share(kept(plain))} keep all their bits: the scale lifts gradients into range."


def formats(width, bottom):
    """Places: the rows of the formats; a click takes one."""
    marks = []
    for row, form in enumerate(FORMATS):
        words = f"{WORDS.get(form.name, form.name)}: {form.exponent_bits} bits of exponent, "
        words += f"{form.mantissa_bits} of mantissa, largest {said(largest(form.name))}"
        sets, lights = f"dtype={form.name}", form.name
        marks.append(mark(0, 22 + 26 * row, width, 24, sets, words, lights))
        if width != WIDE:
            marks.append(mark(0, bottom + 34 + 22 * row, width, 20, sets, words, lights))
    return marks


def nearby(width, x, top):
    """Places: both sides of the numbers around `x`; a click goes to a smaller or a larger one."""
    values = [value for value, _ in VALUES]
    at, marks = values.index(x), []
    for left, to in ((0, at - 1), (width / 2 + 6, at + 1)):
        if 0 <= to < len(values):
            words = f"{'smaller' if to < at else 'larger'}: x = {VALUES[to][1]}"
            marks.append(mark(left, top + 36, width / 2 - 6, 52, f"x={address(values[to])}", words))
    return marks


def address(x):
    """A value as an address says it: 1 for 1.0, 1e-9."""
    return str(int(x)) if x == int(x) else str(x)


def around(dtype, x):
    """A sentence about the numbers around `x`."""
    if x > largest(dtype):
        end = "infinity" if number_format(dtype).infinities else "the largest number"
        return f"{said(x)} is too large: it becomes {end}."
    held = rounded(dtype, x)
    step = spacing(dtype, held)
    return (
        f"{said(x)} is stored as {exactly(held, x)}; the next number is {said(step)} away, "
        f"and adding less than {said(step / 2)} changes nothing."
    )


def exactly(held, x):
    """What is stored instead of `x`, with the digits that show where they differ."""
    return said(held, 9 if held != x and said(held, 6) == said(x, 6) else 6)


def layouts(width, dtype):
    """The bits of each format, and where they end."""
    unit = 8.5 if width == WIDE else 8.4
    marks = [text(LEFT, 14, "sign, exponent, mantissa: bits", size=12, ink="ink-soft")]
    for row, form in enumerate(FORMATS):
        y, chosen = 24 + 26 * row, form.name == dtype
        marks.append(text(0, y + 15, WORDS.get(form.name, form.name), size=12, bold=chosen))
        left = LEFT
        for many, fill, ink in (
            (1, "ink", "paper"),
            (form.exponent_bits, "ink-soft", "paper"),
            (form.mantissa_bits, "idle", "ink"),
        ):
            marks.append(rectangle(left, y, many * unit - 1, 20, fill))
            if many > 1:
                marks.append(text(left + (many * unit - 1) / 2, y + 14, many, "middle", 11, ink, True))
            left += many * unit
        if chosen:
            marks.append(rectangle(LEFT - 2.5, y - 2.5, left - LEFT + 4, 25, None, "accent"))
    return marks, 24 + 26 * len(FORMATS)


def range_axis(width, below):
    """Where the ranges stand: (left, top, height of a row), and a function: where along the axis 2^k is."""
    left, top, row = (400, 24, 26) if width == WIDE else (LEFT, below + 34, 22)
    scale = (width - left - 4) / (RANGE_HIGH - RANGE_LOW)
    return left, top, row, lambda k: left + (k - RANGE_LOW) * scale


def hand_on_range(width, x, below):
    """A grip on the line of `x` across the ranges."""
    _, top, row, at = range_axis(width, below)
    places = [(address(value), at(math.log2(value))) for value, _ in VALUES]
    end = top + row * len(FORMATS) - 2
    words = f"x = {said(x)}"
    return handle(width, "x", "a value x", "x", places, address(x), end - 9, words, (top - 4, end))


def ranges(width, dtype, x, below, mark):
    """The range of each format: beside its bits where there is room, else below them."""
    left, top, row, at = range_axis(width, below)
    bottom = top + row * len(FORMATS)
    marks = [text(left, top - 10, "range (striped: fewer bits)", size=12, ink="ink-soft")]
    for each, form in enumerate(FORMATS):
        y, chosen = top + row * each, form.name == dtype
        low, normal, high = (
            at(math.log2(limit(form.name))) for limit in (smallest, smallest_normal, largest)
        )
        tall = 14 if width == WIDE else 12
        if width != WIDE:
            marks.append(text(0, y + 11, WORDS.get(form.name, form.name), size=12, bold=chosen))
        y += 3 if width == WIDE else 0
        if chosen:
            marks.append(block(low, y, normal - low, tall, "backward-input", mark))
            marks.append(block(normal, y, high - normal, tall, "forward"))
        else:
            marks.append(rectangle(low, y, normal - low, tall, "grid"))
            marks.append(rectangle(normal, y, high - normal, tall, "grid-strong"))
    for exponent in (-40, -20, 0, 20):
        place = at(exponent * math.log2(10))
        marks.append(line(place, bottom - 2, place, bottom + 3))
        label = f"10{raised(exponent)}" if exponent else "1"
        marks.append(text(place, bottom + 16, label, "middle", 11, "ink-soft"))
    place = at(math.log2(x))
    marks.append(line(place, top - 4, place, bottom - 2, "ink", 1.5))
    side = "end" if place > width - 30 else "start"
    marks.append(text(place + (4 if side == "start" else -4), bottom + 2, "x", side, 12, bold=True))
    return marks, bottom + 16


def ruler(width, dtype, name, x, top):
    """The numbers of the format around `x`, the one it is rounded to marked."""
    value = rounded(dtype, x)
    here = min(value, largest(dtype))
    numbers = [here]
    for _ in range(4):
        if numbers[-1] < largest(dtype):
            numbers.append(neighbours(dtype, numbers[-1])[1])
    for _ in range(8):
        numbers.insert(0, number_below(dtype, numbers[0]))
    step, middle, y = spacing(dtype, here), width / 2, top + 62

    def at(each):
        return middle + (each - here) / step * (width - 40) / 9

    marks = [text(0, top, f"numbers of {name} around x = {said(x)}", bold=True)]
    if x > largest(dtype):
        detail = f"too large: the largest is {said(here, 6)}"
    else:
        detail = f"stored as {exactly(here, x)} · spacing {said(step)}"
    marks.append(text(0, top + 19, detail, size=12, ink="ink-soft"))
    marks.append(line(8, y, width - 8, y))
    labels = []
    for each in [here] + numbers:
        place = at(each)
        if 16 <= place <= width - 16:
            marks.append(line(place, y - 7, place, y + 7, "grid-strong"))
            shown = said(each, 9 if step < abs(here) / 10**5 else 6)
            needed = 3.4 * len(shown) + 5
            inside = place >= needed and place + needed <= width
            if inside and all(abs(place - other) > needed + room for other, room in labels):
                labels.append((place, needed))
                marks.append(text(place, y + 23, shown, "middle", 11, "ink-soft"))
    marks.append(line(middle, y - 9, middle, y + 9, "accent", 3))
    place = max(14, min(width - 14, at(x)))
    marks.append(path(f"M{number(place)} {number(y - 12)}l-6 -10h12z", None, fill="ink"))
    side = 1 if place < width - 30 else -1
    marks.append(text(place + 10 * side, y - 14, "x", "start" if side > 0 else "end", 12, bold=True))
    return marks, y + 24


def number_below(dtype, x):
    """The number of the format below `x`, which may be the largest one."""
    return x - spacing(dtype, x) if x == largest(dtype) else neighbours(dtype, x)[0]
