"""What becomes of gradients in a format? A histogram over binades, coloured by what each of them loses."""

import math

from ..precision import histogram, largest, lost, smallest, smallest_normal
from .frame.handles import handle
from .frame.svg import WIDE, block, line, mark, text
from .frame.words import percent

LOW, HIGH = -60, 40


def raised(exponent):
    """An exponent as it is set."""
    return "".join("⁰¹²³⁴⁵⁶⁷⁸⁹"[int(digit)] if digit != "-" else "⁻" for digit in str(exponent))


def power(k):
    """A power of two in words."""
    return f"2{raised(k)}"


def share(part):
    """A part of the gradients in words."""
    if part < 1e-9:
        return "0 %"
    return "under 0.1 %" if part < 0.001 else "over 99.9 %" if 0.999 < part < 1 else percent(part)


def gradients(width, dtype, top, mark, label, middle, spread, what):
    """A histogram, coloured by what becomes of each binade; where it ends."""
    wide, high = width == WIDE, 62
    marks = [text(0, top + 18, label, size=12)]
    parts = f"{share(what.zero)} → 0 · {share(what.subnormal)} fewer bits · {share(what.overflow)} too large"
    marks.append(
        text(width if wide else 0, top + (18 if wide else 35), parts, "end" if wide else "start", 12)
    )
    base = top + (26 if wide else 43) + high
    unit = width / (HIGH - LOW)
    shares = histogram(LOW, HIGH, middle, spread)
    tallest = max(histogram(-1, 1, 0, spread))
    bounds = [math.log2(limit) for limit in (smallest(dtype) / 2, smallest_normal(dtype), largest(dtype))]
    fills = (("alarm", None), ("backward-input", mark), ("forward", None), ("comm", mark))
    marks.append(line(0, base, width, base))
    for index, part in enumerate(shares):
        size = part / tallest * (high - 4)
        if size >= 0.3:
            fill, hatch = fills[sum(LOW + index >= bound for bound in bounds)]
            marks.append(block(index * unit + 0.4, base - size, unit - 0.8, size, fill, hatch))
    for bound in bounds:
        if LOW < bound < HIGH:
            place = (bound - LOW) * unit
            marks.append(line(place, base - high, place, base, "ink-soft", 1, "3 3"))
    return marks, base


def places(width, dtype, base, middle, spread, scaled):
    """Places below a histogram: a click moves the gradients there; where they are `scaled`, by the scale."""
    apart, unit, marks = 2 if width == WIDE else 4, width / (HIGH - LOW), []
    low, high = (middle, min(middle + 24, HIGH - 2)) if scaled else (-40, 0)
    for k in range(low, high + 1, apart):
        what = lost(dtype, k, spread)
        sets = f"scale={k - middle}" if scaled else f"middle={k}"
        words = f"times {power(k - middle)}" if scaled else f"gradients around {power(k)}"
        words += f": {share(what.zero)} round to 0, {share(what.overflow)} too large"
        marks.append(mark((k - LOW - apart / 2) * unit, base - 62, apart * unit, 62, sets, words))
    return marks


def hand_on(width, base, middle, scale, scaled):
    """A grip in the middle of a histogram, which moves the gradients; of the `scaled` one, the scale."""
    unit = width / (HIGH - LOW)
    if scaled:
        places = [(k, (middle + k - LOW) * unit) for k in range(25)]
        words = f"times {power(scale)}"
        return handle(width, "scale", "loss scale", "x", places, scale, base - 9, words, (base - 62, base))
    places = [(k, (k - LOW) * unit) for k in range(-40, 1)]
    words = f"around {power(middle)}"
    return handle(width, "middle", "gradients", "x", places, middle, base - 9, words, (base - 62, base))


def binades(width, top):
    """The axis below the histograms."""
    marks, unit = [], width / (HIGH - LOW)
    for k in range(LOW + 10, HIGH, 10 if width == WIDE else 20):
        place = (k - LOW) * unit
        marks.append(line(place, top, place, top + 4))
        marks.append(text(place, top + 17, power(k) if k else "1", "middle", 11, "ink-soft"))
    return marks
