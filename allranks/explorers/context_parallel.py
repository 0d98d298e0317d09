"""Who computes which part of the attention matrix when the sequence is split, hop by hop around the ring?

Above, the matrix: a row for the queries of each part of the sequence, a column for its keys, coloured and
numbered by the rank that owns the queries. Below, the ranks on one clock: a bar is the work of a hop, as long
as its pairs of query and key, and a hop begins when the slowest rank has done the last. Pairs, bytes and the
efficiency are those of `allranks.attention`.
"""

from ..attention import (
    hop_bytes,
    rank_pairs,
    ring_bytes,
    ring_efficiency,
    ring_pairs,
    spans,
)
from .frame.controls import Choice, Integer, Scale, Steps, Toggle, powers_of_two
from .frame.handles import handle, handles_over
from .frame.svg import WIDE, line, mark, marks_over, number, path, picture, rectangle, text
from .frame.words import figures, fixed, percent, scaled

TITLE = "Context parallelism: the attention matrix and its owners"

SPLITS = (("contiguous", "contiguous"), ("zigzag", "zig-zag"))


def tokens(count):
    """A length of the sequence in words: 131,072 is 128 Ki."""
    return f"{count // 1024} Ki" if count < 2**20 else f"{count // 2**20} Mi"


CONTROLS = (
    Choice("split", "split", SPLITS, "contiguous"),
    Toggle("causal", "causal mask", True),
    Scale("context_parallel", "ranks p", powers_of_two(1, 8), 4),
    Scale("sequence", "tokens s", powers_of_two(1024, 2**20, tokens), 2**17),
    Scale("kv_heads", "key and value heads", powers_of_two(1, 128), 8),
    Integer("head_width", "head width", 64, 256, 128),
    Steps("step", "hop (0 shows all)", 0),
)
LEFT = 54


def draw(width, *, split, causal, context_parallel, sequence, kv_heads, head_width, step):
    """The matrix and the clock, at one hop or over all of them."""
    p, step = context_parallel, min(step, context_parallel)
    setting = (sequence, p, split, causal)
    hops, hop = ring_pairs(*setting), step - 1
    marks, top = matrix(width, setting, hop)
    touch = squares(width, setting, hop)
    if width == WIDE:
        marks += aside(450, 34, 270, setting, hop)
    else:
        marks += aside(0, top + 34, width, setting, hop)
        top += 34 + 12 + 24 * p
    touch += hop_places(width, top + 42, hops, hop)
    held = (boundary(width, setting), hop_hand(width, top + 42, hops, step))
    drawn, bottom = clock(width, top + 42, hops, hop)
    sent = hop_bytes(sequence, p, kv_heads, head_width)
    carried = ring_bytes(sequence, p, kv_heads, head_width)
    legend = "k0: keys and values of rank 0; empty: waiting"
    marks.append(text(0, bottom + 8, legend, size=12, ink="ink-soft"))
    marks.append(text(0, bottom + 27, carries(p, sent, carried), size=12, ink="ink-soft"))
    return {
        "svg": picture(width, bottom + 38, marks, drawn),
        "text": said(setting, hop, sent, carried),
        "marks": marks_over(width, bottom + 38, touch),
        "handles": handles_over(width, bottom + 38, held),
        "result": (
            percent(ring_efficiency(*setting)),
            "of the time is work, if each hop waits for the slowest",
        ),
        "insight": insight(setting),
        "steps": p + 1,
        "idle": [],
    }


def insight(setting):
    """Why the work is equal or not, in a sentence."""
    _, p, split, causal = setting
    if p == 1:
        return "One rank has the whole sequence, and nothing is sent."
    if not causal:
        return "Without a mask every query sees every key, so every split shares the work equally."
    if split == "zigzag":
        return "Each rank has an early and a late part of the sequence: all have the same work at each hop."
    work = rank_pairs(*setting)
    ratio = figures(work[-1] / work[0])
    return f"The last rank has {ratio} times the pairs of the first, and each hop waits for the slowest."


def carries(p, sent, carried):
    """What the ring carries, in a line."""
    if p == 1:
        return "one rank has all keys and values: nothing is sent"
    return f"sent by a rank: {scaled(sent, 'B')} a hop, {scaled(carried, 'B')} in {p - 1}"


def owners(setting):
    """The parts of the sequence, 2p of them, each (first, one after the last, rank)."""
    sequence, p, split, _ = setting
    half = sequence // (2 * p)
    parts = []
    for rank in range(p):
        for first, end in spans(sequence, p, split, rank):
            parts += [(at, at + half, rank) for at in range(first, end, half)]
    return sorted(parts)


