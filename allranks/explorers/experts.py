"""Where do tokens go in a layer of experts, which are dropped, and what do the all-to-alls carry?

Above, the tokens of one rank with the experts they choose, in the colour of the rank that holds the expert.
In the middle, what each rank sends to each expert: tokens, those dropped (−) and how much of its slots is
filled. Below, what every expert works on. Routing and numbers are those of `allranks.experts`.
"""

from ..experts import (
    buffer_bytes,
    crossing_tokens,
    dispatch,
    dispatch_bytes,
    dropped,
    empty_slots,
    expert_capacity,
    imbalance,
    lost_tokens,
    rank_load,
    route_ranks,
)
from .frame.controls import Integer, Scale, powers_of_two
from .frame.handles import handle, handles_over, spread
from .frame.svg import WIDE, line, mark, marks_over, picture, rectangle, text
from .frame.words import figures, fixed, many, percent, scaled

TITLE = "Experts: routing, drops, load and all-to-alls"

FACTORS = tuple((each / 4, figures(each / 4)) for each in (2, 3, 4, 5, 6, 8, 12, 16))
SKEWS = tuple((each / 4, figures(each / 4)) for each in range(9))
CONTROLS = (
    Scale("tokens", "tokens a rank", powers_of_two(8, 64), 32),
    Scale("experts", "experts", powers_of_two(2, 16), 8),
    Integer("top_k", "experts a token k", 1, 4, 2),
    Scale("factor", "capacity factor", FACTORS, 1.25),
    Scale("skew", "skew (0: uniform)", SKEWS, 0.5),
    Scale("ranks", "ranks", powers_of_two(1, 8), 4),
    Scale("hidden", "hidden size", powers_of_two(512, 16384), 4096),
    Integer("looked_at", "tokens of rank", 0, 7, 0),
    Integer("seed", "random seed", 1, 20, 1),
)
LEFT = 54


