"""How is a roofline drawn? The roofs of the devices, the operations under one of them, and two times."""

import math

from ..hardware import ACCELERATORS, called, peak, ridge
from ..roofline import reached
from .frame.svg import WIDE, block, circle, line, mark, number, path, rectangle, text
from .frame.words import figures, percent, scaled, seconds

OPERATIONS = (
    ("product", "a product with weights"),
    ("scores", "QKᵀ, written to memory"),
    ("addition", "adding two tensors"),
    ("decode", "decode: a token each"),
    ("prefill", "prefill: a prompt"),
)
SHORT = {
    "product": "product",
    "scores": "QKᵀ",
    "addition": "addition",
    "decode": "decode",
    "prefill": "prefill",
}
DEVICES = tuple((name, "A100 40 GB" if name == "a100-40gb" else called(name)) for name in ACCELERATORS)
LOW, HIGH = 0.03, 1e5  # FLOPs a byte
SLOW, FAST = 1e10, 2e16  # FLOPs a second
TALL, LEFT = 232, 44


def a_byte(intensity):
    """An intensity with its unit."""
    said = figures(intensity)
    return f"{said} FLOP{'s' * (said != '1')} a byte"


class Axes:
    """Where FLOPs a byte and FLOPs a second lie."""

    def __init__(self, width, top):
        self.width, self.top, self.bottom = width, top, top + TALL
        self.across = (width - LEFT - 10) / math.log(HIGH / LOW)
        self.up = TALL / math.log(FAST / SLOW)

    def x(self, intensity):
        return LEFT + self.across * math.log(min(max(intensity, LOW), HIGH) / LOW)

    def y(self, rate):
        return self.bottom - self.up * math.log(min(max(rate, SLOW), FAST) / SLOW)


def grid(axes):
    """The decades of both axes, and their words."""
    marks = []
    for power in range(-1, 6):
        x = axes.x(10.0**power)
        marks.append(line(x, axes.top, x, axes.bottom, "grid"))
        words = figures(10.0**power) if power < 0 else f"{10**power:,}"
        if axes.width == WIDE or power % 2 == 0:
            anchor = "end" if power == 5 else "middle"
            marks.append(text(x, axes.bottom + 17, words, anchor, 12, "ink-soft"))
    for power in range(10, 17):
        y = axes.y(10.0**power)
        marks.append(line(LEFT, y, axes.width - 10, y, "grid"))
        if power % 2 == 0:
            marks.append(text(LEFT - 5, y + 4, scaled(10.0**power, ""), "end", 12, "ink-soft"))
    marks.append(text(LEFT + 6, axes.top + 14, "FLOPs a second, at most", size=12, ink="ink-soft"))
    marks.append(
        text(axes.width - 10, axes.bottom + 34, "FLOPs for each byte of memory", "end", 12, "ink-soft")
    )
    return marks


def roof(axes, device, dtype, ink, wide):
    """The roof of a device: the slope that its memory allows, up to the ridge, and its peak."""
    corner = ridge(device, dtype)
    most = peak(device, dtype)
    low = most / corner * LOW
    start = (LOW, low) if low >= SLOW else (SLOW * corner / most, SLOW)
    d = f"M{number(axes.x(start[0]))} {number(axes.y(start[1]))}"
    d += f"L{number(axes.x(corner))} {number(axes.y(most))}L{number(axes.width - 10)} {number(axes.y(most))}"
    return path(d, ink, wide)


def roofs(axes, device, dtype):
    """The roofs of all devices that compute in this format, the chosen one in front."""
    marks = [
        roof(axes, name, dtype, "grid-strong", 1)
        for name in ACCELERATORS
        if name != device and dtype in ACCELERATORS[name].peak
    ]
    return marks + [roof(axes, device, dtype, "ink", 3)]


def place(axes, one, device, dtype):
    """Where an operation's point lies: on the roof."""
    return axes.x(one.intensity), axes.y(reached(one, device, dtype).share * peak(device, dtype))


