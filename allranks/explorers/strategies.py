"""Six ways to cut one small network over four ranks: who holds what, and who sends what when.

A column is a rank: the top row its part of the tokens, below it its part of each layer. Pale is what it has
only for the moment. Arrows are the call that is shown, the row of blocks all calls of a step.
"""

from ..strategies import calls, holds, sent_bytes, states_bytes
from .frame.controls import Choice, Scale, Steps, powers_of_two
from .frame.lettering import legible
from .frame.svg import WIDE, block, line, mark, marks_over, number, path, picture, rectangle, text
from .frame.words import fixed

TITLE = "One network, cut in six ways"

NAMES = (
    ("data", "data parallel"),
    ("sharded", "sharded states"),
    ("tensor", "tensor parallel"),
    ("pipeline", "pipeline"),
    ("sequence", "sequence parallel"),
    ("experts", "experts"),
)
CONTROLS = (
    Choice("strategy", "strategy", NAMES, "data"),
    Steps("step", "call", 1),
    Scale("tokens", "tokens", powers_of_two(4, 1024), 16),
    Scale("neurons", "neurons of a layer", powers_of_two(8, 1024), 32),
    Scale("hidden", "numbers a token", powers_of_two(4, 256), 8),
)
RANKS = 4
KINDS = (  # a call's words and its colour
    ("all_reduce", ("all-reduce", "comm")),
    ("all_gather", ("all-gather", "forward")),
    ("reduce_scatter", ("reduce-scatter", "backward-input")),
    ("all_to_all", ("all-to-all", "rank-5")),
    ("send", ("sends", "rank-6")),
)
SHAPES = dict(KINDS)


def draw(width, *, strategy, step, tokens, neurons, hidden):
    """The four ranks at one call of the step."""
    sizes = {"tokens": tokens, "neurons": neurons, "hidden": hidden}
    made = calls(strategy, **sizes)
    step = min(step, len(made))
    now = made[step - 1] if step else None
    held, each = states_bytes(strategy, hidden, neurons), sent_bytes(strategy, **sizes)
    top, cell = 46, (22 if width == WIDE else 17)
    said_now = headline(now, step, len(made))
    said_now = (said_now,) if width == WIDE else said_now.split(": ", 1)
    down = 17 * (width != WIDE)
    marks = [text(0, 14 + 17 * i, part, bold=True) for i, part in enumerate(said_now)]
    keys = "top row: parts of the tokens; below: parts of four layers; pale: only for this call"
    for i, part in enumerate((keys,) if width == WIDE else keys.split("; pale")):
        marks.append(text(0, 32 + down + 16 * i, part if not i else f"pale{part}", size=12, ink="ink-soft"))
    top += 0 if width == WIDE else 33
    for rank in range(RANKS):
        marks += column(width, top, cell, rank, strategy, now)
    middle = top + 26 + 5 * cell + 42
    marks += arrows(width, middle, now)
    strip, bottom = calls_row(width, middle + 46, made, step)
    over = [
        mark(*at, f"step={i + 1}", words_of(each_call, i + 1), each_call.operation)
        for i, (at, each_call) in enumerate(zip(boxes(width, middle + 46, len(made)), made))
    ]
    for rank in range(RANKS):
        parts, _ = holds(strategy, rank)
        words = f"rank {rank}: {len(parts)} of 4 parts of the tokens, {said_bytes(held)} of states, "
        words += f"sends {said_bytes(each[rank])} in a step"
        over.append(mark(rank * width / RANKS, top, width / RANKS - 8, 26 + 5 * cell, "", words))
    return {
        "svg": legible(picture(width, bottom, marks, strip), width),
        "text": said(strategy, made, held, each, now, step),
        "marks": marks_over(width, bottom, over),
        "result": (said_bytes(max(each)), f"sent by a rank in a step; it holds {said_bytes(held)} of states"),
        "insight": INSIGHTS[strategy],
        "steps": len(made) + 1,
    }


INSIGHTS = {
    "data": "Gradients travel once a step: more tokens add no traffic, but every rank holds everything.",
    "sharded": "Weights travel to the tokens twice a step, and gradients back: more tokens add no traffic.",
    "tensor": "Weights stay, activations travel: more neurons add no traffic, but all ranks wait each time.",
    "pipeline": "Messages go to a neighbour, which suits slow links. The price is waiting, at both ends.",
    "sequence": "This is tensor parallelism, but between layers a rank keeps only its part of the tokens.",
    "experts": "Tokens travel to the layer that they visit. If many choose one, its rank has the most work.",
}


