"""Which layout should this model have on these devices? One layout, its price, and what to change in it.

Above, what fills the device that stores most and what a step's time goes into. Below, whom device 0 talks to
along each axis, and which change of one setting is best: all of them are tried. The prices are those of
`allranks.plan`.
"""

from .. import plan
from ..hardware import ACCELERATORS, LINKS, called
from ..transformer import PRESETS, parameters
from ..transformer.sizes import Transformer
from .frame.controls import Choice, Integer, Scale, powers_of_two
from .frame.lettering import legible
from .frame.svg import WIDE, marks_over, picture, text
from .frame.words import counted, percent, scaled, seconds
from .layout_chart import changes, chart, mesh_rows, places

TITLE = "Choosing a layout"

MODELS = (
    ("llama3-8b", "Llama 3 8B"),
    ("llama3-70b", "Llama 3 70B"),
    ("llama3-405b", "Llama 3 405B"),
    ("gpt3-175b", "GPT-3 175B"),
    ("megatron-18b", "GPT 18B"),
    ("megatron-146b", "GPT 146B"),
    ("megatron-1t", "GPT 1T"),
)
MACHINES = {  # the links in a node of 8, and between nodes
    "a100-80gb": ("nvlink-3", "infiniband-hdr"),
    "h100": ("nvlink-4", "infiniband-ndr"),
    "h200": ("nvlink-4", "infiniband-ndr"),
    "b200": ("nvlink-5", "infiniband-ndr"),
    "b300": ("nvlink-5", "infiniband-xdr"),
}
DEVICES = tuple((name, called(name)) for name in MACHINES)
SOFTWARE = {"today": {}, "2021": plan.IN_2021}
COUNTS = tuple(
    (each, f"{each:,}") for each in (8, 64, 128, 256, 512, 1024, 1536, 2048, 3072, 4096, 8192, 16_384)
)
BATCHES = tuple(
    (each, f"{each:,}") for each in (64, 128, 256, 512, 768, 1024, 1536, 2048, 2304, 3072, 4096, 8192)
)
AGAIN = (("none", "nothing"), ("selective", "attention"), ("full", "each layer"))
CONTROLS = (
    Scale("tensor", "tensor parallel t", powers_of_two(1, 32), 8),
    Scale("pipeline", "pipeline stages p", powers_of_two(1, 64), 8),
    Integer("stage", "ZeRO stage", 0, 3, 0),
    Scale("context", "context parallel c", powers_of_two(1, 16), 1),
    Scale("microbatch", "micro-batch b", powers_of_two(1, 8), 1),
    Scale("chunks", "pieces of a stage v", powers_of_two(1, 4), 1),
    Choice("recomputation", "recomputed", AGAIN, "full"),
    Choice("model", "model", MODELS, "megatron-146b"),
    Scale("sequence", "tokens a sequence", ((0, "its own"),) + powers_of_two(2048, 2**17), 0),
    Choice("device", "device", DEVICES, "a100-80gb"),
    Scale("devices", "devices", COUNTS, 1536),
    Scale("batch", "sequences a step", BATCHES, 2304),
    Choice("software", "software", (("today", "today's"), ("2021", "of 2021")), "2021"),
)
MOVED = ("stage", "tensor", "pipeline", "context", "microbatch", "chunks", "recomputation")
NODE = 8
HELD = ("weights", "gradients", "optimizer", "activations", "recomputed", "buffers")
AXES = (("tp", "tensor"), ("cp", "context"), ("pp", "pipeline"), ("dp", "data"))


