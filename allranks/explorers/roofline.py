"""What can an operation reach on one device? Its point under the roof, and what it lacks to the ridge.

Both axes are logarithmic: FLOPs for each byte that crosses the memory's bus, and FLOPs a second. Below, the
time that arithmetic and memory take alone. `allranks.roofline` and `allranks.inference` count.
"""

import math

from ..hardware import ACCELERATORS, called, peak, ridge
from ..inference.roofline import step
from ..roofline import Operation, addition, product, reached
from ..transformer import PRESETS
from .controls import Choice, Scale, powers_of_two
from .lettering import legible
from .svg import WIDE, block, circle, line, mark, marks_over, number, path, picture, rectangle, text
from .words import figures, percent, scaled, seconds

TITLE = "The roofline of one device"

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
DTYPES = {"fp4": 0.5, "fp8": 1, "bf16": 2, "fp16": 2, "tf32": 4, "fp32": 4}
DEVICES = tuple((name, "A100 40 GB" if name == "a100-40gb" else called(name)) for name in ACCELERATORS)
MODELS = (
    ("gpt3-175b", "GPT-3 175B"),
    ("llama3-405b", "Llama 3 405B"),
    ("llama3-70b", "Llama 3 70B"),
    ("llama3-8b", "Llama 3 8B"),
    ("gpt2", "GPT-2"),
    ("own", "own numbers"),
)
SIZES = powers_of_two(64, 65_536, lambda each: f"{each:,}")
CONTROLS = (
    Choice("operation", "operation", OPERATIONS, "product"),
    Scale("tokens", "tokens or sequences", powers_of_two(1, 8192, lambda each: f"{each:,}"), 2048),
    Choice("device", "device", DEVICES, "h100"),
    Choice("dtype", "numbers in", tuple((name, name) for name in DTYPES), "bf16"),
    Choice("model", "sizes of", MODELS, "gpt3-175b"),
    Scale("inner", "own product: rows k", SIZES, 4096),
    Scale("columns", "own product: columns n", SIZES, 16_384),
    Scale("past", "tokens in the cache", powers_of_two(128, 2**17, lambda each: f"{each:,}"), 1024),
)
LOW, HIGH = 0.03, 1e5  # FLOPs a byte
SLOW, FAST = 1e10, 2e16  # FLOPs a second
TALL, LEFT = 232, 44


def draw(width, *, operation, tokens, device, dtype, model, inner, columns, past):
    """The roof of the device, all operations under it, and what bounds the chosen one."""
    if dtype not in ACCELERATORS[device].peak:
        known = ", ".join(sorted(ACCELERATORS[device].peak))
        raise ValueError(f"dtype must be one of {known} on {dict(DEVICES)[device]}, not {dtype}")
    sizes = (tokens, DTYPES[dtype], model, inner, columns, past)
    shown = [(name, counted(name, *sizes)) for name, _ in OPERATIONS]
    one = dict(shown)[operation]
    now = reached(one, device, dtype)
    axes = Axes(width, 24)
    marks = grid(axes)
    marks += roofs(axes, device, dtype)
    marks += points(axes, shown, operation, device, dtype)
    marks += gap(axes, one, now, device, dtype)
    times, bottom = bars(width, axes.bottom + 58, now)
    over = places(axes, shown, operation, device, dtype)
    idle = [] if model == "own" and operation == "product" else ["inner", "columns"]
    if operation != "decode":
        idle.append("past")
    if operation in ("decode", "prefill", "scores", "addition") and model == "own":
        idle.append("model")
    named = dict(DEVICES)[device]
    head = f"{dict(OPERATIONS)[operation]}, {dtype}, {named}"
    return {
        "svg": legible(picture(width, bottom, text(0, 14, head, bold=True), marks, times), width),
        "text": said(one, now, operation, tokens, device, dtype),
        "marks": marks_over(width, bottom, over),
        "result": result(now),
        "insight": insight(one, now, operation, device),
        "idle": idle,
    }


def counted(name, tokens, element, model, inner, columns, past):
    """The `Operation` of this name; own numbers are for a product, the others then are Llama 3 8B's."""
    shape = PRESETS["llama3-8b" if model == "own" else model]
    if name == "product":
        if model == "own":
            return product(tokens, inner, columns, element)
        return product(tokens, shape.hidden, shape.feed_forward, element)
    if name == "scores":
        return product(tokens, shape.head_width, tokens, element, shape.heads)
    if name == "addition":
        return addition(tokens * shape.hidden, element)
    new = (1, past, tokens) if name == "decode" else (tokens, 0, 1)
    made = step(shape, *new, element=element)
    return Operation(made.flops, made.nbytes)


# ---- the picture ----


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


# ---- the words ----


def result(now):
    """The share of the peak that can be reached, and what bounds it."""
    if now.missing:
        return percent(now.share, decimals(now.share)), "of the peak at most: memory is too slow"
    return percent(1, 0), "of the peak at most: arithmetic takes longer than memory"


def a_byte(intensity):
    """An intensity with its unit."""
    said = figures(intensity)
    return f"{said} FLOP{'s' * (said != '1')} a byte"


def decimals(share):
    """As many as show something: two below one per cent."""
    return 2 if share < 0.01 else 1


MORE = {
    "product": "more tokens would share each weight that is read",
    "scores": "do not write the scores: compute attention in tiles",
    "addition": "no size helps, only fusing it with its neighbours",
    "decode": "more sequences would share the weights, but each reads a cache of its own",
    "prefill": "a longer prompt would share each weight that is read",
}


def insight(one, now, operation, device):
    """What bounds the operation, and what would change that."""
    if operation in ("decode", "prefill") and one.nbytes > ACCELERATORS[device].memory:
        held = scaled(ACCELERATORS[device].memory, "B")
        return f"Weights and cache do not fit into {held}: fewer sequences, a smaller model or more devices."
    if not now.missing:
        return "Each byte is used often enough: only a faster device or a narrower format would help."
    ratio = now.memory / now.arithmetic
    return f"Memory takes {figures(ratio)} times as long as arithmetic: {MORE[operation]}."


def said(one, now, operation, tokens, device, dtype):
    """The numbers of the picture in words."""
    what = "sequence" if operation == "decode" else "token"
    words = f"{dict(OPERATIONS)[operation]}, {tokens:,} {what}{'s' * (tokens > 1)}, in {dtype} on "
    words = words[0].upper() + words[1:]
    words += f"{dict(DEVICES)[device]}: {scaled(one.flops, 'FLOP')} and {scaled(one.nbytes, 'B')}, "
    words += f"{a_byte(one.intensity)}. "
    words += f"The ridge is at {figures(ridge(device, dtype))}"
    words += f"; {figures(now.missing)} are missing. " if now.missing else ". "
    words += f"Arithmetic takes {seconds(now.arithmetic)}, memory {seconds(now.memory)}; "
    share = percent(now.share, decimals(now.share)) if now.missing else percent(1, 0)
    return words + f"at most {share} of {scaled(peak(device, dtype), 'FLOP/s')} can be reached."