def column(width, top, cell, rank, strategy, now):
    """What a rank holds, and in pale what it has for the moment."""
    tokens, layers = holds(strategy, rank)
    labels = width == WIDE
    x = rank * width / RANKS + (63 if labels else 4)
    marks = [text(x + 2 * cell - 2, top + 12, f"rank {rank}", "middle", 12, bold=True)]
    whole_tokens = now is not None and strategy == "sequence" and now.operation == "all_gather"
    for row in range(RANKS + 1):
        y = top + 20 + row * cell + (6 if row else 0)
        have = layers[row - 1] if row else tokens
        pale = whole_tokens if not row else bool(now and now.carries == "weights" and now.layer == row - 1)
        active = now is not None and row > 0 and now.layer == row - 1
        if labels:
            words = "tokens" if not row else f"layer {row}"
            ink = "ink" if active else "ink-soft"
            marks.append(text(x - 8, y + cell / 2 + 2, words, "end", 12, ink, active))
        for part in range(RANKS):
            at = (x + part * cell, y, cell - 4, cell - 4)
            fill = f"rank-{rank}" if part in have else "tint"
            marks.append(rectangle(*at, fill, None if part in have else "grid"))
            if pale and part not in have:
                marks.append(rectangle(*at, f"rank-{part}", None, None, 0.35))
    return marks


def arrows(width, middle, now):
    """Who sends to whom: to the right above the line, to the left below it."""
    centre = [rank * width / RANKS + (63 + 42 if width == WIDE else 4 + 32) for rank in range(RANKS)]
    marks = [line(centre[0], middle, centre[-1], middle, "grid")]
    for rank in range(RANKS):
        marks.append(block(centre[rank] - 4, middle - 4, 8, 8, f"rank-{rank}"))
    if now is None:
        return marks
    for source, target in now.pairs:
        x0, x1, far = centre[source], centre[target], abs(target - source)
        way = 1 if target > source else -1
        x0, x1, y = x0 + 7 * way, x1 - 7 * way, middle - 6 * way
        high = y - way * (18 + 14 * far)
        ink = SHAPES[now.operation][1]
        marks.append(
            path(
                f"M{number(x0)} {number(y)}Q{number((x0 + x1) / 2)} {number(high)} {number(x1)} {number(y)}",
                ink,
            )
        )
        tip = f"M{number(x1)} {number(y)}l{-8 * way} {-7 * way}l{-1 * way} {8 * way}z"
        marks.append(path(tip, None, fill=ink))
    return marks


def boxes(width, top, count):
    """Where the blocks of the calls lie: (x, y, width, height) each."""
    step = min(width / count, 90)
    return [(i * step, top, step - 3, 20) for i in range(count)]


def calls_row(width, top, made, step):
    """All calls of the step in order, those to come in pale; (marks, where they end)."""
    marks = []
    for i, (at, call) in enumerate(zip(boxes(width, top, len(made)), made)):
        opacity = None if i < step else 0.3
        marks.append(rectangle(*at, SHAPES[call.operation][1], None, None, opacity))
        if i == step - 1:
            marks.append(rectangle(at[0], top + 22, at[2], 3, "ink"))
    for phase in ("forward", "backward"):
        first = [i for i, call in enumerate(made) if call.phase == phase]
        if first:
            x = boxes(width, top, len(made))[first[0]][0]
            marks.append(text(x, top + 41, phase, size=12, ink="ink-soft"))
    kinds = []
    for call in made:
        if call.operation not in kinds:
            kinds.append(call.operation)
    x = 0
    for kind in kinds:
        marks.append(block(x, top + 53, 13, 12, SHAPES[kind][1]))
        marks.append(text(x + 18, top + 64, SHAPES[kind][0], size=12, ink="ink-soft"))
        x += 135 if width == WIDE else 116
    return marks, top + 72


def said_bytes(nbytes):
    """Bytes in full: the networks here are small."""
    return f"{fixed(nbytes, 0)} B"


def headline(now, step, count):
    """The call that is shown."""
    if now is None:
        return f"before the step: {count} call{'s' * (count > 1)} to come"
    return words_of(now, step)


def words_of(call, step):
    """A call in words."""
    operation = SHAPES[call.operation][0]
    where = f", layer {call.layer + 1}" if call.layer is not None else ""
    return f"{step}, {call.phase}{where}: {operation} of {call.carries}, {said_bytes(call.nbytes)}"


def said(strategy, made, held, each, now, step):
    """The numbers of the picture in words."""
    counts = {}
    for call in made:
        counts[call.operation] = counts.get(call.operation, 0) + len(call.pairs) ** (call.operation == "send")
    kinds = " and ".join(
        f"{counts[name]} {'messages' if name == 'send' else words + 's' * (counts[name] > 1)}"
        for name, (words, _) in KINDS
        if name in counts
    )
    words = dict(NAMES)[strategy]
    words = f"{words[0].upper()}{words[1:]} on four ranks: each holds {said_bytes(held)} of states. "
    words += f"A step has {kinds}; a rank sends at most {said_bytes(max(each))}."
    if now is not None:
        words += f" Call {words_of(now, step)}; a rank sends at most {said_bytes(max(now.sent))}."
    return words