def matrix(width, setting, hop):
    """The attention matrix, and where it ends. Before and after `hop` (−1: no hop is chosen) it is pale."""
    p, causal = setting[1], setting[3]
    side = 360 if width == WIDE else 300
    parts, cell = owners(setting), side / (2 * p)
    marks = [text(LEFT, 14, "keys of rank", size=12, ink="ink-soft")]
    solid = [[] for _ in range(p)]
    pale = [[] for _ in range(p)]
    labels, grid = [], []
    for row, (_, _, rank) in enumerate(parts):
        y = 40 + row * cell
        label = text(LEFT - 8, y + cell / 2 + 4, f"rank {rank}", "end", 12, "ink-soft")
        marks.append(label)
        for column, (_, _, owner) in enumerate(parts):
            x = LEFT + column * cell
            if row == 0:
                marks.append(text(x + cell / 2, 32, owner, "middle", 12, "ink-soft"))
            if causal and column > row:
                continue
            now = hop < 0 or (rank - owner) % p == hop
            size, at = number(cell - 1), f"M{number(x)} {number(y)}"
            half = causal and column == row
            shape = f"{at}v{size}h{size}z" if half else f"{at}h{size}v{size}h-{size}z"
            (solid if now else pale)[rank].append(shape)
            if now:
                down = 0.72 if half and cell > 30 else 0.78 if half else 0.5
                along = 0.28 if half else 0.5
                place = y + cell * down + 4
                labels.append(text(x + cell * along, place, rank, "middle", 11, "paper", True))
    back = rectangle(LEFT, 40, side - 1, side - 1, "tint")
    for rank in range(p):
        fill = f"rank-{rank}"
        if pale[rank]:
            faded = path("".join(pale[rank]), None, fill=fill)
            grid.append(f'<g opacity=".22">{faded}</g>')
        if solid[rank]:
            grid.append(path("".join(solid[rank]), None, fill=fill))
    return [back] + marks + grid + labels, 40 + side


def squares(width, setting, hop):
    """Places: the squares of the matrix while they are few; a click goes to the hop that computes one."""
    p, causal = setting[1], setting[3]
    side = 360 if width == WIDE else 300
    parts, cell, marks = owners(setting), side / (2 * p), []
    for row, (_, _, rank) in enumerate(parts if p <= 4 else ()):
        for column, (_, _, owner) in enumerate(parts):
            if causal and column > row:
                continue
            when = (rank - owner) % p
            words = f"queries of rank {rank}, keys of rank {owner}: computed at hop {when}"
            sets = f"step={0 if when == hop else when + 1}"
            x, y = LEFT + column * cell, 40 + row * cell
            marks.append(mark(x, y, cell - 1, cell - 1, sets, words, f"h{when}"))
    return marks


def hop_places(width, top, hops, hop):
    """Places: the hops on the clock; a click goes to one, or back to all."""
    p, end, start, marks = len(hops), sum(max(each) for each in hops), 0, []
    row, room = 26 if p <= 4 else 20, width - LEFT - 4
    for index, pairs in enumerate(hops):
        busy = sum(each > 0 for each in pairs)
        words = f"hop {index}: {busy} of {p} ranks compute"
        sets = f"step={0 if index == hop else index + 1}"
        x, wide = LEFT + room * start / end, room * max(pairs) / end
        marks.append(mark(x, top + 8, wide - 1, 18 + p * row, sets, words, f"h{index}"))
        start += max(pairs)
    return marks


def boundary(width, setting):
    """A grip where the first part of rank 0 ends: with more ranks it ends earlier."""
    sequence, p, split, _ = setting
    side, halves = 360 if width == WIDE else 300, 1 if split == "contiguous" else 2
    places = [(ranks, LEFT + side / (halves * ranks)) for ranks in (1, 2, 4, 8)]
    words = f"{sequence // (halves * p):,} tokens, {p} rank{'s' if p > 1 else ''}"
    label = "end of rank 0's part of the tokens"
    return handle(width, "context_parallel", label, "x", places, p, 31, words, (22, 40 + side))


def hop_hand(width, top, hops, step):
    """A grip on the clock of the ring, at the end of the hop that is shown; at its end, where all are."""
    end, start, room, places = sum(max(each) for each in hops), 0, width - LEFT - 4, []
    row = 26 if len(hops) <= 4 else 20
    for index, pairs in enumerate(hops):
        places.append((index + 1, LEFT + room * (start + max(pairs) / 2) / end))
        start += max(pairs)
    places.append((0, LEFT + room))
    words = f"hop {step - 1}" if step else "all hops"
    bottom = top + 26 + len(hops) * row
    return handle(
        width,
        "step",
        "hop on the clock",
        "x",
        places,
        step,
        bottom,
        words,
        (top + 22, bottom) if step else None,
    )


