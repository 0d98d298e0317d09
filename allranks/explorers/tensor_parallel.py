"""Who holds which slice of a layer's matrices? Column, row, both in turn, heads; with f and g between.

A row for each rank: what it holds of each matrix is filled, the rest is an outline. Between the matrices
stand the two operators that may talk to other ranks, as bars through all rows. Shapes and bytes are those of
`allranks.topology.tensor`, in elements of 2 bytes.
"""

from ..topology.tensor import tensor_calls, tensor_matrices
from ..transformer import PRESETS
from .frame.controls import Choice, Scale, Steps, Toggle, powers_of_two
from .frame.svg import WIDE, line, marks_over, picture, text
from .frame.words import fixed, percent, scaled
from .tensor_parallel_chain import Chain

TITLE = "Tensor parallelism: who holds which slice"

KINDS = (
    ("feed-forward", "column, then row"),
    ("attention", "attention heads"),
    ("column", "column alone"),
    ("row", "row alone"),
)
MODELS = (
    ("running", "the book's model"),
    ("gpt2", "GPT-2 124M"),
    ("megatron-22b", "Megatron 22B"),
    ("gpt3-175b", "GPT-3 175B"),
    ("llama3-8b", "Llama 3 8B"),
    ("llama3-70b", "Llama 3 70B"),
    ("llama3-405b", "Llama 3 405B"),
)
CONTROLS = (
    Choice("kind", "cut by", KINDS, "feed-forward"),
    Toggle("sequence_parallel", "sequence parallel", False),
    Scale("ranks", "ranks t", powers_of_two(1, 8), 4),
    Choice("model", "model", MODELS, "gpt3-175b"),
    Scale("microbatch", "micro-batch b", powers_of_two(1, 16), 1),
    Steps("step", "step (0 shows all)", 0),
)
SAID = (
    ("all_reduce", "all-reduce"),
    ("all_gather", "all-gather"),
    ("reduce_scatter", "reduce-scatter"),
    ("copy", "copy"),
    ("slice", "slice"),
)
ELEMENT = 2


def draw(width, *, kind, sequence_parallel, ranks, model, microbatch, step):
    """The slices of each rank, after `step` of the layer's forward and backward."""
    shape, alone = PRESETS[model], kind in ("column", "row")
    heads, keys = shape.heads, shape.kv_heads
    if kind == "attention" and (heads % ranks or keys % ranks):
        raise ValueError(f"ranks must divide {heads} heads, and {keys} of keys and values, not be {ranks}")
    asked = (kind, shape, ranks, microbatch, sequence_parallel and not alone)
    matrices, calls = tensor_matrices(*asked), tensor_calls(*asked, element_bytes=ELEMENT)
    played = steps_of(matrices, calls, formulas(kind, shape))
    step = min(step, len(played))
    phase, active, words, more = played[step - 1] if step else ("", (), "what each rank holds", "")
    chain = Chain(width, shape, matrices, calls, ranks)
    heading = f"step {step} of {len(played)}, {phase}: {words}" if step else words
    if not step:
        made = ", ".join(each for each in formulas(kind, shape) if each)
        more = f"{made}; {fixed(matrices[0].rows, 0)} tokens"
    marks = [text(0, 16, heading, bold=True), text(0, 35, more, size=12, ink="ink-soft")]
    marks += chain.bands(active) + chain.heads(step, len(played), active)
    for rank in range(ranks):
        label = f"{rank * heads // ranks}–{(rank + 1) * heads // ranks - 1}" if kind == "attention" else ""
        marks += chain.lane(rank, step, len(played), label)
    marks += chain.operators(active, phase)
    drawn, bottom = chain.key()
    shown, bottom = tables(width, bottom, matrices, calls, ranks)
    turns = [items for _, items, _, _ in played]
    touch = chain.slices(step, turns, ELEMENT) + chain.talks(step, turns)
    sentence = said(dict(KINDS)[kind], dict(MODELS)[model], matrices, calls, ranks)
    if step:
        sentence += f" {heading[0].upper()}{heading[1:]}; {more}."
    else:
        sentence += happens(calls, ranks)
    return {
        "svg": picture(width, bottom, chain.patterns(), marks, drawn, shown),
        "text": sentence,
        "marks": marks_over(width, bottom, touch),
        "result": (scaled(sum(each.sent for each in calls), "B"), "sent by a rank for one micro-batch"),
        "insight": insight(calls, ranks, alone),
        "steps": len(played) + 1,
        "idle": ["sequence_parallel"] if alone else [],
    }


def insight(calls, ranks, alone):
    """How often ranks must talk, and what a cut would save, in a sentence."""
    if ranks == 1:
        return "One rank holds every slice, and has nobody to talk to."
    talks = [each for each in calls if each.sent]
    if alone:
        most = max(each.nbytes for each in talks)
        part = percent(
            sum(each.sent for each in talks if each.nbytes == most) / sum(e.sent for e in talks), 0
        )
        return f"A cut alone needs all of Y on every rank: that is {part} of what a rank sends."
    times = len([each for each in talks if each.phase != "again"])
    if times == 2:
        return "Column, then row: the tensors in between stay cut, and only the two ends must be made whole."
    extra = sum(each.sent for each in calls if each.phase == "again")
    share = percent(extra / (sum(each.sent for each in calls) - extra), 0)
    return f"Each all-reduce is split in two, for the same bytes; gathering X again adds {share}."


def named(collective):
    """A collective as it is said."""
    return dict(SAID)[collective]