def points(axes, shown, operation, device, dtype):
    """A point for each operation, the chosen one large, with its name where there is room."""
    level = axes.y(peak(device, dtype))
    marks, taken = [], [(axes.width - 165, level, axes.width, level + 20)]
    in_front = [pair for pair in shown if pair[0] == operation] + [
        pair for pair in shown if pair[0] != operation
    ]
    for name, one in in_front:
        x, y = place(axes, one, device, dtype)
        own = name == operation
        long = 8.4 * len(SHORT[name])
        for left, base in ((x - 12 - long, y - 9), (x + 12, y + 17), (x + 12, y + 33)):
            box = (left, base - 12, left + long, base + 3)
            clear = all(
                box[0] > other[2] or box[2] < other[0] or box[1] > other[3] or box[3] < other[1]
                for other in taken
            )
            if clear and left > LEFT and left + long < axes.width - 10:
                ink = "accent" if own else "ink-soft"
                marks.append(text(left, base, SHORT[name], size=12, ink=ink, bold=own))
                taken.append(box)
                break
    for name, one in shown:
        if name != operation:
            marks.append(circle(*place(axes, one, device, dtype), 5, "idle", "ink-soft"))
    x, y = place(axes, dict(shown)[operation], device, dtype)
    marks.append(circle(x, y, 8, "accent", "paper"))
    words = f"{dict(DEVICES)[device]}: {scaled(peak(device, dtype), 'FLOP/s')}"
    return marks + [text(axes.width - 12, level + 16, words, "end", 12, "ink", True)]


def gap(axes, one, now, device, dtype):
    """What the chosen operation lacks to the ridge, as a line at the foot of the picture; the ridge."""
    x, corner = axes.x(one.intensity), axes.x(ridge(device, dtype))
    top, y = axes.y(peak(device, dtype)), axes.bottom - 12
    marks = [line(corner, top, corner, axes.bottom, "ink-soft", 1.5, "3 3")]
    words = f"ridge {figures(ridge(device, dtype))}"
    marks.append(text(corner + 6, axes.bottom - 22, words, "start", 12, "ink-soft"))
    if now.missing and corner - x > 3:
        below = place(axes, one, device, dtype)[1]
        marks.append(line(x, below, x, axes.bottom, "alarm", 1.5, "3 3"))
        marks.append(line(x, y, corner, y, "alarm", 3))
        words = f"{figures(now.missing)} FLOPs a byte missing"
        anchor, at = ("end", corner - 6) if corner - LEFT > 180 else ("start", LEFT + 4)
        marks.append(text(at, y - 8, words, anchor, 12, "alarm", True))
    return marks


def bars(width, top, now):
    """The seconds of arithmetic and of memory, the longer one in full length."""
    marks, left = [], 140
    room = width - left - 84
    for name, words, fill in (
        ("arithmetic", "arithmetic alone", "forward"),
        ("memory", "memory alone", "comm"),
    ):
        took = getattr(now, name)
        wide = max(room * took / now.seconds, 1)
        longest = name == now.bound
        marks.append(text(0, top + 14, words, size=12, bold=longest))
        marks.append(rectangle(left, top, room, 19, "tint"))
        marks.append(block(left, top, wide, 19, fill))
        marks.append(text(width, top + 14, seconds(took), "end", 12, "ink", longest))
        top += 24
    return marks, top + 2


def places(axes, shown, operation, device, dtype):
    """Places: the devices' peaks, each of which can be chosen, the ridge, and the operations."""
    marks, taken = [], []
    for name, words in DEVICES:
        if dtype not in ACCELERATORS[name].peak:
            continue
        y = axes.y(peak(name, dtype))
        sets = "" if name == device else f"device={name}"
        says = f"{words}: peak {scaled(peak(name, dtype), 'FLOP/s')} in {dtype}"
        says += f", ridge at {figures(ridge(name, dtype))} FLOPs a byte"
        if not any(abs(y - other) < 7 for other in taken):
            taken.append(y)
            marks.append(mark(axes.width - 70, y - 4, 60, 8, sets, says, f"roof {name}"))
    x = axes.x(ridge(device, dtype))
    says = f"the ridge, {figures(ridge(device, dtype))} FLOPs a byte: left of it memory is too slow"
    marks.append(mark(x - 4, axes.y(peak(device, dtype)) + 8, 8, 24, "", says, f"roof {device}"))
    in_front = [pair for pair in shown if pair[0] != operation] + [
        pair for pair in shown if pair[0] == operation
    ]
    for name, one in in_front:
        now, at = reached(one, device, dtype), place(axes, one, device, dtype)
        says = f"{dict(OPERATIONS)[name]}: {a_byte(one.intensity)}, "
        says += f"at most {percent(now.share)} of the peak"
        sets = "" if name == operation else f"operation={name}"
        marks.append(mark(at[0] - 9, max(at[1] - 9, 0), 18, 18, sets, says, name))
    return marks
