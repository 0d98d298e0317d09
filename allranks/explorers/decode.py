"""What bounds the next token? Reading, arithmetic and collectives of a decode step, and where that changes.

Above, the step on one clock: memory and arithmetic work at the same time, the collectives follow. Below, each
part against ranks or against sequences, both axes logarithmic: what bounds the token changes where two lines
cross. `allranks.inference.next_token` computes it: bounds from data sheets and NCCL's cost model.
"""

import math

from ..hardware import accelerator as device_of
from ..hardware import called
from ..inference import batch_knee, decode_memory, next_token, tensor_messages
from ..transformer import PRESETS
from .decode_chart import HIGH, LOOKS, chart, numbers
from .decode_measured import measured, published
from .frame.controls import Choice, Scale, powers_of_two
from .frame.svg import WIDE, line, mark, marks_over, picture, rectangle, text
from .frame.words import figures, percent, scaled, seconds

TITLE = "Decode: what bounds the next token"

MODELS = (
    ("llama3-8b", "Llama 3 8B"),
    ("llama3-70b", "Llama 3 70B"),
    ("llama3-405b", "Llama 3 405B"),
    ("llama2-7b", "Llama 2 7B"),
    ("llama2-13b", "Llama 2 13B"),
    ("llama2-70b", "Llama 2 70B"),
    ("mt-nlg-530b", "MT-NLG 530B"),
)
NVLINK = {"v100-32gb": 2, "a100-80gb": 3, "h100": 4, "h200": 4, "b200": 5, "b300": 5, "gb300": 5}
DEVICES = tuple((name, f"{called(name)}, {scaled(device_of(name).memory, 'B')}") for name in NVLINK)
LINKS = (
    ("nvlink", "NVLink"),
    ("pcie-5", "PCIe 5"),
    ("infiniband-ndr", "400 Gb/s network"),
)
ALGORITHMS = (("ring", "ring"), ("recursive_doubling", "recursive doubling"))
RANKS, SEQUENCES = powers_of_two(1, 64), powers_of_two(1, 1024, lambda each: f"{each:,}")
CONTROLS = (
    Choice("model", "model", MODELS, "llama3-70b"),
    Scale("sequences", "sequences", SEQUENCES, 1),
    Scale("context", "tokens of context", powers_of_two(128, 131072, lambda each: f"{each:,}"), 2048),
    Choice("accelerator", "accelerator", DEVICES, "h100"),
    Scale("ranks", "tensor-parallel ranks", RANKS, 8),
    Scale("stages", "pipeline stages", powers_of_two(1, 8), 1),
    Choice("link", "link", LINKS, "nvlink"),
    Choice("algorithm", "all-reduce", ALGORITHMS, "ring"),
    Choice("against", "lower chart against", (("ranks", "ranks"), ("sequences", "sequences")), "ranks"),
)
NAMES = {
    "weights": "reading the weights",
    "cache": "reading the cache",
    "arithmetic": "arithmetic",
    "latency": "the latency of messages",
    "bandwidth": "the bandwidth of the links",
}
LEFT, TOP, BAR, LANE = 84, 24, 20, 28


def draw(width, *, against, **given):
    """The step on a clock, the memory it needs, and its parts against ranks or sequences."""
    token = compute(given)
    marks = [text(0, 13, f"the next token: {seconds(token.seconds)}", bold=True)]
    marks += clock(token, (width - LEFT - 2) / token.seconds)
    drawn, top = room(width, TOP + 3 * LANE, held(given), capacity(given))
    key, top = legend(width, top + 24, token)
    values = [value for value, _ in (RANKS if against == "ranks" else SEQUENCES)]
    points = curve(given, against, values)
    full = [value for value, _ in points if held(dict(given, **{against: value})) > capacity(given)]
    knee = knee_of(given, against, points)
    rates = published(given) if against == "ranks" else []
    lower = chart(width, top + 20, against, values, points, full, (given[against], token), knee, rates)
    said = words(given, token) + knee_words(against, points, knee) + measured(given, token)
    alone = given["ranks"] == 1 and against == "sequences"
    touch = parts_of(given, token, width, top - 24)
    touch += numbers(width, top + 20, against, values, points, full, NAMES)
    idle = ["algorithm"] + (["link"] if given["stages"] == 1 else []) if alone else []
    return {
        "svg": picture(width, top + 20 + HIGH + 44, marks, drawn, key, lower),
        "text": said,
        "marks": marks_over(width, top + 20 + HIGH + 44, touch),
        "result": (seconds(token.seconds), "until each sequence has its next token"),
        "insight": insight(given, token),
        "idle": idle,
    }


