"""Which rank is in which group, and which link does each collective cross? A mesh of ranks on nodes of 8.

Ranks fill node after node, the first axis of the order varies fastest. A rank's colour and lower number say
its group along one axis; a step's bytes and seconds along every axis are those of `allranks.topology`.
"""

from ..hardware import LINKS
from ..topology.experts import expert_mesh, place_experts, shared_parameters
from ..topology.placement import Level, coordinates, groups, place
from ..transformer import PRESETS
from .frame.controls import Choice, Scale, Steps, powers_of_two
from .frame.handles import handle, handles_over
from .frame.svg import WIDE, line, mark, marks_over, picture, rectangle, text
from .frame.words import percent, scaled, seconds

TITLE = "A device mesh on its nodes"

ORDERS = (
    ("tp cp pp dp", "tp cp pp dp (Llama 3)"),
    ("tp cp dp pp", "tp cp dp pp (Megatron)"),
    ("dp tp cp pp", "dp tp cp pp"),
    ("dp pp cp tp", "dp pp cp tp (reversed)"),
)
AXES = (
    ("tp", "tp, tensor"),
    ("cp", "cp, context"),
    ("pp", "pp, pipeline"),
    ("dp", "dp, data (with cp)"),
    ("ep", "ep, experts"),
)
MODELS = (
    ("llama3-8b", "Llama 3 8B"),
    ("llama3-70b", "Llama 3 70B"),
    ("llama3-405b", "Llama 3 405B"),
    ("gpt3-175b", "GPT-3 175B"),
    ("mixtral-8x7b", "Mixtral 8×7B"),
)
MACHINES = (
    ("nvlink-4 infiniband-ndr", "NVLink 4, 400 Gb/s"),
    ("nvlink-3 infiniband-hdr", "NVLink 3, 200 Gb/s"),
    ("nvlink-2 ethernet-25", "NVLink 2, 25 Gb/s"),
)
CONTROLS = (
    Choice("axis", "groups along", AXES, "tp"),
    Choice("order", "order, fast to slow", ORDERS, "tp cp pp dp"),
    Scale("tp", "tensor tp", powers_of_two(1, 8), 4),
    Scale("cp", "context cp", powers_of_two(1, 4), 2),
    Scale("pp", "pipeline pp", powers_of_two(1, 8), 2),
    Scale("dp", "data dp", powers_of_two(1, 16), 4),
    Scale("ep", "experts ep", powers_of_two(1, 8), 4),
    Choice("model", "model", MODELS, "llama3-70b"),
    Scale("microbatches", "micro-batches m", powers_of_two(1, 64), 8),
    Choice("links", "links", MACHINES, "nvlink-4 infiniband-ndr"),
    Steps("rank", "rank", 5),
)
NODE, MOST = 8, 128
OVER = (("tp", ("tp",)), ("cp", ("cp",)), ("pp", ("pp",)), ("dp", ("cp", "ep", "dp")), ("ep", ("ep",)))


