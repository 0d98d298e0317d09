"""Tensor, pipeline and data parallelism on eight ranks: loss, gradients and norm equal one process."""

import copy
import random

import torch
import torch.distributed as dist

from allranks.check import exercise, labs
from allranks.check.lab_07.common import agreed, must, must_be, on_ranks
from allranks.check.lab_07.linears import columns, rows
from allranks.check.lab_07.measuring import layouts_measured
from allranks.check.lab_07.meshes import groups, must_be_groups
from allranks.check.lab_07.pipelines import pipeline
from allranks.check.lab_07.stages import Stage
from allranks.check.lab_07.whole_layers import layers
from allranks.check.labs import digits, drawn, is_written
from allranks.model import GPT, loss_of
from allranks.parallel.tensor import part_of

SIZES = {"layers": 4, "hidden": 16, "heads": 4}
MICROBATCHES = 2
CLIPS = 0.5, 2.0  # of the norm: one that clips and one that does not


def _names(name, stage):
    """A stage's name of a parameter, in the whole model."""
    if not name.startswith("layers."):
        return name
    _, number, rest = name.split(".", 2)
    return f"layers.{int(number) + stage.start}.{rest}"


def _judge(answers, model, tokens, layouts, right):
    for sizes in layouts:
        with agreed():
            named = answers[2](*sizes)
            must_be_groups(named, sizes)
        for clip in CLIPS:
            _judge_clipped(answers, model, tokens, named, right, clip)


def _judge_clipped(answers, model, tokens, named, right, clip):
    """One pass over all tokens, with `clip` times the norm as the limit."""
    cut_layer, through, _, norm_of, gradients = answers
    loss, norm, whole = right
    scale = min(1.0, clip)
    stage = Stage(copy.deepcopy(model), cut_layer, through, named)
    seen, each = [], len(tokens) // dist.get_world_size(named["dp"]) // MICROBATCHES
    stage.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    with agreed():
        found = gradients(stage, tokens, MICROBATCHES, named, float(clip * norm))
        must(
            isinstance(found, tuple | list) and len(found) == 2,
            f"gradients returns {type(found).__name__}; expected (loss, norm).",
        )
        counts = [len(piece) for piece in seen]
        must(
            counts == [each] * MICROBATCHES,
            f"the stage gets pieces of {counts} sequences; expected {[each] * MICROBATCHES}: each replica "
            f"takes its part of {len(tokens)}, in {MICROBATCHES} micro-batches.",
        )
        must(
            not stage.first or _same_rows(torch.cat(seen), _part_of_replica(tokens, named["dp"])),
            "the stage gets sequences of another replica; expected equal parts of `tokens`, in order: "
            f"replica 0 takes the first {MICROBATCHES * each}, and so on.",
        )
        must_be(found[0], loss, "The loss", "It is the mean over all sequences, on every rank.")
        must_be(found[1], norm, "The norm", "Every number of the model counts once, before clipping.")
        for name, p in stage.named_parameters():
            expected = part_of(whole[_names(name, stage)], p, named["tp"]).detach() * scale
            must(p.grad is not None, f"{name} has no gradient; expected one.")
            why = f"`clip` is {clip:g} times the norm."
            must_be(p.grad, expected, f"The gradient of {_names(name, stage)}", why)
    with agreed():
        must_be(norm_of(stage, named), norm * scale, "norm_of after clipping", "")


def _part_of_replica(tokens, group):
    return tokens.chunk(dist.get_world_size(group))[dist.get_rank(group)]


def _same_rows(found, rows):
    """Whether both have the same sequences, in any order; the last token of each need not be there."""
    rows = rows[:, : found.shape[1]]
    return torch.equal(found.unique(dim=0), rows.unique(dim=0))


@torch.no_grad()
def _tokens_of_unlike_halves(model):
    """Eight sequences: no half has nearly their mean loss, or a replica's own loss could pass for it."""
    while True:
        first = random.randrange(1000)
        tokens = digits()[first : first + 8]
        one, other = (loss_of(model, half) for half in tokens.chunk(2))
        if abs(one - other) > 2e-3 * one:
            return tokens


def _one_process():
    torch.manual_seed(drawn(random.randrange(1000)))
    model = GPT(**SIZES)
    for name, p in model.named_parameters():
        if "norm" in name and name.endswith("weight"):
            torch.nn.init.uniform_(p, 0.5, 1.5)
    tokens = _tokens_of_unlike_halves(model)
    alone = copy.deepcopy(model)
    loss = loss_of(alone, tokens)
    loss.backward()
    whole = {name: p.grad for name, p in alone.named_parameters()}
    norm = torch.stack([gradient.norm() for gradient in whole.values()]).norm()
    return model, tokens, (loss.detach(), norm, whole)


def _compared(answers, *layouts):
    model, tokens, right = _one_process()
    on_ranks(_judge, answers, model, tokens, layouts, right, world_size=8)


@exercise
def together(cut_layer, through, groups_of, norm_of, gradients):
    """A 2×2×2 world with the reader's parts: clipped gradients equal one process."""
    answers = cut_layer, through, groups_of, norm_of, gradients
    is_written(*answers)
    _compared(answers, (2, 2, 2))
    return "Eight ranks as 2×2×2 have the loss, the norm and all clipped gradients of one process."


def milestone(
    copy_then_sum, cut_columns, column, sum_then_copy, cut_rows, row, cut_layer, through, one_f_one_b,
    exchange, run, groups_of, norm_of, gradients, table, plot, reflection,
):  # fmt: skip
    """Try every task, and then other shapes of the same eight ranks."""
    answers = cut_layer, through, groups_of, norm_of, gradients

    def whole():
        _compared(answers, (4, 1, 2), (1, 2, 4))
        return "4×1×2 and 1×2×4 have the loss, the norm and all clipped gradients of one process too."

    labs.milestone(
        [
            ("a linear layer cut by columns", columns, copy_then_sum, cut_columns, column),
            ("a linear layer cut by rows", rows, sum_then_copy, cut_rows, row),
            ("share the heads and the columns of a layer", layers, cut_layer, through),
            ("a 1F1B pipeline", pipeline, one_f_one_b, exchange, run),
            ("groups of a mesh", groups, groups_of),
            ("eight ranks that equal one process", together, *answers),
            ("seconds by layout, measured", layouts_measured, table, plot, reflection),
        ],
        whole,
        "three kinds of parallelism on eight ranks equal one process.",
    )
