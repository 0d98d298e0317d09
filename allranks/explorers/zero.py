"""Who holds which slice, and when does it move? A step under ZeRO, phase by phase, on its ranks.

A row is a rank, a column one of the model's states, and the width of a slice its share of all parameters.
Bytes are those of `allranks.memory.phases`, devices those of `allranks.hardware`.
"""

from ..articles import with_article
from ..hardware import ACCELERATORS, called
from ..memory.phases import zero_phases
from ..memory.states import RECIPES
from .frame.controls import Choice, Integer, Scale, Steps, powers_of_two
from .frame.handles import handles_over, playhead
from .frame.svg import WIDE, block, hatches, line, mark, marks_over, picture, rectangle, text
from .frame.words import counted, figures, percent, scaled
from .zero_slices import STATES, cell, passing

TITLE = "ZeRO: who holds which slice, phase by phase"

SIZES = (10**8, 3 * 10**8, 10**9, 15 * 10**8, 3 * 10**9, 75 * 10**8, 13 * 10**9, 34 * 10**9)
SIZES += (70 * 10**9, 175 * 10**9, 405 * 10**9, 10**12)
DTYPES = (
    ("zero-16", "16 B: the paper's"),
    ("megatron-18", "18 B: gradients in fp32"),
    ("copied-20", "20 B: gradients copied"),
    ("fp32", "16 B: all fp32"),
    ("bf16", "8 B: all bf16"),
)
OFFLOAD = (
    ("device device", "nothing"),
    ("cpu device", "optimizer, to the host"),
    ("nvme device", "optimizer, to a disk"),
    ("cpu cpu", "and weights, to the host"),
    ("nvme nvme", "and weights, to a disk"),
)
CONTROLS = (
    Integer("stage", "ZeRO stage", 0, 3, 3),
    Scale("ranks", "ranks N", powers_of_two(1, 1024), 4),
    Scale("parameters", "parameters Ψ", tuple((size, counted(size)) for size in SIZES), 75 * 10**8),
    Choice("dtypes", "bytes a parameter", DTYPES, "zero-16"),
    Scale("layers", "layers", powers_of_two(1, 128), 32),
    Choice("offload", "offload", OFFLOAD, "device device"),
    Steps("phase", "phase", 1),
)

TOLD = {
    "before": ("before the step", "weights and optimizer states are in place"),
    "forward": ("forward", "every rank computes with all weights, on its own data"),
    "gather": ("forward: all-gather", "one layer at a time, each rank gets what it lacks"),
    "free": ("free", "the layer is done: each rank drops what it does not own"),
    "gather again": ("backward: all-gather again", "the layer's weights come once more"),
    "backward": ("backward", "each rank has the gradients of its own data"),
    "reduce-scatter": ("reduce-scatter", "slices travel to their owners, who add them up"),
    "all-gather": ("all-gather", "the owners' results travel to all ranks"),
    "update": ("update", "each rank updates the outlined part, its optimizer's share"),
    "after": ("after the step", "gradients are dropped; all is as before, one step later"),
}
LEFT, TOP, ROW = 60, 90, 26