def insight(given, token):
    """What bounds the token, and why, in a sentence; or that it cannot be."""
    if held(given) > capacity(given):
        return f"It does not fit: a device would have to hold {scaled(held(given), 'B')}."
    share = percent(getattr(token, token.bound) / token.seconds, 0)
    name = NAMES[token.bound][0].upper() + NAMES[token.bound][1:]
    return f"{name} takes {share} of the time: {why(given, token.bound)}."


def next_of(options, value, by):
    """The option `by` places after `value`, or the last there is."""
    values = [each for each, _ in options]
    return values[max(0, min(values.index(value) + by, len(values) - 1))]


def parts_of(given, token, width, bottom):
    """Places: the parts of the step, in the key; a click tries what makes one shorter, or shares it."""
    other = "recursive_doubling" if given["algorithm"] == "ring" else "ring"
    options = dict((control.name, control.options) for control in CONTROLS)
    more, fewer = (next_of(SEQUENCES, given["sequences"], by) for by in (1, -1))
    shorter, ranks = next_of(options["context"], given["context"], -1), next_of(RANKS, given["ranks"], 1)
    few = f"{fewer:,} sequence{'s' if fewer > 1 else ''}"
    tries = {
        "weights": (f"sequences={more}", f"{more:,} sequences, which share them"),
        "cache": (f"context={shorter}", f"{shorter:,} tokens of context"),
        "arithmetic": (f"ranks={ranks}", f"{ranks} ranks"),
        "latency": (f"algorithm={other}", dict(ALGORITHMS)[other]),
        "bandwidth": (f"sequences={fewer}", few),
    }
    columns = 3 if width == WIDE else 2
    marks = []
    for turn, (part, _, _) in enumerate(LOOKS):
        x, y = turn % columns * width / columns, bottom + turn // columns * 21
        sets, words = tries[part]
        took = seconds(getattr(token, part))
        marks.append(mark(x, y, width / columns - 4, 20, sets, f"{NAMES[part]}, {took}: try {words}", part))
    return marks


def compute(given, **changed):
    """The `NextToken` at the settings, or at changed ones."""
    model, device, link, options = arguments(dict(given, **changed))
    try:
        return next_token(model, device, link, **options)
    except ValueError as why:
        raise ValueError(f"ranks is refused: {why}")  # noqa: B904 (MicroPython chains no exceptions)


def arguments(given):
    """The settings as `next_token` wants them."""
    link = f"nvlink-{NVLINK[given['accelerator']]}" if given["link"] == "nvlink" else given["link"]
    options = {
        "ranks": given["ranks"],
        "sequences": given["sequences"],
        "past": given["context"],
        "stages": given["stages"],
        "algorithm": given["algorithm"],
        "dtype": "fp16",  # as fast as bf16, and a V100 has it too
    }
    return PRESETS[given["model"]], given["accelerator"], link, options


def clock(token, scale):
    """Three lanes: what is read, what is computed meanwhile, and the collectives after both."""
    marks, colours = [], {part: fill for part, fill, _ in LOOKS}
    start = {"weights": 0, "cache": token.weights, "arithmetic": 0, "latency": token.device}
    start["bandwidth"] = token.device + token.latency
    lanes = (
        ("memory", ("weights", "cache")),
        ("arithmetic", ("arithmetic",)),
        ("links", ("latency", "bandwidth")),
    )
    for row, (name, parts) in enumerate(lanes):
        y = TOP + LANE * row
        marks.append(text(0, y + 15, name, size=12, ink="ink-soft"))
        marks.append(rectangle(LEFT, y, token.seconds * scale, BAR, "tint"))
        for part in parts:
            x, long = LEFT + start[part] * scale, getattr(token, part) * scale
            marks.append(
                rectangle(x, y, long, BAR, colours[part], title=f"{part}: {seconds(getattr(token, part))}")
            )
            if part == token.bound:
                marks.append(rectangle(x, y - 2, max(long, 2), BAR + 4, None, "ink"))
            if long > 7 * len(part) + 10:
                marks.append(text(x + long / 2, y + 14.5, part, "middle", 12, "paper", part == token.bound))
    x = LEFT + token.device * scale
    marks.append(line(x, TOP - 4, x, TOP + 3 * LANE - 4, "ink", 1, "2 3"))
    return marks


def held(given):
    """Bytes of weights and cache on the device that stores most."""
    sizes = given["ranks"], given["stages"], given["sequences"], given["context"] + 1
    return sum(decode_memory(PRESETS[given["model"]], *sizes))


def capacity(given):
    """Bytes of memory of a device."""
    return device_of(given["accelerator"]).memory


