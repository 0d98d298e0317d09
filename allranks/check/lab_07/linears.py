"""Linear layers cut by columns and by rows, on two pairs of ranks."""

import torch
import torch.distributed as dist
from torch import nn

from allranks.check import exercise
from allranks.check.lab_07.common import agreed, drawn, must, must_be, must_be_cut, on_ranks, pair, part
from allranks.check.labs import groups_used, is_written

BIAS = "The bias counts once: add it after the sum, whole on each rank."


def _linear(weight, bias):
    linear = nn.Linear(weight.shape[1], weight.shape[0])
    linear.weight, linear.bias = nn.Parameter(weight), nn.Parameter(bias)
    return linear


def _must_use_pairs(what, before):
    pairs = [0, 1], [2, 3]
    for ranks in groups_used()[before:]:
        must(
            ranks in pairs,
            f"{what} talks to ranks {ranks}; expected {pairs[dist.get_rank() // 2]}: pass `group` on.",
        )


def _judge(operator, cut, forward, numbers, kind):
    """Compare one cut layer with a whole one, on this rank; the pairs have different inputs."""
    group, me = pair(), dist.get_rank() // 2
    weight, bias, inputs, gradients = numbers
    linear, x, gradient = _linear(weight, bias), inputs[me].clone(), gradients[me].clone()
    whole = _linear(weight.clone(), bias.clone())
    right_x = x.clone().requires_grad_()
    right = whole(right_x)
    right.backward(gradient)
    by_columns = kind == "columns"
    with agreed():
        found = cut(linear, group)
        must(
            isinstance(found, nn.Linear),
            f"cut_{kind} returns {type(found).__name__}; expected an nn.Linear.",
        )
        must_be_cut(found.weight, part(weight, 0 if by_columns else 1), f"The weight of cut_{kind}")
        must_be_cut(found.bias, part(bias, 0) if by_columns else bias, f"The bias of cut_{kind}")
    before = len(groups_used())
    mine = (x if by_columns else part(x, -1).clone()).requires_grad_()
    kept = mine.detach().clone()
    with agreed():
        y = forward(found, mine, group)
        _must_use_pairs("Your layer", before)
        why = "A column-parallel output needs no sum." if by_columns else BIAS
        must_be(y, part(right, -1).detach() if by_columns else right.detach(), "The output", why)
    down = part(gradient, -1).clone() if by_columns else gradient.clone()
    sent = down.clone()
    with agreed():
        y.backward(down)
        _must_use_pairs("Your layer", before)
        why = (
            "Each rank has a partial sum: f adds them, over `group`, in backward."
            if by_columns
            else "g copies in backward: the gradient of the output is whole already."
        )
        must(mine.grad is not None, f"x has no gradient; expected one. {why}")
        must_be(mine.grad, right_x.grad if by_columns else part(right_x.grad, -1), "The gradient of x", why)
        whole_weight = part(whole.weight.grad, 0 if by_columns else 1)
        must_be(found.weight.grad, whole_weight, "The gradient of weight", "")
        bias_gradient = part(whole.bias.grad, 0) if by_columns else whole.bias.grad
        must_be(found.bias.grad, bias_gradient, "The gradient of bias", "")
        must(torch.equal(mine.detach(), kept), "x was changed in place; expected it unchanged.")
        must(torch.equal(down, sent), "the gradient was changed in place; expected a clone to be summed.")
    _judge_operator(operator, group, kind)


def _judge_operator(operator, group, kind):
    """The operator alone: what it does to x and to a gradient, and that it changes neither."""
    rank = dist.get_rank()
    x = (torch.arange(3.0) + rank).requires_grad_()
    gradient = torch.arange(3.0) * (rank + 1)
    kept = gradient.clone()
    first = rank // 2 * 2
    sum_of_x = 2 * torch.arange(3.0) + 2 * first + 1
    name = "CopyThenSum" if kind == "columns" else "SumThenCopy"
    with agreed():
        y = operator.apply(x * 1, group)
        must_be(y, x.detach() if kind == "columns" else sum_of_x, f"{name}'s output", "")
    with agreed():
        right = torch.arange(3.0) * (2 * first + 3) if kind == "columns" else kept
        y.backward(gradient)
        must_be(x.grad, right, f"{name}'s gradient", "")
        must(torch.equal(gradient, kept), f"{name} changes its gradient in place; expected a clone.")
    plain = torch.arange(3.0) + rank
    with agreed(), torch.no_grad():
        operator.apply(plain, group)
        same = torch.equal(plain, torch.arange(3.0) + rank)
        must(same, f"{name} changes x in place; expected a clone.")


def _numbers():
    return drawn(8, 12), drawn(8), drawn(2, 5, 12), drawn(2, 5, 8)


@exercise
def columns(copy_then_sum, cut_columns, column):
    """`CopyThenSum`, `cut_columns(linear, group)` and `column(part, x, group)` on two pairs of ranks."""
    is_written(copy_then_sum, cut_columns, column)
    on_ranks(_judge, copy_then_sum, cut_columns, column, _numbers(), "columns", world_size=4)
    return "Two pairs of ranks have the output and the gradients of one process, each from its own slice."


@exercise
def rows(sum_then_copy, cut_rows, row):
    """`SumThenCopy`, `cut_rows(linear, group)` and `row(part, x, group)` on two pairs of ranks."""
    is_written(sum_then_copy, cut_rows, row)
    on_ranks(_judge, sum_then_copy, cut_rows, row, _numbers(), "rows", world_size=4)
    return "Two pairs of ranks have the output and the gradients of one process, and the bias counts once."