def draw(width, *, stage, ranks, parameters, dtypes, layers, offload, phase):
    """The ranks in the phase, and the memory of each beside that of a device."""
    optimizer, weights = offload.split()
    if weights != "device" and stage < 3:
        raise ValueError(
            f"offload must leave weights on the device in stage {stage}: only stage 3 shards them"
        )
    phases = zero_phases(parameters, ranks, stage, dtypes, units=layers, optimizer=optimizer, weights=weights)
    step = min(phase, len(phases) - 1)
    now, fullest = phases[step], max(each.device for each in phases)
    told, why = TOLD[now.name]
    marks = [
        hatches(f"zero-{width}"),
        text(0, 16, told, bold=True),
        text(0, 35, why, size=12, ink="ink-soft"),
    ]
    marks.append(text(width, 16, f"phase {step} of {len(phases) - 1}", "end", 12, "ink-soft"))
    columns = laid(width, stage)
    there = "device" if optimizer == "device" or now.gradients else "cpu"
    places = (weights, there, optimizer)
    marks += headers(columns, dtypes, stage, places)
    rows = list(range(ranks)) if ranks <= 8 else list(range(6)) + [None, ranks - 1]
    for row, rank in enumerate(rows):
        y = TOP + row * ROW
        if rank is None:
            marks.append(text(LEFT - 8, y + 14, "⋮", "end", ink="ink-soft"))
            marks.append(text(LEFT, y + 14, f"{ranks - 7:,} more ranks", size=12, ink="ink-soft"))
            continue
        marks.append(text(LEFT - 8, y + 14, f"rank {rank}" if rank < 100 else rank, "end", 12, "ink-soft"))
        for index, (x, wide) in enumerate(columns):
            where = (x, y, wide, rank, ranks, width)
            if index < 3:
                marks += cell(where, index, stage, now.name, places[index])
            else:
                marks += passing(where, now)
    bottom = TOP + len(rows) * ROW
    marks += totals(columns, now, bottom + 16)
    marks += device_bar(now, fullest, stage, bottom + 40, width)
    sent = sum(each.sent for each in phases)
    plain = zero_phases(parameters, ranks, 0, dtypes, units=layers)
    words = f"sends {size(now.sent)} now, {size(sent)} in the step"
    marks.append(text(LEFT, bottom + 122, words, size=12))
    if optimizer != "device":
        words = f"outside {size(now.outside)}; {carried(phases)}"
        marks.append(text(LEFT, bottom + 140, words, size=12))
    marks += key(LEFT if width == WIDE else 0, bottom + 168, width)
    return {
        "svg": picture(width, bottom + 178, marks),
        "text": said(stage, ranks, parameters, dtypes, told, now, fullest, sent, phases, optimizer),
        "marks": marks_over(
            width,
            bottom + 178,
            touched(columns, now, stage, step, len(phases), bottom, width, weights == "device"),
        ),
        "handles": handles_over(
            width,
            bottom + 178,
            playhead(width, "phase", "phase", LEFT, width - 12, len(phases), step, 48, f"{step}, {told}"),
        ),
        "result": (size(fullest), "at the peak, on each rank's device"),
        "insight": insight(stage, ranks, fullest, sent, plain),
        "steps": len(phases),
        "idle": [] if stage == 3 else ["layers"],
    }


def insight(stage, ranks, fullest, sent, whole):
    """What this stage saves and costs beside stage 0, whose phases are `whole`, in a sentence."""
    most, all_sent = max(each.device for each in whole), sum(each.sent for each in whole)
    if ranks == 1:
        return "On one rank there is nobody to share with, and every stage holds the same slices."
    if not stage:
        return f"All {ranks:,} ranks hold the same {size(most)}: the stages remove these copies."
    part = sent / all_sent
    traffic = "as many bytes" if abs(part - 1) < 0.001 else f"{figures(part)} times as many bytes"
    return (
        f"At its peak a rank holds {percent(fullest / most)} of what it does in stage 0, and sends {traffic}."
    )


def laid(width, stage):
    """Where the columns begin, and how wide they are: three states, and what is there in passing."""
    gap = 16 if width == WIDE else 8
    inner = width - LEFT
    last = (90 if width == WIDE else 52) if stage >= 2 else -gap
    wide = (inner - 3 * gap - last) / 3
    columns = [(LEFT + index * (wide + gap), wide) for index in range(3)]
    return columns + [(LEFT + 3 * (wide + gap), last)] if stage >= 2 else columns


def touched(columns, now, stage, step, many, bottom, width, whole):
    """Places: the three states, each of which becomes sharded or whole, and the phase.

    whole: the stage may change, since weights are on the device.
    """
    after = (step + 1) % many
    marks = [
        mark(width - 110, 0, 110, 24, f"phase={after}", f"phase {step} of {many - 1}: go to phase {after}")
    ]
    for index, ((x, wide), (name, _)) in enumerate(zip(columns, STATES if whole else ())):
        cuts = 3 - index
        sets, words = (cuts - 1, "hold it whole") if stage >= cuts else (cuts, "shard it")
        words = f"{name}, {size(held(now)[index])} on each rank: {words}, ZeRO stage {sets}"
        marks.append(mark(x, TOP - 38, wide, bottom - TOP + 60, f"stage={sets}", words, f"s{index}"))
    return marks


def headers(columns, dtypes, stage, places):
    """The names of the columns, and below each its bytes a parameter and where it lies."""
    marks, recipe = [], RECIPES[dtypes]
    for (x, _), (name, _), nbytes, place in zip(
        columns, STATES, (recipe.weights, recipe.gradients, recipe.optimizer), places
    ):
        there = {"device": "", "cpu": ", host", "nvme": ", disk"}[place]
        marks.append(text(x, TOP - 22, name, size=12))
        marks.append(text(x, TOP - 7, f"{nbytes} B{there}", size=11, ink="ink-soft"))
    if stage >= 2:
        x, _ = columns[3]
        marks.append(text(x, TOP - 22, "layer" if stage == 3 else "bucket", size=12))
        marks.append(text(x, TOP - 7, "whole", size=11, ink="ink-soft"))
    return marks