def draw(width, **given):
    """The price of the layout, its groups on the first nodes, and the best changes of one setting."""
    now, tried = priced(given), moves(given)
    found = better(now, tried)
    wide = width == WIDE
    a = now.layout
    sizes = f"t {a.tp} × c {a.cp} × p {a.pp} × d {a.dp} = {a.devices:,} device{'s' * (a.devices > 1)}"
    flow = f"m = {a.microbatches:,} micro-batch{'es' * (a.microbatches > 1)} of {a.microbatch}"
    words = [f"{sizes}, {flow}"] if wide else [sizes, flow]
    head = [text(0, 15 + 18 * i, each, bold=True) for i, each in enumerate(words)]
    name = dict(DEVICES)[given["device"]]
    marks, top = chart(width, 18 * len(words) + 22, now, name)
    reach = groups_of(given, now)
    over = places(width, 18 * len(words) + 22, now, tried)
    left, bottom, axes = mesh_rows(width, top, reach)
    below = top if wide else bottom
    right, bottom_right, offers = changes(width, below, now, found)
    bottom = max(bottom, bottom_right)
    return {
        "svg": legible(picture(width, bottom, head, marks, left, right), width),
        "text": said(given, now, found, name),
        "marks": marks_over(width, bottom, over + axes + offers),
        "result": result(now),
        "insight": insight(now, found),
        "idle": ["chunks"] if given["pipeline"] == 1 else [],
    }


def shape_of(given):
    """The model, with sequences of the length that is set."""
    shape, length = PRESETS[given["model"]], given["sequence"]
    return Transformer(*(tuple(shape[:7]) + (length,) + tuple(shape[8:]))) if length else shape


def layout_of(given, shape):
    """The `plan.Layout` of the settings: data parallelism and micro-batches follow; ValueError if none."""
    t, c, p, b = given["tensor"], given["context"], given["pipeline"], given["microbatch"]
    ranks, devices, batch = t * c * p, given["devices"], given["batch"]
    if devices % ranks:
        raise ValueError(f"devices must be a multiple of t · c · p = {ranks:,}, not {devices:,}")
    replicas = devices // ranks
    if batch % replicas:
        raise ValueError(f"batch must be a multiple of the {replicas:,} replicas (d), not {batch:,}")
    if batch // replicas % b:
        raise ValueError(f"microbatch must divide the {batch // replicas} sequences of a replica, not be {b}")
    a = plan.layout(
        tp=t, cp=c, pp=p, dp=replicas, zero_stage=given["stage"], microbatch=b,
        microbatches=batch // replicas // b, recomputation=given["recomputation"],
        chunks=given["chunks"] if p > 1 else 1,
    )  # fmt: skip
    why = plan.illegal(shape, a, SOFTWARE[given["software"]].get("sequence_parallel", True))
    if why:
        names = (("tp =", "tensor"), ("sequence", "context"), ("layers", "pipeline"))
        name = next((name for part, name in names if part in why), "model")
        raise ValueError(f"{name} is refused: {why}")
    return a


def priced(given):
    """The `plan.Plan` of the settings; ValueError if they are no layout."""
    shape = shape_of(given)
    inside, between = [LINKS[name] for name in MACHINES[given["device"]]]
    return plan.price(
        shape, layout_of(given, shape), ACCELERATORS[given["device"]], inside=inside, between=between,
        devices_per_node=NODE, dropout=not shape.gated, **SOFTWARE[given["software"]],
    )  # fmt: skip


def moves(given):
    """Every change of one setting by one notch that is a layout: (its name, its value, words, `Plan`)."""
    found = []
    for control in CONTROLS:
        name = control.name
        if name not in MOVED or (name == "chunks" and given["pipeline"] == 1):
            continue
        values = range(4) if name == "stage" else [value for value, _ in control.options]
        place = list(values).index(given[name])
        for other in (place - 1, place + 1):
            if not 0 <= other < len(values):
                continue
            value = values[other]
            changed = dict(given)
            changed[name] = value
            try:
                price = priced(changed)
            except ValueError:
                continue
            shown = dict(AGAIN)[value] if name == "recomputation" else value
            before = dict(AGAIN)[given[name]] if name == "recomputation" else given[name]
            found.append((name, value, f"{control.label} {before} → {shown}", price))
    return found