def aside(x, y, width, setting, hop):
    """What each rank computes, of all pairs, and whose keys it has at `hop`."""
    p, work = setting[1], rank_pairs(*setting)
    total, most = sum(work), max(work)
    heading = "work of each rank" if hop < 0 else f"hop {hop}: whose keys a rank has"
    marks, y = [text(x, y - 2, heading, bold=True)], y + 14
    for rank in range(p):
        at = y + 24 * rank
        marks.append(text(x, at + 14, f"rank {rank}", size=12, ink="ink-soft"))
        left, room = x + 54, width - 54 - 66
        if hop < 0:
            size = room * work[rank] / most
            marks.append(rectangle(left, at, size, 19, f"rank-{rank}"))
            marks.append(text(left + size + 8, at + 14, percent(work[rank] / total), size=12))
        else:
            owner = (rank - hop) % p
            marks.append(rectangle(left, at, 40, 19, f"rank-{owner}"))
            marks.append(text(left + 20, at + 14, owner, "middle", 12, "paper", True))
            words = "its own" if hop == 0 else f"from rank {(rank - 1) % p}"
            marks.append(text(left + 52, at + 14, words, size=12))
    return marks


def clock(width, top, hops, hop):
    """The ranks' work, hop after hop, and where it ends."""
    p, end = len(hops), sum(max(each) for each in hops)
    row, room = 26 if p <= 4 else 20, width - LEFT - 4
    marks = [text(0, top, "the ring on a clock", bold=True)]
    marks.append(
        text(width, top, f"{percent(sum(map(sum, hops)) / (p * end))} at work", "end", 12, "ink-soft")
    )
    top += 26
    start = 0
    for index, pairs in enumerate(hops):
        long = room * max(pairs) / end
        x = LEFT + room * start / end
        marks.append(line(x, top - 4, x, top + p * row, "grid-strong"))
        words = f"hop {index}" if long > 40 else str(index)
        now = hop in (-1, index)
        marks.append(text(x + 4, top - 6, words, size=11, ink="ink" if index == hop else "ink-soft"))
        for rank in range(p):
            y, size = top + rank * row, room * pairs[rank] / end
            marks.append(rectangle(x + 1, y + 1, max(0, long - 2), row - 3, "idle"))
            owner = (rank - index) % p
            if size >= 1:
                fill = f"rank-{rank}"
                bar = rectangle(x + 1, y + 1, size - 2 if size > 3 else size, row - 3, fill)
                marks.append(bar if now else f'<g opacity=".22">{bar}</g>')
                if size > 22 and now:
                    marks.append(
                        text(x + size / 2, y + row / 2 + 3, f"k{owner}", "middle", 11, "paper", True)
                    )
        start += max(pairs)
    for rank in range(p):
        y = top + rank * row + row / 2 + 3
        marks.append(text(LEFT - 8, y, f"rank {rank}", "end", 12, "ink-soft"))
    bottom = top + p * row
    return marks, bottom + 16


def said(setting, hop, sent, carried):
    """The numbers in words."""
    sequence, p, split, causal = setting
    work = rank_pairs(*setting)
    mean = sum(work) / p
    few, many = scaled(min(work), ""), scaled(max(work), "")
    span = many if few == many else f"{few} to {many}"
    words = (
        f"{sequence:,} tokens on {p} {'ranks' if p > 1 else 'rank'}, {dict(SPLITS)[split]}, "
        f"{'with' if causal else 'without'} a causal mask: a rank computes {span} pairs of query and key, "
        f"the busiest {fixed(max(work) / mean, 2)} times the mean. "
        f"If each hop waits for the slowest, ranks work {percent(ring_efficiency(*setting))} of the time. "
    )
    if p > 1:
        words += f"A rank sends {scaled(sent, 'B')} a hop, {scaled(carried, 'B')} in all."
    else:
        words += "Nothing is sent."
    if hop >= 0:
        pairs = ring_pairs(*setting)[hop]
        listed = [scaled(each, "") for each in pairs]
        listed = listed[0] if len(set(listed)) == 1 else ", ".join(listed)
        words += f" At hop {hop} rank r has the keys of rank r − {hop}; the ranks compute {listed} pairs."
    return words