def size(nbytes):
    """Bytes as they are said here."""
    return scaled(nbytes, "B") if nbytes else "0"


def held(now):
    """The bytes on a rank's device, as the columns have them."""
    return now.weights, now.gradients, now.optimizer, now.whole_weights + now.whole_gradients


def key(x, y, width):
    """What the patterns mean."""
    marks = []
    for left, fill, words in (
        (x, "comm", "moving now"),
        (x + 130, "backward-input", "not yet summed over ranks"),
    ):
        marks.append(block(left, y - 11, 18, 14, fill, f"zero-{width}"))
        marks.append(text(left + 24, y, words, size=12, ink="ink-soft"))
    return marks


def totals(columns, now, y):
    """Below each column its bytes on each rank."""
    marks = [text(LEFT - 8, y, "each", "end", 12, "ink-soft")]
    for (x, _), nbytes in zip(columns, held(now)):
        marks.append(text(x, y, size(nbytes), size=12))
    return marks


def smallest(nbytes):
    """The accelerator with the least memory that holds `nbytes`, and whether one does: else the largest."""
    by_size = sorted((each.memory, index, each.name) for index, each in enumerate(ACCELERATORS.values()))
    for memory, _, name in by_size:
        if nbytes <= memory:
            return memory, device(name), True
    return by_size[-1][0], device(by_size[-1][2]), False


def device(name):
    """An accelerator by its name and memory: "A100, 80 GB"."""
    return f"{called(name)}, {scaled(ACCELERATORS[name].memory, 'B')}"


def device_bar(now, fullest, stage, y, width):
    """What a rank holds beside the memory of the smallest device on which its fullest phase fits."""
    memory, name, fits = smallest(fullest)
    scale = (width - LEFT) / max(memory, fullest)
    marks = [text(LEFT - 8, y + 32, "device", "end", 12, "ink-soft")]
    marks.append(text(LEFT, y + 10, f"{size(now.device)} now, at most {size(fullest)}", size=12, bold=True))
    marks.append(rectangle(LEFT, y + 18, memory * scale, 20, "tint", "grid-strong"))
    x, fills = LEFT, [fill for _, fill in STATES] + ["ink-soft"]
    for nbytes, fill, letter in zip(held(now), fills, "WGOL" if stage == 3 else "WGOB"):
        wide = nbytes * scale
        if nbytes:
            marks.append(block(x, y + 18, wide, 20, fill))
        if wide >= 14:
            marks.append(text(x + wide / 2, y + 32, letter, "middle", 11, "paper", True))
        x += wide
    x = LEFT + fullest * scale
    marks.append(line(x, y + 14, x, y + 42, "ink", 2))
    if not fits:
        x = LEFT + memory * scale
        marks.append(line(x, y + 14, x, y + 42, "alarm", 2, "4 2"))
    words = f"smallest device that holds it: {name}" if fits else f"the largest device holds less: {name}"
    marks.append(text(LEFT, y + 56, words, size=12, ink="ink-soft" if fits else "alarm"))
    return marks


def carried(phases):
    """What a step moves between device and host, and between host and disk."""
    link, disk = sum(each.link for each in phases), sum(each.disk for each in phases)
    return f"link {size(link)}" + (f", disk {size(disk)}" if disk else "")


def said(stage, ranks, parameters, dtypes, told, now, fullest, sent, phases, optimizer):
    """The numbers of the picture in words."""
    whole = now.whole_weights + now.whole_gradients
    parts = [("weights", now.weights), ("gradients", now.gradients), ("optimizer", now.optimizer)]
    parts.append(("a whole layer" if stage == 3 else "buckets", whole))
    held = ", ".join(f"{name} {size(nbytes)}" for name, nbytes in parts if nbytes) or "nothing"
    _, name, fits = smallest(fullest)
    sentence = (
        f"ZeRO stage {stage}, {counted(parameters)} parameters, {RECIPES[dtypes].bytes_per_parameter} bytes "
        f"each, on {ranks:,} {'ranks' if ranks > 1 else 'rank'}. "
        f"In the phase “{told}”, each holds {size(now.device)} on its device "
        f"({held}) and sends {size(now.sent)}, in the whole step {size(sent)}. "
        f"At the peak it holds {size(fullest)} without activations, which "
    )
    sentence += f"fits {'' if fits else 'no device, not even '}{with_article(name)}."
    if optimizer != "device":
        sentence += f" Outside are {size(now.outside)}; a step moves over {carried(phases)}."
    return sentence