def acts(call):
    """What an operator does, as a sentence begins."""
    who = {"gather": "the end", "slice": "the start"}.get(call.operator, call.operator)
    if call.collective == "copy":
        return f"{who} copies"
    if call.collective == "slice":
        return f"{who} takes a slice"
    return f"{who} does {'an' if call.collective[0] == 'a' else 'a'} {named(call.collective)}"


def sends(call):
    """What it takes to do so."""
    if not call.sent:
        return "nothing is sent"
    return f"message of {scaled(call.nbytes, 'B')}; a rank sends {scaled(call.sent, 'B')}"


def formulas(kind, shape):
    """The products of the layer's two halves, None for one that is left out."""
    if kind == "attention":
        return "Y = attention of Q, K, V = X A", "Z = Y B"
    if kind == "feed-forward":
        return f"Y = {'SwiGLU' if shape.gated else 'GeLU'}(X A)", "Z = Y B"
    return ("Y = X A", None) if kind == "column" else (None, "Z = Y B")


def steps_of(matrices, calls, products):
    """What happens in turn: (phase, items of the chain that take part, words, more words)."""
    last, at = len(matrices) + 1, 2
    own = "each rank by itself, nothing is sent"
    ends = ((0, 1, 2), (last - 2, last - 1, last))
    ahead = [("forward", ends[0], acts(calls[0]), sends(calls[0]))]
    back = [("backward", ends[0], acts(calls[1]), sends(calls[1]))]
    for product, gradients in zip(products, ("∂X and ∂A from ∂Y", "∂Y and ∂B from ∂Z")):
        if product:
            again = calls[-1] if gradients[1] == "X" and calls[-1].phase == "again" else None
            more = (
                f"X is gathered again; a rank sends {scaled(again.sent, 'B')}"
                if again and again.sent
                else own
            )
            items = (at, at + 1, at + 2)
            ahead.append(("forward", items, product, own))
            back.append(("backward", items, gradients, more))
            at += 2
    ahead.append(("forward", ends[1], acts(calls[2]), sends(calls[2])))
    back.append(("backward", ends[1], acts(calls[3]), sends(calls[3])))
    return ahead + list(reversed(back))


def tables(width, top, matrices, calls, ranks):
    """Shapes, and what the operators send: beside or below one another."""
    shapes, seen = [("", "whole", "on a rank", "")], []
    for each in matrices:
        if (each.name, each.split) not in seen and each.split != "partial":
            seen.append((each.name, each.split))
            mine = each.shape(ranks)
            cells = tuple(
                f"{fixed(rows, 0)} × {fixed(columns, 0)}"
                for rows, columns in ((each.rows, each.columns), mine)
            )
            shapes.append((each.name,) + cells + (scaled(mine[0] * mine[1] * ELEMENT, "B"),))
    sent = [("", "forward", "backward")]
    for at in (0, 2):
        sent.append((calls[at].operator,) + tuple(does(each) for each in calls[at : at + 2]))
    again = sum(each.sent for each in calls if each.phase == "again")
    total = [sum(each.sent for each in calls if each.phase == phase) for phase in ("forward", "backward")]
    if again:
        sent.append(("again", "", does(calls[-1])))
    sent.append(("sent", scaled(total[0], "B"), scaled(total[1] + again, "B")))
    drawn = table(shapes, 0, top, (0, 28, 150, 272))
    if width == WIDE:
        drawn += table(sent, 364, top, (0, 46, 198))
        return drawn, top + 7 * 21
    return drawn + table(sent, 0, top + 7 * 21 + 12, (0, 46, 202)), top + 12 * 21 + 12


def table(rows, left, top, columns):
    """Rows of cells, the first in soft ink."""
    marks = []
    for i, row in enumerate(rows):
        y = top + 4 + 21 * i
        for x, cell in zip(columns, row):
            if cell:
                marks.append(text(left + x, y, cell, size=12, ink="ink" if i and x else "ink-soft"))
    return marks + [
        line(left, top + 11, left + columns[-1] + (70 if len(columns) > 3 else 132), top + 11, "grid")
    ]


def does(call):
    """What an operator does, for a cell of the table."""
    if not call.sent:
        return "nothing sent"
    return f"{named(call.collective)} {scaled(call.nbytes, 'B')}"


def said(kind, model, matrices, calls, ranks):
    """The numbers in words."""
    weights = [each for each in matrices if each.weight]
    held = []
    for each in weights:
        rows, columns = each.shape(ranks)
        held.append(f"{fixed(rows, 0)} × {fixed(columns, 0)} of {each.name}")
    whole = sum(each.rows * each.columns for each in weights) * ELEMENT
    words = f"{kind[0].upper()}{kind[1:]}, {model}, {ranks} rank{'s' if ranks > 1 else ''}: "
    words += f"each holds {' and '.join(held)}, {scaled(whole / ranks, 'B')} of {scaled(whole, 'B')}. "
    sent = sum(each.sent for each in calls if each.phase != "again")
    words += f"A rank sends {scaled(sent, 'B')} for a micro-batch"
    if calls[-1].phase == "again" and ranks > 1:
        words += f", and {scaled(calls[-1].sent, 'B')} to gather X again"
    return words + "."


def happens(calls, ranks):
    """What the operators do forward and backward, as a sentence."""
    if ranks == 1:
        return ""
    done = [acts(each) + (f" of {scaled(each.nbytes, 'B')}" if each.sent else "") for each in calls]
    return f" Forward, {done[0]} and {done[2]}; backward, {done[3]} and {done[1]}."
