"""Does it fit, and who says so? The bytes on one rank of a training, by the rules of three calculators.

The papers': 16 bytes a parameter (Rajbhandari et al. 2020) and what backward keeps (Korthikanti et al. 2022).
DeepSpeed's estimators: 20 bytes in stage 2, 18 and a layer in stage 3, no activations. Megatron-LM's report:
18 bytes, with its distributed optimizer 6 + 12/d, and for every model GPT-2's layer without its scores;
it knows no context parallelism, full recomputation, stages 2 and 3 (training/theoretical_memory_usage.py).
"""

from ..articles import with_article
from ..hardware import ACCELERATORS, called
from ..memory.buffers import unsharded_bytes
from ..memory.states import Recipe, share, zero_states
from ..memory.training import stage_layers, training_bytes
from ..transformer import PRESETS, decoder, megatron, parameters
from ..transformer.sizes import Transformer
from .frame.controls import Choice, Integer, Scale, Toggle, powers_of_two
from .frame.handles import handle, handles_over, spread
from .frame.svg import WIDE, block, line, mark, marks_over, picture, rectangle, text
from .frame.words import counted, percent, scaled

TITLE = "Training memory, by three calculators"

MODELS = tuple((name, name) for name in PRESETS if name != "served")  # what is served is not trained here
DEVICES = tuple((name, f"{called(name)}, {scaled(each.memory, 'B')}") for name, each in ACCELERATORS.items())
RECOMPUTED = (("none", "nothing"), ("selective", "selective: attention"), ("full", "full: each layer"))
CONTROLS = (
    Choice("model", "model", (("own", "own numbers"),) + MODELS, "llama2-7b"),
    Integer("layers", "layers", 1, 160, 32),
    Scale("hidden", "hidden size h", powers_of_two(256, 32768), 4096),
    Scale("sequence", "sequence s", ((0, "its own"),) + powers_of_two(1024, 2**20), 0),
    Scale("microbatch", "micro-batch b", powers_of_two(1, 64), 2),
    Choice("recomputation", "recomputed", RECOMPUTED, "none"),
    Toggle("tiles", "attention in tiles", True),
    Scale("tensor", "tensor parallel", powers_of_two(1, 64), 1),
    Toggle("split", "sequence parallel", True),
    Scale("pipeline", "pipeline stages", powers_of_two(1, 64), 1),
    Scale("context", "context parallel", powers_of_two(1, 64), 1),
    Scale("data", "data parallel", powers_of_two(1, 1024), 8),
    Integer("stage", "ZeRO stage", 0, 3, 2),
    Choice("device", "device", DEVICES, "a100-80gb"),
)
PARTS = (
    ("W", "weights", "forward"),
    ("G", "gradients", "backward-input"),
    ("O", "optimizer", "backward-weight"),
    ("A", "activations", "rank-5"),
    ("R", "recomputed", "rank-4"),
    ("B", "buffers", "comm"),
)
SMALLER = {
    "weights": "cut matrices, divide layers into stages, or shard them in ZeRO stage 3",
    "gradients": "shard them in ZeRO stage 2, or cut the model",
    "optimizer": "shard them in ZeRO stage 1, over more data-parallel ranks",
    "activations": "recompute them, cut the sequence, or take a smaller micro-batch",
    "recomputed": "cut the layer, or take a smaller micro-batch",
    "buffers": "cut the vocabulary, or take a smaller micro-batch",
}
NAMES = ("papers", "DeepSpeed", "Megatron")
# What DeepSpeed's estimator of stage 3 counts: all but the shard of the 16-bit weights.
STAGE_3 = Recipe(0, 2, 4, 4, 4, 4)


def draw(width, *, model, layers, hidden, sequence, device, **layout):
    """A bar for each calculator beside the memory of the device, and their numbers as a table."""
    shape = shaped(model, layers, hidden, sequence)
    refuse(shape, layout)
    rows = estimates(shape, **layout)
    memory, named = ACCELERATORS[device].memory, dict(DEVICES)[device]
    marks, top = drawn(rows, memory, named, width)
    marks += table(rows, top, width)
    touch = touched(rows, memory, top, width, layout)
    idle = [] if model == "own" else ["layers", "hidden"]
    if layout["tensor"] == 1:
        idle.append("split")
    return {
        "svg": picture(width, top + 22 * (len(PARTS) + 2), marks),
        "text": said(model, shape, layout, rows, memory, named),
        "marks": marks_over(width, top + 22 * (len(PARTS) + 2), touch),
        "handles": handles_over(width, top + 22 * (len(PARTS) + 2), line_of(width, rows, device)),
        "result": result(rows[0][1], memory, named),
        "insight": insight(rows[0][1]),
        "idle": idle,
    }