def draw(width, *, axis, order, ep, model, microbatches, links, rank, **sizes):
    """The nodes with the groups along `axis`, and what a step sends along every axis."""
    mesh, shape = tuple((name, sizes[name]) for name in order.split()), PRESETS[model]
    world = sizes["tp"] * sizes["cp"] * sizes["pp"] * sizes["dp"]
    if world > MOST:
        raise ValueError(
            f"dp = {sizes['dp']} makes {world} ranks in all; at most {MOST} are drawn: make an axis smaller"
        )
    mixture = shape.experts > 1
    ep = ep if mixture else 1
    if sizes["dp"] % ep:
        raise ValueError(f"ep must divide dp = {sizes['dp']}, not be {ep}")
    rank, nodes = min(rank, world - 1), -(-world // NODE)
    inside, between = [LINKS[name] for name in links.split()]
    levels = (
        Level("node", NODE, inside.α, inside.bandwidth, 1),
        Level("network", NODE * nodes, between.α, between.bandwidth, 1),
    )
    finer = expert_mesh(mesh, ep)
    rows = rows_of(mesh, finer, levels, shape, ep, microbatches, rank)
    along = groups(finer, over(axis, finer))
    number = [0] * world
    for i, group in enumerate(along):
        for each in group:
            number[each] = i
    marks, bottom = cells(width, world, rank, number)
    touch = ranks_of(width, number, axis) + axes_of(width, bottom + 16, rows, axis)
    places = [(name, at) for (name, _), at in zip(mesh, coordinates(rank, mesh))]
    if mixture:
        places += [("ep", at) for (name, _), at in zip(finer, coordinates(rank, finer)) if name == "ep"]
    heading = f"rank {rank}: " + ", ".join(f"{name} {at}" for name, at in places)
    named = "cp·dp" if axis == "dp" and sizes["cp"] > 1 else axis
    mine = f"{named} group {number[rank]} (of {len(along)}, from 0): {members(along[number[rank]])}"
    shown, bottom = table(width, bottom + 16, rows, rank)
    return {
        "svg": picture(
            width,
            bottom,
            text(0, 16, heading, bold=True),
            text(0, 35, mine, size=12, ink="ink-soft"),
            marks,
            shown,
        ),
        "text": said(world, nodes, order, heading, mine, rows),
        "marks": marks_over(width, bottom, touch),
        "handles": handles_over(width, bottom, group_edge(width, world, order, sizes)),
        "result": (seconds(sum(each.seconds for _, each, _ in rows)), "of messages a step, if none overlap"),
        "insight": insight(rows),
        "steps": world,
        "idle": [] if mixture else ["ep"],
    }


def over(axis, mesh):
    """The names of `mesh` that a group along `axis` extends over."""
    return [name for name, _ in mesh if name in dict(OVER)[axis]]


def rows_of(mesh, finer, levels, shape, ep, microbatches, rank):
    """A row for each axis in the mesh's order: (name, its `Axis`, the group of `rank`)."""
    shared = shared_parameters(shape)
    placed = list(place(mesh, levels, shape, microbatches, parameters=shared))
    named = [(each.axis, each, over(each.axis, finer)) for each in placed]
    if shape.experts > 1:
        tokens, rest = place_experts(mesh, levels, shape, ep, microbatches)
        named.append(("ep", tokens, over("ep", finer)))
        named.append(("expert dp", rest, [name for name, _ in finer if name in ("cp", "dp")]))
    rows = []
    for name, each, along in named:
        group = next(group for group in groups(finer, along) if rank in group)
        rows.append(("cp·dp" if name == "dp" and dict(mesh)["cp"] > 1 else name, each, group))
    return rows


def insight(rows):
    """Which axis takes longest, over which links, in a sentence."""
    whole = sum(each.seconds for _, each, _ in rows)
    if not whole:
        return "One rank has nobody to talk to."
    longest, name, each = max((each.seconds, name, each) for name, each, _ in rows)
    inside, across = [count for _, count in each.groups]
    where = "none of its groups leaves a node"
    if across:
        groups = f"{across} of its {inside + across} groups" if inside else "every group of it"
        where = f"{groups} must cross the network"
    return f"{name} takes {percent(longest / whole, 0)} of this time: {where}."


def place_of(width, world, rank):
    """Where the cell of a rank is, and how far it is to the next."""
    side = 2 if width == WIDE and world > NODE else 1
    pitch, left, high, top = (35, 62, 32, 52) if width == WIDE else (36, 64, 32, 52)
    node, column = rank // NODE, width - left - NODE * pitch - 3
    return (
        left + rank % NODE * pitch + (node % side) * column,
        top + (node // side) * (high + 12),
        pitch,
        high,
    )


def ranks_of(width, number, axis):
    """Places: the ranks, each of which can be chosen; a group lights together."""
    marks, world = [], len(number)
    for rank, group in enumerate(number):
        x, y, pitch, high = place_of(width, world, rank)
        words = f"rank {rank}, {axis} group {group}: show its groups"
        marks.append(mark(x, y, pitch - 2, high, f"rank={rank}", words, f"g{group}"))
    return marks


def group_edge(width, world, order, sizes):
    """A grip on the edge of the first tensor-parallel group, while its ranks stand side by side."""
    x, y, pitch, high = place_of(width, world, 0)
    if order.split()[0] != "tp":
        return ""
    most = MOST // (world // sizes["tp"])
    places = [(tp, x + tp * pitch - 1) for tp in (1, 2, 4, 8) if tp <= most]
    words, label = f"tp = {sizes['tp']}", "edge of a tensor-parallel group"
    return handle(width, "tp", label, "x", places, sizes["tp"], y + high / 2, words, (y - 4, y + high + 4))


def axes_of(width, top, rows, axis):
    """Places: the rows of the table, each of which colours the ranks by its axis."""
    first, high = (top + 22, 21) if width == WIDE else (top + 38, 42)
    marks = []
    for turn, (name, each, _) in enumerate(rows):
        along = "dp" if name == "cp·dp" else name
        if along not in dict(AXES):
            continue
        words = f"{name}: {crossing(each) or 'no groups'} across nodes"
        words += f", {seconds(each.seconds)}" if each.size > 1 else ", nothing to send"
        words += "" if along == axis else ": colour its groups"
        marks.append(mark(0, first + turn * high, width, high - 1, f"axis={along}", words))
    return marks


def members(group):
    """The ranks of a group, few enough to read."""
    if len(group) <= 5:
        return ", ".join(str(rank) for rank in group)
    return ", ".join(str(rank) for rank in group[:3]) + f", … {group[-1]}"


def cells(width, world, chosen, number):
    """The ranks by node, coloured by group; where the nodes end."""
    side, marks = 2 if width == WIDE and world > NODE else 1, []
    for rank in range(world):
        node, place = rank // NODE, rank % NODE
        x, y, pitch, high = place_of(width, world, rank)
        if not place:
            wide = min(NODE, world - rank) * pitch
            marks.append(rectangle(x - 4, y - 4, wide + 6, high + 8, "tint", "grid"))
            marks.append(text(x - 10, y + high / 2 + 4, f"node {node}", "end", 12, "ink-soft"))
        own, fill = number[rank] == number[chosen], f"rank-{number[rank] % 8}"
        ink, middle = "paper" if own else "ink", x + (pitch - 2) / 2
        marks.append(rectangle(x, y, pitch - 2, high, fill, None, None, None if own else 0.2))
        if rank == chosen:
            marks.append(rectangle(x + 0.5, y + 0.5, pitch - 3, high - 1, None, "ink"))
            marks.append(rectangle(x + 1.5, y + 1.5, pitch - 5, high - 3, None, "paper"))
        marks.append(text(middle, y + 14, rank, "middle", 12, ink, own))
        marks.append(text(middle, y + 27, number[rank], "middle", 11, ink, own))
    bottom = 52 + (-(-world // NODE) + side - 1) // side * (high + 12) + 8
    key = "above: the rank; below and colour: its group; full colour: the chosen rank's group"
    parts = (key,) if width == WIDE else key.split("; full")
    for i, part in enumerate(parts):
        marks.append(text(0, bottom + 4 + 17 * i, part if not i else "full" + part, size=11, ink="ink-soft"))
    return marks, bottom + 17 * len(parts)


def crossing(each):
    """How many groups of an axis cross nodes, in words."""
    if each.size == 1:
        return ""
    inside, across = [count for _, count in each.groups]
    if not across or not inside:
        return f"{'all' if across else 'none'} of {inside + across}"
    return f"{across} of {inside + across}"


def link(each):
    """What the slowest group of an axis sends over, and how fast."""
    if each.size == 1:
        return ""
    return f"{'NVLink' if each.level == 'node' else 'network'}, {scaled(each.bandwidth, 'B/s')}"


def table(width, top, rows, rank):
    """What a step costs along every axis."""
    marks, y = [], top + 12
    columns = ((0, "start"), (108, "start"), (256, "start"), (366, "start"), (620, "end"), (716, "end"))
    heads = ("axis", f"rank {rank}'s group", "across nodes", "slowest link", "a rank sends", "takes")
    if width == WIDE:
        for (x, anchor), words in zip(columns, heads):
            marks.append(text(x, y, words, anchor, 12, "ink-soft"))
    else:
        marks.append(text(0, y, "along each axis: groups across nodes,", size=12, ink="ink-soft"))
        marks.append(text(0, y + 16, "slowest link, what a rank sends in a step", size=12, ink="ink-soft"))
        y += 16
    marks.append(line(0, y + 7, width, y + 7, "grid"))
    y += 25
    for name, each, group in rows:
        over_network = each.size > 1 and each.level != "node"
        cells = (f"{name} × {len(group)}", members(group), crossing(each), link(each))
        if each.size == 1:
            cells = (cells[0], "one rank", "", "nothing to send")
        else:
            cells += (scaled(each.sent, "B"), seconds(each.seconds))
        if width == WIDE:
            places = tuple((x, 0, anchor) for x, anchor in columns)
        else:
            places = ((0, 0, "start"), (112, 0, "start"), (0, 17, "start"), (112, 17, "start"))
            places += ((296, 17, "end"), (358, 17, "end"))
        for i, ((x, down, anchor), words) in enumerate(zip(places, cells)):
            ink = "accent" if over_network and i == 3 else "ink-soft" if each.size == 1 and i else "ink"
            bold = not i or (ink == "accent" and width == WIDE)
            marks.append(text(x, y + down, words, anchor, 12, ink, bold))
        y += 21 if width == WIDE else 42
    return marks, y


def said(world, nodes, order, heading, mine, rows):
    """The numbers in words."""
    ranks, on = "rank" if world == 1 else "ranks", "node" if nodes == 1 else "nodes"
    words = f"{world} {ranks} on {nodes} {on}, order {order.replace(' ', ', ')}. "
    words += f"{heading[0].upper()}{heading[1:]}; {mine}. "
    parts = [
        f"{name} {scaled(each.sent, 'B')}, {seconds(each.seconds)}, {crossing(each)}"
        for name, each, _ in rows
        if each.size > 1
    ]
    if not parts:
        return words + "Nothing is sent."
    return words + f"Sent by a rank in a step, and groups across nodes: {'; '.join(parts)}."
