"""How are slices drawn? A cell is what one rank holds of one of the model's states, all of it or its part.

`where` is (x, y, width, rank, ranks, width of the picture); what moves is in the colour of communication.
"""

from .frame.svg import block, number, path, rectangle, text

STATES = (("weights", "forward"), ("gradients", "backward-input"), ("optimizer", "backward-weight"))
BAR = 20


def cell(where, index, stage, name, place):
    """What a rank holds of the state `index` in the phase `name`: all of it or its slice, still or moving."""
    x, y, wide, _, _, width = where
    fill, sharded = STATES[index][1], stage >= (3, 2, 1)[index]
    marks = [rectangle(x, y, wide, BAR, "tint", "grid")]
    others, towards = (None if sharded else fill), False
    if index == 1:
        late = name in ("reduce-scatter", "all-gather", "update")
        if not late and (sharded or name != "backward"):
            return marks
        if name == "backward":
            return marks + [block(x, y, wide, BAR, fill, f"zero-{width}")]
        if not sharded and stage == 1:
            others = "own"
        if not sharded and name == "reduce-scatter":
            others, towards = "comm", True
    if name == "all-gather" and ((index == 0 and stage) or (index == 1 and not stage)):
        others = "comm"
    updated = name == "update" and index != 1
    if stage and index == 0 and updated and not sharded:
        others = fill
    return marks + strip(where, BAR, fill, others, towards, place != "device", updated, stage == 0)


def passing(where, now):
    """What is whole on a rank only in passing: a layer's weights, gradients; buckets."""
    x, y, wide, _, _, width = where
    marks = [rectangle(x, y, wide, BAR, "tint", "grid")]
    if now.name in ("gather", "gather again") and now.whole_weights:
        return marks + strip(where, BAR, "forward", "comm")
    height = BAR / 2 if now.whole_weights else BAR
    if now.whole_weights:
        marks.append(block(x, y, wide, height, "forward"))
    if now.whole_gradients:
        where = (x, y + BAR - height) + where[2:]
        if now.name == "backward":
            marks.append(block(x, y + BAR - height, wide, height, "backward-input", f"zero-{width}"))
        else:
            marks += strip(where, height, "backward-input", "comm", True)
    return marks


def strip(where, height, fill, others, towards=False, away=False, updated=False, whole=False):
    """A rank's own slice in `fill`, and beside it the slices of `others`: a colour, "own" sums, or nothing.

    towards: what moves goes to its owner, else it comes from there. away: outside the device. whole: all
    slices are the rank's own.
    """
    x, y, wide, rank, ranks, width = where
    slice_wide = wide / ranks
    mine = max(slice_wide, 1.5)
    left = min(x + rank * slice_wide, x + wide - mine)
    roomy = slice_wide >= 9 and height == BAR
    hatched = others == "own" or (others == "comm" and not roomy)
    colour = "backward-input" if others == "own" else others
    pieces = [(x, left - x, colour), (left, mine, fill), (left + mine, x + wide - left - mine, colour)]
    if others == fill:
        pieces = [(x, wide, fill)]
    marks = []
    for start, across, each in pieces:
        if each and across > 0.5 and away and each == fill:
            marks.append(rectangle(start, y, across, height, "paper", fill))
        elif each and across > 0.5:
            striped = hatched and start != left
            marks.append(block(start, y, across, height, each, f"zero-{width}" if striped else None))
    if others == "comm" and roomy:
        marks.append(arrows(where, towards))
    if slice_wide >= 14 and height == BAR and others != fill:
        ink = fill if away else "paper"
        marks.append(text(left + mine / 2, y + 14, rank, "middle", 11, ink, True))
    if updated:
        left, mine = (x, wide) if whole else (left, mine)
        across, down = number(max(mine - 2, 1)), number(height - 2)
        marks.append(path(f"M{number(left + 1)} {number(y + 1)}h{across}v{down}h-{across}z", "ink", 2))
    return marks


def arrows(where, towards):
    """Arrows through a rank's slices of others, up or down: from their owners' rows, or `towards` them."""
    x, y, wide, rank, ranks, _ = where
    drawn = []
    for owner in range(ranks):
        if owner != rank:
            up = (owner < rank) == towards
            middle = number(x + (owner + 0.5) * wide / ranks)
            tip, tail, back = (y + 4, 12, 3.5) if up else (y + 16, -12, -3.5)
            head = f"m-3.5 {number(back - tail)}l3.5 {number(-back)}l3.5 {number(back)}"
            drawn.append(f"M{middle} {number(tip)}v{tail}{head}")
    return path("".join(drawn), "paper", 1.3)
