"""What can be taken hold of in a picture? Grips on an axis, each with the control that follows it.

A grip knows where it would stand at each value of its control, and a moving thing where it is in this
state, so that whoever moves them computes nothing.
"""

from .svg import NARROW, WIDE, escape, number

REACH = {WIDE: 16, NARROW: 24}  # pixels around a grip that take hold of it: a finger needs 44 in all


def handle(width, name, label, axis, places, value, across, words, line=None):
    """A grip that sets the control `name`, at its `value` among `places`; "" if it has no place there.

    places: pairs (value, pixels along `axis`, "x" or "y"). across: where the grip stands on the other axis.
    words: the value as it is said. line: from where to where on the other axis it extends.
    """
    sign = 1 if axis == "x" else -1
    order = sorted((sign * at, turn) for turn, (_, at) in enumerate(places))
    ordered = [places[turn] for _, turn in order]
    values = [each for each, _ in ordered]
    if value not in values or len(values) < 2:
        return ""
    now = values.index(value)
    at, reach = ordered[now][1], REACH[width]
    x, y = (at, across) if axis == "x" else (across, at)
    stops = " ".join(f"{each}={number(place)}" for each, place in ordered)
    way = "horizontal" if axis == "x" else "vertical"
    drawn = f'<rect class="ar-reach" x="-{reach}" y="-{reach}" width="{2 * reach}" height="{2 * reach}"/>'
    if line:
        low, high = (number(end - across) for end in line)
        drawn += f'<path d="M0 {low}V{high}"/>' if axis == "x" else f'<path d="M{low} 0H{high}"/>'
    grip = "-5 -9h10v18h-10z M-1.5 -4v8M1.5 -4v8" if axis == "x" else "-9 -5h18v10h-18z M-4 -1.5h8M-4 1.5h8"
    drawn += f'<path class="ar-grip" d="M{grip}"/>'
    return (
        f'<g class="ar-handle" data-id="{name}" data-axis="{axis}" data-stops="{stops}" role="slider"'
        f' tabindex="0" aria-label="{escape(label)}" aria-orientation="{way}" aria-valuemin="0"'
        f' aria-valuemax="{len(values) - 1}" aria-valuenow="{now}" aria-valuetext="{escape(words)}"'
        f' style="transform:translate({number(x)}px,{number(y)}px)">{drawn}</g>'
    )


def spread(places, end, apart):
    """`places` (value, pixels), rising; those that lie beyond `end` stand there, `apart` from one another."""
    made, last = [], None
    for value, at in places:
        last = at if at <= end else end if last is None else max(last + apart, end)
        made.append((value, last))
    return made


def playhead(width, name, label, left, right, steps, value, y, words):
    """A rail from `left` to `right` with a stop for each of the `steps`, and the grip that plays them."""
    apart = (right - left) / max(steps - 1, 1)
    places = [(step, left + step * apart) for step in range(steps)]
    ticks = "".join(f"M{number(at)} {number(y - 2)}v4" for _, at in places)
    rail = f'<path class="ar-rail" data-id="rail" d="M{number(left)} {number(y)}H{number(right)}{ticks}"/>'
    return rail + handle(width, name, label, "x", places, value, y, words)


def moving(key, x, y, width, height):
    """A thing that goes from where it was to where it is now when the next state has the same `key`."""
    box = f'<rect width="{number(width)}" height="{number(height)}" rx="3"/>'
    at = f"transform:translate({number(x)}px,{number(y)}px)"
    return f'<g class="ar-moving" data-id="{key}" style="{at}">{box}</g>'


def handles_over(width, height, *parts):
    """The grips and what moves, as a picture of their own to lie over one of the same size."""
    box = f'viewBox="0 0 {number(width)} {number(height)}"'
    label = "Handles to drag; arrow keys move them too"
    made = "".join(part if isinstance(part, str) else "".join(part) for part in parts)
    return f'<svg class="ar-grips" {box} role="group" aria-label="{label}">{made}</svg>' if made else ""