def shaped(model, layers, hidden, sequence):
    """The model: a preset, or a GPT with heads of 128; with sequences of `sequence` tokens if not 0."""
    shape = megatron(layers, hidden, hidden // 128) if model == "own" else PRESETS[model]
    if not sequence:
        return shape
    return Transformer(*(tuple(shape[:7]) + (sequence,) + tuple(shape[8:])))


def refuse(shape, layout):
    """Raise ValueError, naming the control, for a layout that the model does not allow."""
    t, p, c = layout["tensor"], layout["pipeline"], layout["context"]
    if shape.heads % t:
        raise ValueError(f"tensor must be a divisor of the {shape.heads} heads of the model, not {t}")
    if p > shape.layers:
        raise ValueError(f"pipeline must be at most the {shape.layers} layers of the model, not {p}")
    if shape.sequence % c:
        raise ValueError(f"context must be a divisor of the {shape.sequence} tokens of a sequence, not {c}")


def estimates(shape, *, microbatch, recomputation, tiles, tensor, split, pipeline, context, data, stage):
    """For each calculator (what it counts in words, bytes of each of PARTS), or why it has no answer."""
    layout = {"microbatch": microbatch, "tensor_parallel": tensor, "pipeline_parallel": pipeline}
    split = split and tensor > 1
    ours = training_bytes(
        shape, data_parallel=data, context_parallel=context, zero_stage=stage, sequence_parallel=split,
        recomputation=recomputation, dropout=not shape.gated, fused=tiles, **layout,
    )  # fmt: skip
    papers = (ours.weights, ours.gradients, ours.optimizer, ours.activations, ours.recomputed, ours.buffers)
    rows = [("16 bytes a parameter, activations, buffers", papers)]
    mine, ranks = ours.parameters, data * context
    if stage < 2:
        rows.append(("its estimators are for stages 2 and 3 only", None))
    elif stage == 2:
        rows.append(
            ("20 bytes a parameter, nothing else", zero_states(mine, ranks, 2, "copied-20") + (0, 0, 0))
        )
    else:
        layer = share(mine, stage_layers(shape.layers, pipeline)[ours.stage])
        whole = unsharded_bytes(layer, prefetched=0)
        rows.append(
            ("18 bytes a parameter and a whole layer", zero_states(mine, ranks, 3, STAGE_3) + (0, 0, whole))
        )
    gpt = decoder(shape.layers, shape.hidden, shape.heads, shape.vocabulary, shape.sequence,
        head_width=shape.head_width, feed_forward=shape.feed_forward)  # fmt: skip
    split = split and recomputation == "selective"
    kept = training_bytes(gpt, recomputation="selective", sequence_parallel=split, stage=ours.stage, **layout)
    states = zero_states(mine, data, min(stage, 1), "megatron-18")
    words = "6 + 12/d bytes" if stage else "18 bytes"
    rows.append((words + ignored(stage, recomputation, tiles, context), states + (kept.activations, 0, 0)))
    return rows


def ignored(stage, recomputation, tiles, context):
    """What Megatron-LM's report leaves out of account in this layout."""
    left_out = [f"stage {stage}"] if stage > 1 else []
    if recomputation == "full":
        left_out.append("recomputation")
    if recomputation == "none" and not tiles:
        left_out.append("scores")
    if context > 1:
        left_out.append("context")
    return f"; ignores {', '.join(left_out)}" if left_out else " a parameter, GPT-2's activations"


def drawn(rows, memory, named, width):
    """The bars, one below the other, with the device's memory across each; and where they end."""
    totals = [sum(parts) for _, parts in rows if parts]
    scale = width / (1.03 * max(max(totals), memory))
    edge, marks, top = memory * scale, [], 24
    marks.append(text(min(edge, width), 14, named, "end" if edge > width / 2 else "start", 12, bold=True))
    for name, (words, parts) in zip(("The papers", "DeepSpeed", "Megatron-LM"), rows):
        marks.append(text(0, top + 18, name, bold=True))
        marks.append(text(0, top + 36, words, size=12, ink="ink-soft"))
        marks.append(rectangle(0, top + 44, width, 24, "tint"))
        if parts:
            verdict = "fits" if sum(parts) <= memory else "does not fit"
            ink = "ink" if sum(parts) <= memory else "alarm"
            marks.append(
                text(width, top + 18, f"{said_bytes(sum(parts))}: {verdict}", "end", None, ink, True)
            )
            x = 0
            for nbytes, (letter, _, fill) in zip(parts, PARTS):
                wide = nbytes * scale
                if wide >= 0.5:
                    marks.append(block(x, top + 44, max(wide - 1, 0.5), 24, fill))
                if wide >= 16:
                    marks.append(text(x + wide / 2, top + 60, letter, "middle", 12, "paper", True))
                x += wide
        marks.append(line(edge, top + 39, edge, top + 73, "paper", 5))
        marks.append(line(edge, top + 39, edge, top + 73, "ink", 2, "5 2"))
        top += 84
    return marks, top + 12


def remedies(layout):
    """For each of PARTS the setting that makes it smaller, and what that is called."""
    stage, b = layout["stage"], max(layout["microbatch"] // 2, 1)
    again = "full" if layout["recomputation"] == "selective" or layout["tiles"] else "selective"
    more = min(2 * layout["data"], 1024)
    found = []
    for least in (3, 2, 1):
        sharded = f"data={more}", f"{more} data-parallel ranks"
        found.append((f"stage={least}", f"ZeRO stage {least}") if stage < least else sharded)
    found.append((f"recomputation={again}", f"recompute {dict(RECOMPUTED)[again]}"))
    return found + 2 * [(f"microbatch={b}", f"a micro-batch of {b}")]


def touched(rows, memory, bottom, width, layout):
    """Places: each part in the bars and in the table; a click tries what makes it smaller."""
    scale = width / (1.03 * max(max(sum(parts) for _, parts in rows if parts), memory))
    marks = []
    for index, ((letter, name, _), (sets, words)) in enumerate(zip(PARTS, remedies(layout))):
        nbytes = rows[0][1][index]
        words = f"{name}, {said_bytes(nbytes) if nbytes else 'none'}: try {words}"
        for bar, (_, parts) in enumerate(rows):
            wide = parts[index] * scale if parts else 0
            if wide >= 8:
                x = sum(parts[:index]) * scale
                marks.append(mark(x, 68 + 84 * bar, wide, 24, sets, words, letter))
        marks.append(mark(0, bottom + 22 + 22 * index, width, 21, sets, words, letter))
    return marks


def line_of(width, rows, device):
    """A grip on the line of the device's memory; devices beyond the picture stand at its edge."""
    memory, named = ACCELERATORS[device].memory, dict(DEVICES)[device]
    by_size = sorted((each.memory, turn, name) for turn, (name, each) in enumerate(ACCELERATORS.items()))
    scale = width / (1.03 * max(max(sum(parts) for _, parts in rows if parts), memory))
    places = spread(
        [(name, size * scale) for size, _, name in by_size], width - 2, 12 if width == WIDE else 7
    )
    words = f"{named}: {'fits' if sum(rows[0][1]) <= memory else 'does not fit'}"
    return handle(width, "device", "memory of the device", "x", places, device, 80, words, (63, 97))


def table(rows, top, width):
    """The bytes of each part by each calculator."""
    first, marks = width - (330 if width == WIDE else 232), []
    step = (width - first) / 3
    for index, name in enumerate(NAMES):
        marks.append(text(first + (index + 1) * step, top + 12, name, "end", 12, "ink-soft"))
    marks.append(line(0, top + 20, width, top + 20, "grid"))
    for row, (letter, name, fill) in enumerate(PARTS + (("", "total", None),)):
        y = top + 37 + 22 * row
        if fill:
            marks.append(block(0, y - 13, 18, 17, fill))
            marks.append(text(9, y, letter, "middle", 12, "paper", True))
        marks.append(text(26, y, name, size=12, bold=not fill))
        for index, (_, parts) in enumerate(rows):
            nbytes = (sum(parts) if row == len(PARTS) else parts[row]) if parts else 0
            ink = "ink" if nbytes else "ink-soft"
            words = said_bytes(nbytes) if nbytes else "–"
            marks.append(text(first + (index + 1) * step, y, words, "end", 12, ink, not fill))
    return marks


def result(parts, memory, named):
    """The bytes of the device that stores most by the papers' formulas, and whether they fit."""
    fits = "fits" if sum(parts) <= memory else "does not fit"
    return said_bytes(sum(parts)), f"on the device that stores most: {fits} {with_article(named)}"


def insight(parts):
    """What takes most, and what makes it smaller, in a sentence."""
    nbytes, name = max((nbytes, name) for nbytes, (_, name, _) in zip(parts, PARTS))
    what = "optimizer states" if name == "optimizer" else name
    return f"The largest part, {percent(nbytes / sum(parts), 0)}, is {what}: {SMALLER[name]}."


def said_bytes(nbytes):
    """Bytes as they are said here."""
    return scaled(nbytes, "B")


def said(model, shape, layout, rows, memory, named):
    """The numbers of the picture in words."""
    devices = layout["tensor"] * layout["pipeline"] * layout["context"] * layout["data"]
    held = ", ".join(
        f"{name} {said_bytes(nbytes)}" for nbytes, (_, name, _) in zip(rows[0][1], PARTS) if nbytes
    )
    sentence = (
        f"{'A model of your own' if model == 'own' else model}: {counted(parameters(shape))} parameters on "
        f"{devices:,} device{'s' if devices > 1 else ''}, ZeRO stage {layout['stage']}. "
        f"The device that stores most holds {said_bytes(sum(rows[0][1]))} "
        f"by the papers' formulas ({held})"
    )
    for name, (_, parts) in zip(("DeepSpeed", "Megatron-LM"), rows[1:]):
        sentence += f", {said_bytes(sum(parts))} by {name}" if parts else f"; {name} does not estimate it"
    part = sum(rows[0][1]) / memory
    share_of = "less than 1 % of" if part < 0.01 else f"{percent(part, 0)} of"
    if part >= 2:
        share_of = f"{counted(part)} times"
    device, size = named.split(", ")
    return f"{sentence}. By the papers' formulas, that is {share_of} {with_article(device)}'s {size}."
