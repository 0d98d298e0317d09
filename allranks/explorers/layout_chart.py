"""How is the price of a layout drawn? Two bars, the groups on two nodes, and a list of changes."""

from .frame.svg import WIDE, block, line, mark, rectangle, text
from .frame.words import percent, scaled, seconds

HELD = (  # a part of the memory, its words, its colour
    ("weights", "weights", "forward"),
    ("gradients", "gradients", "backward-input"),
    ("optimizer", "optimizer", "backward-weight"),
    ("activations", "activations", "rank-5"),
    ("recomputed", "recomputed", "rank-4"),
    ("buffers", "buffers", "comm"),
)
TOOK = (
    ("compute", "compute", "forward"),
    ("recomputation", "recomputation", "backward-input"),
    ("imbalance", "uneven stages", "rank-4"),
    ("tensor", "tensor messages", "comm"),
    ("context", "context messages", "rank-6"),
    ("pipeline", "stage to stage", "rank-7"),
    ("data", "data messages", "rank-5"),
    ("bubble", "bubble", "grid-strong"),
    ("optimizer", "optimizer", "backward-weight"),
)
BAR = 24
LETTERS = {"tensor": "t", "pipeline": "p", "context": "c", "microbatch": "b", "chunks": "v", "stage": "ZeRO"}


