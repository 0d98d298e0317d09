"""Lab 04, gradients without the scale: right answers in several styles, and what students get wrong."""

import pytest
import torch
from students import judged_on_ranks
from torch.distributed.tensor import DTensor

from allranks import check


def here(t):
    return t.to_local() if isinstance(t, DTensor) else t


def unscale(optimizer, scale):
    found_inf = False
    for group in optimizer.param_groups:
        for p in group["params"]:
            if p.grad is not None:
                gradient = here(p.grad)
                gradient /= scale
                if not gradient.isfinite().all():
                    found_inf = True
    return found_inf


def by_list(optimizer, scale):
    params = [p for group in optimizer.param_groups for p in group["params"]]
    gradients = [here(p.grad) for p in params if p.grad is not None]
    for gradient in gradients:
        gradient.div_(scale)
    return any(bool((~torch.isfinite(gradient)).any()) for gradient in gradients)


def by_foreach(optimizer, scale):
    gradients = [
        here(p.grad) for group in optimizer.param_groups for p in group["params"] if p.grad is not None
    ]
    found_inf = not all(g.isfinite().all().item() for g in gradients)
    if gradients:
        torch._foreach_mul_(gradients, 1.0 / scale)
    return found_inf


def with_a_tensor(optimizer, scale):
    found_inf = torch.tensor(False)
    for group in optimizer.param_groups:
        for p in filter(lambda p: p.grad is not None, group["params"]):
            gradient = here(p.grad)
            gradient.mul_(1 / scale)
            found_inf |= ~gradient.isfinite().all()
    return found_inf


@torch.no_grad()
def by_torchs_kernel(optimizer, scale):
    gradients = [
        here(p.grad) for group in optimizer.param_groups for p in group["params"] if p.grad is not None
    ]
    found_inf, inverse = torch.zeros(1), torch.tensor([1.0 / scale])
    torch._amp_foreach_non_finite_check_and_unscale_(gradients, found_inf, inverse)
    return bool(found_inf)


RIGHT = [(unscale,), (by_list,), (by_foreach,), (with_a_tensor,), (by_torchs_kernel,)]
WRONG = {
    "unscale": {
        "first group only": (
            "go through all parameters of all groups",
            "optimizer.param_groups",
            "optimizer.param_groups[:1]",
        ),
        "a parameter without gradient": ("TypeError", "p.grad is not None", "True"),
        "not in place": (
            "go through all parameters of all groups",
            "gradient /= scale",
            "gradient = gradient / scale",
        ),
        "a new gradient": (
            "a parameter has another gradient than before the call",
            "gradient /= scale",
            "p.grad = p.grad / scale",
        ),
        "multiplied": ("but the function returned True", "/= scale", "*= scale"),
        "weights divided": ("go through all parameters of all groups", "here(p.grad)", "here(p.data)"),
        "the sum is finite": ("but the function returned True", "isfinite().all()", "sum().isfinite()"),
        "the norm is finite": ("but the function returned True", "isfinite().all()", "norm().isfinite()"),
        "NaN only": ("a gradient contains inf", "not gradient.isfinite().all()", "gradient.isnan().any()"),
        "infinity only": (
            "a gradient contains nan",
            "not gradient.isfinite().all()",
            "gradient.isinf().any()",
        ),
        "positive infinity only": (
            "a gradient contains -inf",
            "not gradient.isfinite().all()",
            "(gradient.isnan() | gradient.isposinf()).any()",
        ),
        "beyond fp16's range": (
            "but the function returned True",
            "not gradient.isfinite().all()",
            "not gradient.half().isfinite().all()",
        ),
        "all have to overflow": ("but the function returned True", "isfinite().all()", "isfinite().any()"),
        "the last one decides": (
            "a gradient contains inf",
            "if not gradient.isfinite().all():\n                    found_inf = True",
            "found_inf = not bool(gradient.isfinite().all())",
        ),
        "turned round": ("but the function returned True", "return found_inf", "return not found_inf"),
        "stops at the first": ("and the others are divided all the same", "found_inf = True", "return True"),
        "checked before, and then left alone": (
            "and the others are divided all the same",
            "gradient /= scale\n                if not gradient.isfinite().all():\n                    found_inf = True",
            "if not gradient.isfinite().all():\n                    found_inf = True\n                else:\n                    gradient /= scale",
        ),
        "the whole gradient": (
            "go through all parameters of all groups",
            "here(p.grad)",
            "(p.grad.full_tensor() if isinstance(p.grad, DTensor) else p.grad)",
        ),
        "largest of an empty part": (
            "RuntimeError",
            "not gradient.isfinite().all()",
            "not gradient.abs().max().isfinite()",
        ),
        "NaN replaced": (
            "and the others are divided all the same",
            "found_inf = True",
            "found_inf = True\n                    gradient.nan_to_num_(0, 0, 0)",
        ),
        "gradients zeroed": (
            "and the others are divided all the same",
            "found_inf = True",
            "found_inf = True\n                    gradient.zero_()",
        ),
        "gradients dropped": (
            "a parameter has another gradient than before the call",
            "return found_inf",
            "if found_inf:\n        optimizer.zero_grad()\n    return found_inf",
        ),
        "first element": ("a gradient contains inf", "isfinite().all()", "isfinite().flatten()[:1].all()"),
        "first row": ("a gradient contains inf", "isfinite().all()", "isfinite()[:1].all()"),
        "decided on all ranks": (
            "but the function returned True",
            "return found_inf",
            "t = torch.tensor(float(found_inf))\n    torch.distributed.all_reduce(t)\n    return bool(t)",
        ),
        "rank 0 only": (
            "a gradient contains inf",
            "found_inf = True",
            "found_inf = torch.distributed.get_rank() == 0",
        ),
        "never found": ("a gradient contains inf", "found_inf = True", "pass"),
        "matrices only": (
            "go through all parameters of all groups",
            "p.grad is not None",
            "p.grad is not None and p.dim() > 1",
        ),
        "weights looked at": (
            "a gradient contains inf",
            "not gradient.isfinite",
            "not here(p.data).isfinite",
        ),
    }
}


@pytest.mark.stamped("lab 04")
def test_every_answer_is_told_what_it_is(nothing_is_left_behind):
    judged_on_ranks(check.lab_04.unscale, __name__)