def draw(width, *, tokens, experts, top_k, factor, skew, ranks, hidden, looked_at, seed):
    """The picture: one rank's tokens, all ranks' buffers, the experts' load."""
    routes = route_ranks(ranks, tokens, experts, top_k, skew, seed)
    capacity = expert_capacity(tokens, experts, top_k, factor)
    dispatches = [dispatch(each, experts, capacity) for each in routes]
    sent = dispatch_bytes(experts, capacity, hidden, ranks)
    rank = min(looked_at, ranks - 1)
    marks, top = chosen(width, rank, routes[rank], dispatches[rank].kept, experts // ranks)
    touch = sent_to(width, top + 34, dispatches, capacity)
    drawn, top = buffers(width, top + 34, dispatches, capacity)
    marks += drawn
    touch += worked_on(width, top + 34, dispatches, capacity)
    held = room_line(width, top + 34, dispatches, (tokens, experts, top_k), factor)
    drawn, bottom = loads(width, top + 34, dispatches, capacity)
    marks += drawn
    size = f"{scaled(sent, 'B')} a rank"
    marks.append(text(0, bottom + 24, f"each all-to-all sends {size}", size=12))
    full = percent(empty_slots(dispatches, capacity))
    marks.append(text(0, bottom + 43, f"{full} of its slots are empty", size=12, ink="ink-soft"))
    drops, lost = sum(map(dropped, dispatches)), sum(map(lost_tokens, dispatches))
    needed = buffer_bytes(1, max(crossing_tokens(dispatches, ranks)), hidden)
    words = (
        f"{ranks} {'ranks' if ranks > 1 else 'rank'} with {tokens} tokens each, {top_k} of {experts} experts "
        f"a token: an expert accepts at most {many(capacity, 'token')} from a rank. "
        f"Of {ranks * tokens * top_k:,} choices "
        f"{drops} are dropped, {many(lost, 'token')} reach{'es' if lost == 1 else ''} no expert, "
        f"and {full} of the slots are empty. "
        f"The busiest rank has {fixed(imbalance(rank_load(dispatches, ranks)), 2)} times the mean load. "
    )
    if ranks > 1:
        words += f"An all-to-all sends {size}, four times a step and layer; "
        words += f"without empty slots {scaled(needed, 'B')}."
    else:
        words += "Nothing is sent."
    return {
        "svg": picture(width, bottom + 54, marks),
        "text": words,
        "marks": marks_over(width, bottom + 54, touch),
        "handles": handles_over(width, bottom + 54, held),
        "result": (percent(drops / (ranks * tokens * top_k)), "of the tokens' choices are dropped"),
        "insight": insight(drops, lost, full, ranks),
        "idle": ["looked_at"] if ranks == 1 else [],
    }


def insight(drops, lost, full, ranks):
    """What the capacity buys and costs, in a sentence."""
    where = "all-to-all" if ranks > 1 else "buffer"
    if not drops:
        return f"Nothing is dropped; the price is that {full} of the slots in each {where} are empty."
    words = f"Some experts are full while {full} of all slots are empty"
    if lost == 1:
        return f"{words}, and 1 token loses every expert it chose."
    return f"{words}, and {lost} tokens lose every expert they chose." if lost else f"{words}."


def chosen(width, rank, routes, kept, part):
    """The experts that each token of a rank chooses, and where they end. part: experts on a rank."""
    per_line = 32 if width == WIDE else 16
    cell, top = (width - LEFT) / per_line, 32
    marks = [text(0, 14, f"the tokens of rank {rank} choose experts", bold=True)]
    ordinals = ("1st", "2nd", "3rd", "4th")
    for first in range(0, len(routes), per_line):
        for choice in range(len(routes[0])):
            y = top + 21 * choice
            marks.append(text(LEFT - 8, y + 14, ordinals[choice], "end", 12, "ink-soft"))
            for token in range(first, min(first + per_line, len(routes))):
                x, expert = LEFT + (token - first) * cell, routes[token][choice]
                held = kept[token][choice]
                owner = f"rank-{expert // part}" if held else "paper"
                stroke = None if held else "alarm"
                marks.append(rectangle(x + 0.5, y, cell - 2, 19, owner, stroke))
                ink = "paper" if held else "alarm"
                marks.append(text(x + cell / 2 - 0.5, y + 14, expert, "middle", 11, ink, held))
                if not held:
                    marks.append(line(x + 2, y + 17, x + cell - 3, y + 2, "alarm"))
        top += 21 * len(routes[0]) + 9
    struck = sum(not each for choices in kept for each in choices)
    marks.append(text(width, top + 8, f"struck out: dropped, no room ({struck})", "end", 12, "ink-soft"))
    return marks, top + 8


def buffers(width, top, dispatches, capacity):
    """What each rank sends to each expert, and where the table ends."""
    count = len(dispatches[0].taken)
    part, cell = count // len(dispatches), (width - LEFT) / count
    slim, tight = cell < 46, cell < 26
    row = 42 if slim else 30
    marks = [text(0, top, "what each rank sends to each expert", bold=True)]
    under = top + 20
    words = f"at most {many(capacity, 'token')}; {'below' if tight else '−'}: dropped"
    marks.append(text(0, under, words, size=12, ink="ink-soft"))
    top = under + 26
    for owner in range(len(dispatches)):
        x, long = LEFT + owner * part * cell, part * cell
        marks.append(rectangle(x, top + 16, long - 3, 3, f"rank-{owner}"))
        words = f"on rank {owner}" if long > 56 else f"r{owner}" if len(dispatches) > 1 else ""
        marks.append(text(x + long / 2 - 1.5, top - 4, words, "middle", 11, "ink-soft"))
    for expert in range(count):
        middle = LEFT + (expert + 0.5) * cell - 1.5
        marks.append(text(middle, top + 11, expert if tight else f"e{expert}", "middle", 11))
    top += 24
    for source, each in enumerate(dispatches):
        y = top + source * row
        marks.append(text(LEFT - 8, y + 15, f"rank {source}", "end", 12, "ink-soft"))
        for expert in range(count):
            x, long = LEFT + expert * cell, cell - 3
            taken, missing = each.taken[expert], each.wanted[expert] - each.taken[expert]
            owner = expert // part
            marks.append(rectangle(x, y, long, row - 4, "tint"))
            marks.append(rectangle(x, y + row - 9, long, 5, "idle"))
            if taken:
                marks.append(rectangle(x, y + row - 9, long * taken / capacity, 5, f"rank-{owner}"))
            if slim:
                marks.append(text(x + long / 2, y + 14, taken, "middle", 11))
            else:
                marks.append(text(x + 6, y + 15, taken, size=12))
            if missing and slim:
                words = missing if tight else f"−{missing}"
                marks.append(text(x + long / 2, y + 28, words, "middle", 11, "alarm", True))
            elif missing:
                marks.append(text(x + long - 6, y + 15, f"−{missing}", "end", 12, "alarm", True))
    return marks, top + len(dispatches) * row


def sent_to(width, top, dispatches, capacity):
    """Places: what a rank sends, to each expert while they are few; a click looks at its tokens."""
    count, ranks = len(dispatches[0].taken), len(dispatches)
    cell = (width - LEFT) / count
    row, marks = 42 if cell < 46 else 30, []
    for source, each in enumerate(dispatches):
        y, sets = top + 70 + source * row, f"looked_at={source}"
        words = f"rank {source}: look at its tokens"
        marks.append(mark(0, y, LEFT - 4, row - 4, sets, words, f"r{source}"))
        for expert in range(count if ranks * count <= 32 else 0):
            missing = each.wanted[expert] - each.taken[expert]
            words = f"rank {source} to expert {expert}: {each.taken[expert]} of {many(capacity, 'slot')}"
            words += f", {missing} dropped"
            x = LEFT + expert * cell
            marks.append(mark(x, y, cell - 3, row - 4, sets, words, f"r{source} e{expert}"))
    return marks


def worked_on(width, top, dispatches, capacity):
    """Places: the experts; a click looks at the tokens of the rank that holds one."""
    count, room = len(dispatches[0].taken), capacity * len(dispatches)
    cell, part, marks = (width - LEFT) / count, count // len(dispatches), []
    for expert in range(count):
        taken = sum(each.taken[expert] for each in dispatches)
        owner = expert // part
        words = f"expert {expert} on rank {owner}: {many(taken, 'token')}, room for {room}"
        x, lights = LEFT + expert * cell, f"e{expert}"
        marks.append(mark(x, top + 24, cell - 3, 115, f"looked_at={owner}", words, lights))
    return marks


def room_line(width, top, dispatches, routing, factor):
    """A grip on the line of the room that experts have: it sets the capacity factor."""
    ranks, high = len(dispatches), 96
    wanted = [sum(each.wanted[expert] for each in dispatches) for expert in range(routing[1])]
    rooms = [(each, expert_capacity(*routing, each) * ranks) for each, _ in FACTORS]
    room = dict(rooms)[factor]
    scale = (high - 16) / max(max(wanted), room)
    heights = spread([(each, some * scale) for each, some in rooms], high, 14)
    places = [(figures(each), top + 24 + high - tall) for each, tall in heights]
    words = f"factor {figures(factor)}: room for {many(room, 'token')}"
    label = "room of each expert: capacity factor"
    return handle(width, "factor", label, "y", places, figures(factor), width - 14, words, (LEFT, width - 3))


def loads(width, top, dispatches, capacity):
    """What every expert works on, under what it was asked for, and where the bars end."""
    count, high = len(dispatches[0].taken), 96
    cell, part = (width - LEFT) / count, count // len(dispatches)
    taken = [sum(each.taken[expert] for each in dispatches) for expert in range(count)]
    wanted = [sum(each.wanted[expert] for each in dispatches) for expert in range(count)]
    room = capacity * len(dispatches)
    scale, base = (high - 16) / max(max(wanted), room), top + 24 + high
    marks = [text(0, top, "tokens that each expert works on", bold=True)]
    y = base - room * scale
    for expert in range(count):
        x, long = LEFT + expert * cell, cell - 3
        tall = taken[expert] * scale
        marks.append(rectangle(x, base - tall, long, tall, f"rank-{expert // part}"))
        if wanted[expert] > taken[expert]:
            more = (wanted[expert] - taken[expert]) * scale
            marks.append(rectangle(x + 0.5, base - tall - more, long - 1, more, None, "alarm"))
        lower = 13 if cell < 26 and expert % 2 else 0
        marks.append(text(x + long / 2, base + 15 + lower, taken[expert], "middle", 11))
    marks.append(line(LEFT, y, width - 3, y, "ink", 1, "3 3"))
    marks.append(text(LEFT - 8, y + 4, "room", "end", 12, "ink-soft"))
    marks.append(text(LEFT - 8, base + 15, "tokens", "end", 12, "ink-soft"))
    marks.append(line(LEFT, base, width - 3, base))
    return marks, base + (33 if cell < 26 else 20)