def rows_below(width, parts):
    """How many parts stand in a line of the key, and how many lines that makes."""
    across = 3 if width == WIDE else 2
    return across, -(-len(parts) // across)


def chart(width, top, now, name):
    """The bar of the memory and the bar of the time, each with its key; returns (marks, where they end)."""
    room, held = now.capacity, now.memory.total
    fits, ink = ("fits", "ink") if now.fits else ("does not fit", "alarm")
    what = "memory of the device that stores most" if width == WIDE else "memory"
    marks = [text(0, top, what, size=12, ink="ink-soft")]
    head = f"{scaled(held, 'B')} of {scaled(room, 'B')}: {fits}"
    marks.append(text(width, top, head, "end", None, ink, True))
    scale = width / (1.04 * max(held, room))
    marks += bar(top + 7, width, scale, HELD, now.memory)
    edge = room * scale
    marks.append(line(edge, top + 3, edge, top + 11 + BAR, "paper", 5))
    marks.append(line(edge, top + 3, edge, top + 11 + BAR, "ink", 2, "5 2"))
    key, top = legend(width, top + 7 + BAR + 20, HELD, now.memory, lambda each: scaled(each, "B"))
    marks += key
    marks.append(text(0, top + 8, f"a step on each {name}", size=12, ink="ink-soft"))
    head = f"{seconds(now.seconds)}, MFU {percent(now.mfu, 0)}"
    marks.append(text(width, top + 8, head, "end", None, "ink", True))
    marks += bar(top + 15, width, width / now.seconds, TOOK, now.parts)
    key, top = legend(width, top + 15 + BAR + 20, TOOK, now.parts, seconds)
    return marks + key, top + 8


def bar(top, width, scale, parts, amounts):
    """The parts side by side."""
    marks, x = [rectangle(0, top, width, BAR, "tint")], 0
    for name, _, fill in parts:
        wide = getattr(amounts, name) * scale
        if wide >= 0.5:
            marks.append(block(x, top, max(wide - 1, 0.5), BAR, fill))
        x += wide
    return marks


def legend(width, top, parts, amounts, words):
    """Each part with its colour and amount; returns (marks, where they end)."""
    across, lines = rows_below(width, parts)
    marks, step = [], width / across
    for turn, (name, says, fill) in enumerate(parts):
        x, y, amount = turn % across * step, top + turn // across * 19, getattr(amounts, name)
        ink = "ink" if amount else "ink-soft"
        marks.append(block(x, y - 11, 13, 12, fill))
        marks.append(text(x + 18, y, says, size=12, ink=ink))
        marks.append(text(x + step - 12, y, words(amount) if amount else "–", "end", 12, ink))
    return marks, top + lines * 19


def places(width, top, now, tried):
    """Places: each part in its bar and in the key; a click makes the change that shrinks it most."""
    marks = []
    room = 1.04 * max(now.memory.total, now.capacity)
    for parts, amounts, scale, of in (
        (HELD, now.memory, width / room, lambda price: price.memory),
        (TOOK, now.parts, width / now.seconds, lambda price: price.parts),
    ):
        across, lines = rows_below(width, parts)
        step, x = width / across, 0
        said = seconds if parts is TOOK else lambda each: scaled(each, "B")
        for turn, (name, says, _) in enumerate(parts):
            amount = getattr(amounts, name)
            sets, words = "", f"{says}: {said(amount) if amount else 'none'}"
            smaller = [
                (getattr(of(price), name), i)
                for i, (_, _, _, price) in enumerate(tried)
                if getattr(of(price), name) < 0.995 * amount
            ]
            if smaller:
                moved, value, change, _ = tried[min(smaller)[1]]
                sets, words = f"{moved}={value}", f"{words}; least with {change}"
            wide = amount * scale
            if wide >= 8:
                marks.append(mark(x, top + 7, wide, BAR, sets, words, name))
            x += wide
            at = turn % across * step, top + BAR + 14 + turn // across * 19
            marks.append(mark(*at, step - 6, 18, sets, words, name))
        top += 15 + BAR + 20 + lines * 19
    return marks


def mesh_rows(width, top, rows):
    """Whom device 0 talks to, axis by axis, on the first two nodes; (marks, where they end, places)."""
    cell, left, end = (13, 76, 420) if width == WIDE else (10, 66, width)
    marks = [text(0, top + 12, "whom device 0 talks to; how long the step waits", size=12, ink="ink-soft")]
    touch, y = [], top + 22
    for letter, part, size, mine, members, waits in rows:
        marks.append(text(0, y + 13, f"{letter} × {size}", size=12, bold=size > 1))
        for rank, own in enumerate(mine):
            x = left + rank * cell + rank // 8 * 6
            fill = ("ink" if not rank else "comm") if own and size > 1 else "idle"
            marks.append(block(x, y + 2, cell - 1.5, 14, fill))
        link = "" if size == 1 else "in a node" if members == size else "network"
        marks.append(text(left + 16 * cell + 12, y + 13, link, size=12, ink="ink-soft"))
        took = seconds(waits) if waits else "–"
        marks.append(text(end, y + 13, took, "end", 12, "ink" if waits else "ink-soft"))
        where = "nobody" if size == 1 else f"{size} devices, {members} of them in a node"
        words = f"{part} parallel: {where}; the step waits {seconds(waits)} for its messages"
        touch.append(mark(0, y, end, 19, "", words, part))
        y += 20
    return marks, y + 8, touch


def changes(width, top, now, found):
    """The best changes of one setting; (marks, where they end, places)."""
    x, most = (442, 4) if width == WIDE else (0, 3)
    says = "faster with one change" if now.fits else "with one change"
    marks, touch, y = [text(x, top + 12, says, size=12, ink="ink-soft")], [], top + 22
    if not found:
        marks.append(text(x, y + 13, "none: try two at once", size=12))
    for name, value, words, price in found[:most]:
        ink = "ink" if price.fits else "alarm"
        short = f"recompute {words.split(' → ')[1]}" if name == "recomputation" else words
        if name in LETTERS:
            short = words[words.index(LETTERS[name] + " ") :].replace("ZeRO stage", "ZeRO")
        marks.append(rectangle(x, y, width - x, 18, "tint", "grid"))
        marks.append(text(x + 6, y + 13, short, size=12, ink="accent", bold=True))
        took = seconds(price.seconds) if price.fits else scaled(price.memory.total, "B")
        marks.append(text(width - 6, y + 13, took, "end", 12, ink))
        fits = "fits" if price.fits else "does not fit"
        label = f"{words}: {scaled(price.memory.total, 'B')}, {seconds(price.seconds)}, {fits}; take it"
        touch.append(mark(x, y, width - x, 19, f"{name}={value}", label, name))
        y += 20
    return marks, top + 22 + 20 * most + 8, touch