def better(now, tried):
    """The changes that help, the best first: that fit and are faster or, if none fits, that need less."""
    fit = [each for each in tried if each[3].fits and (not now.fits or each[3].seconds < now.seconds)]
    if fit or now.fits:
        return [fit[i] for i in sorted(range(len(fit)), key=lambda i: (fit[i][3].seconds, i))]
    less = [each for each in tried if each[3].memory.total < now.memory.total]
    return [less[i] for i in sorted(range(len(less)), key=lambda i: (less[i][3].memory.total, i))]


def groups_of(given, now):
    """For each axis (its letter, size, which of the first 16 devices device 0 talks to, members in a node,
    seconds that the step waits for its messages, its control)."""
    a = now.layout
    mesh = tuple((axis, getattr(a, axis)) for axis in plan.MEGATRON_ORDER)
    inside, between = [LINKS[name] for name in MACHINES[given["device"]]]
    first, rows = min(2 * NODE, a.devices), []
    for axis, size in mesh:
        mine = plan.beside(mesh, axis, first)
        way = plan.path(mesh, (axis,), NODE, inside, between)
        part = dict(AXES)[axis]
        rows.append(
            (
                part[0],
                part,
                size,
                [rank in mine for rank in range(first)],
                way.members,
                getattr(now.parts, part),
            )
        )
    return rows


def result(now):
    """The time of a step, or, if it does not fit, the memory that it would take."""
    room = scaled(now.capacity, "B")
    if now.fits:
        return seconds(now.seconds), f"a step, {percent(now.mfu, 0)} of the peak (MFU); it fits in {room}"
    return scaled(now.memory.total, "B"), f"on the device that stores most: does not fit in {room}"


LIMITS = {
    "recomputation": "recomputation",
    "imbalance": "uneven stages",
    "tensor": "tensor messages",
    "context": "context messages",
    "pipeline": "sends between stages",
    "bubble": "the bubble",
    "data": "data messages",
    "optimizer": "the optimizer",
}


def insight(now, found):
    """What limits the layout, and the change of one setting that helps most."""
    if now.fits:
        rest = [name for name in now.parts.largest() if name != "compute"]
        words = "Computing takes the whole step"
        if rest:
            share = percent(getattr(now.parts, rest[0]) / now.seconds, 0)
            words = f"Apart from computing, the largest part of the step is {LIMITS[rest[0]]}, {share}"
        if not found:
            return f"{words}. No single change makes it faster."
        return f"{words}. Best single change: {found[0][2]}, {seconds(found[0][3].seconds)} a step."
    nbytes, part = max((getattr(now.memory, part), part) for part in HELD)
    words = f"The largest part, {percent(nbytes / now.memory.total, 0)}, is {held_words(part)}"
    if not found:
        return f"{words}, and no single change takes less."
    _, _, change, price = found[0]
    if price.fits:
        return f"{words}. The fastest change that makes it fit: {change}."
    return f"{words}. No single change makes it fit; the nearest is {change}."


def held_words(part):
    """What a part of the memory is called."""
    return "optimizer states" if part == "optimizer" else part


def said(given, now, found, name):
    """The numbers of the picture in words."""
    a, shape = now.layout, shape_of(given)
    held = ", ".join(
        f"{held_words(part)} {scaled(getattr(now.memory, part), 'B')}"
        for part in HELD
        if getattr(now.memory, part)
    )
    parts = ", ".join(
        f"{LIMITS.get(part, part)} {seconds(getattr(now.parts, part))}" for part in now.parts.largest()
    )
    fits = "fits in" if now.fits else "does not fit in"
    words = (
        f"{dict(MODELS)[given['model']]}, {counted(parameters(shape))} parameters, on {a.devices:,} {name}s: "
        f"tensor {a.tp}, context {a.cp}, pipeline {a.pp}, data {a.dp}, ZeRO stage {a.zero_stage}. "
        f"The device that stores most holds {scaled(now.memory.total, 'B')} ({held}); that {fits} "
        f"{scaled(now.capacity, 'B')}. "
        f"A step takes {seconds(now.seconds)}: {parts}."
    )
    if found:
        words += f" Best single change: {found[0][2]}: {scaled(found[0][3].memory.total, 'B')}, "
        words += f"{seconds(found[0][3].seconds)}."
    return words