def room(width, top, needed, most):
    """The memory that the device that stores most needs, of the memory it has, and where the row ends."""
    wide, over = width - LEFT - 2, needed > most
    scale, ink = wide / max(needed, most), "alarm" if over else "ink-soft"
    words = f"{scaled(needed, 'B')} of {scaled(most, 'B')}" + (": does not fit" if over else "")
    marks = [
        text(0, top + 11, "capacity", size=12, ink="ink-soft"),
        rectangle(LEFT, top + 1, wide, 12, "tint"),
        rectangle(LEFT, top + 1, needed * scale, 12, "grid-strong"),
        line(LEFT + most * scale, top - 3, LEFT + most * scale, top + 17, "alarm" if over else "ink", 2),
        text(LEFT, top + 29, words, size=12, ink=ink),
    ]
    return marks, top + 29


def legend(width, top, token):
    """Each part with its colour, its line and its seconds; the bound in bold; and where the words end."""
    columns = 3 if width == WIDE else 2
    cell, marks = width / columns, []
    for turn, (part, fill, dash) in enumerate(LOOKS):
        x, y = turn % columns * cell, top + turn // columns * 21
        marks.append(rectangle(x, y - 11, 14, 12, fill))
        marks.append(line(x + 18, y - 5, x + 42, y - 5, fill, 2.5, dash))
        own = part == token.bound
        says = f"{part} {seconds(getattr(token, part))}"
        marks.append(text(x + 48, y, says, size=12, ink="ink" if own else "ink-soft", bold=own))
    x, y = len(LOOKS) % columns * cell, top + len(LOOKS) // columns * 21
    marks.append(line(x + 18, y - 5, x + 42, y - 5, "ink", 3))
    marks.append(text(x + 48, y, f"next token {seconds(token.seconds)}", size=12))
    return marks, y + 8


# ---- the curve and the words ----


def curve(given, against, values):
    """Pairs (ranks or sequences, `NextToken`): of the `values`, those that the model can be cut for."""
    points = []
    for value in values:
        try:
            token = compute(given, **{against: value})
        except ValueError:  # heads or vocabulary cannot be shared so
            continue
        points.append((value, token))
    return points


def knee_of(given, against, points):
    """(number, `NextToken`): the fastest ranks, or the sequences where the bound changes; or None."""
    if against == "ranks":
        return min(points, key=lambda point: point[1].seconds)
    model, device, link, options = arguments(given)
    del options["sequences"]
    knee = batch_knee(model, device, link, SEQUENCES[-1][0], **options)
    return knee and (knee, compute(given, sequences=knee))


def words(given, token):
    """How fast it is, what bounds the token, and why."""
    many, ranks, stages = given["sequences"], given["ranks"], given["stages"]
    device = dict(DEVICES)[given["accelerator"]].split(",")[0]
    where = f"on {ranks * stages} {device}s" if ranks * stages > 1 else f"on one {device}"
    where += f" in {stages} stages" if stages > 1 else ""
    share = percent(getattr(token, token.bound) / token.seconds, 0)
    said = (
        f"{dict(MODELS)[given['model']]} {where}, {many:,} sequence{'s' if many > 1 else ''} of "
        f"{given['context']:,} tokens: the next token takes {seconds(token.seconds)}. "
        f"A user gets {figures(1 / token.seconds)} tokens a second; a device generates "
        f"{figures(many / token.seconds / ranks / stages)}. "
        f"What takes longest is {NAMES[token.bound]}, {share} of the time: {why(given, token.bound)}. "
    )
    if held(given) > capacity(given):
        said += f"It does not fit: a device would have to hold {scaled(held(given), 'B')}. "
    return said


def why(given, bound):
    """The reason why a part of the step is long."""
    ranks, stages = given["ranks"], given["stages"]
    sent = tensor_messages(PRESETS[given["model"]], -(-given["sequences"] // stages))
    if bound == "weights":
        return "each is read once, however many sequences share the pass"
    if bound == "cache":
        return "each sequence reads its own, so a larger batch shares nothing"
    if bound == "arithmetic":
        return "with so many sequences, computing takes longer than reading"
    if ranks == 1:
        return f"{stages} messages go from stage to stage"
    if bound == "bandwidth":
        return f"{sent.all_reduces} all-reduces carry {scaled(sent.nbytes, 'B')} each"
    hops = 2 * (ranks - 1) if given["algorithm"] == "ring" else int(math.log2(ranks) + 0.5)
    return (
        f"{sent.all_reduces} all-reduces take {hops} hop{'s' if hops > 1 else ''} each, however fast the link"
    )


def knee_words(against, points, knee):
    """Where the curve turns, in a sentence."""
    if against == "sequences":
        if knee is None:
            return f"This does not change up to {SEQUENCES[-1][0]:,} sequences."
        number, token = knee
        before = NAMES[points[0][1].bound]
        return f"The knee is at {number:,} sequences, where {NAMES[token.bound]} overtakes {before}."
    best, token = knee
    more = "; with more, messages cost more than they save" if best < points[-1][0] else ""
    return f"The fastest number of ranks is {best}, with {seconds(token.seconds)}{more}."
