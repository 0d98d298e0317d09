"""Lab 04, clipped at the right norm: right answers in several styles, and what students get wrong."""

import pytest
import torch
from students import judged_on_ranks

from allranks import check


def clipped_step(model, optimizer, scaler, max_norm):
    scaler.unscale_(optimizer)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    scaler.step(optimizer)
    scaler.update()
    return norm


def by_hand(model, optimizer, scaler, max_norm):
    scaler.unscale_(optimizer)
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    norm = torch.stack([g.norm() for g in gradients]).norm()
    if norm > max_norm:
        for g in gradients:
            g.mul_(max_norm / norm)
    scaler.step(optimizer)
    scaler.update()
    return norm.item()


def in_two_calls(model, optimizer, scaler, max_norm):
    scaler.unscale_(optimizer)
    parameters = list(model.parameters())
    gradients = [p.grad for p in parameters if p.grad is not None]
    norm = torch.nn.utils.get_total_norm(gradients)
    torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, norm)
    scaler.step(optimizer)
    scaler.update()
    return float(norm)


def without_foreach(model, optimizer, scaler, max_norm):
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    scaler.unscale_(optimizer)
    norm = torch.nn.utils.clip_grad_norm_(parameters, max_norm, norm_type=2.0, foreach=False)
    try:
        scaler.step(optimizer)
    finally:
        scaler.update()
    return norm


CLIP = "    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)\n"
UNSCALED = "    scaler.unscale_(optimizer)\n"

RIGHT = [(clipped_step,), (by_hand,), (in_two_calls,), (without_foreach,)]
WRONG = {
    "clipped_step": {
        "clipped before unscaling": ("is that of the scaled gradients", UNSCALED, "", CLIP, CLIP + UNSCALED),
        "never unscaled before": ("is that of the scaled gradients", UNSCALED, ""),
        "clipped after the step": (
            "the weights moved as if nothing had been clipped",
            CLIP,
            "",
            "    scaler.step(optimizer)\n",
            "    scaler.step(optimizer)\n" + CLIP,
        ),
        "the optimizer's own step": (
            "but the optimizer took the step",
            "scaler.step(optimizer)",
            "optimizer.step()",
        ),
        "no update": ("` at the end of every step", "    scaler.update()\n", ""),
        "updated first": (
            "AssertionError",
            "    scaler.update()\n",
            "",
            UNSCALED,
            "    scaler.update()\n" + UNSCALED,
        ),
        "updated before the step": (
            "with GradScaler",
            "    scaler.step(optimizer)\n    scaler.update()\n",
            "    scaler.update()\n    scaler.step(optimizer)\n",
        ),
        "updated twice": (
            "AssertionError",
            "    scaler.update()\n",
            "    scaler.update()\n    scaler.update()\n",
        ),
        "unscaled twice": ("RuntimeError", UNSCALED, UNSCALED + UNSCALED),
        "stepped twice": (
            "RuntimeError",
            "    scaler.step(optimizer)\n",
            "    scaler.step(optimizer)\n    scaler.step(optimizer)\n",
        ),
        "values clipped": (
            "with GradScaler",
            CLIP,
            "    norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])\n    torch.nn.utils.clip_grad_value_(model.parameters(), max_norm)\n",
        ),
        "each tensor by itself": (
            "with GradScaler",
            CLIP,
            "    norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])\n    for p in model.parameters():\n        torch.nn.utils.clip_grad_norm_(p, max_norm)\n",
        ),
        "norm after clipping": ("return the norm before it", CLIP, CLIP + CLIP),
        "the smaller of the two": (
            "return the norm before it",
            "return norm",
            "return min(norm, torch.tensor(max_norm))",
        ),
        "sum of magnitudes": ("with GradScaler", "max_norm)", "max_norm, norm_type=1)"),
        "largest magnitude": ("with GradScaler", "max_norm)", "max_norm, norm_type=float('inf'))"),
        "clipped at 1": ("with GradScaler", "max_norm)\n", "1.0)\n"),
        "not clipped": (
            "the weights moved as if nothing had been clipped",
            "max_norm)\n    scaler",
            "float('inf'))\n    scaler",
        ),
        "always scaled to the norm": (
            "with GradScaler",
            CLIP,
            "    norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])\n    for p in model.parameters():\n        p.grad *= max_norm / norm\n",
        ),
        "raises at an overflow": ("RuntimeError", "max_norm)\n", "max_norm, error_if_nonfinite=True)\n"),
        "returns before the update at an overflow": (
            "` at the end of every step",
            "    scaler.step",
            "    if not norm.isfinite():\n        return norm\n    scaler.step",
        ),
        "skips what would be clipped": (
            "but the weights have not moved",
            "    scaler.step(optimizer)",
            "    if norm <= max_norm:\n        scaler.step(optimizer)",
        ),
        "infinities replaced first": (
            "but the optimizer took the step",
            UNSCALED,
            "    for p in model.parameters():\n        p.grad.nan_to_num_(0, 0, 0)\n" + UNSCALED,
        ),
        "matrices only": (
            "with GradScaler",
            "model.parameters()",
            "[p for p in model.parameters() if p.dim() > 1]",
        ),
        "the head only": ("with GradScaler", "model.parameters()", "list(model.parameters())[-1:]"),
        "scale divided out once more": (
            "with a scaler of your own",
            "return norm",
            "return norm / getattr(scaler, 'value', 1.0)",
        ),
        "squared norm": ("with GradScaler", "return norm", "return norm**2"),
        "gradients left clipped, step with a copy": (
            "with GradScaler",
            CLIP,
            "    norm = torch.nn.utils.clip_grad_norm_([p.clone() for p in model.parameters()], max_norm)\n",
        ),
        "weights clipped": (
            "with GradScaler",
            CLIP,
            CLIP
            + "    with torch.no_grad():\n        for p in model.parameters():\n            p.clamp_(-max_norm, max_norm)\n",
        ),
    }
}


@pytest.mark.stamped("lab 04")
def test_every_answer_is_told_what_it_is(nothing_is_left_behind):
    judged_on_ranks(check.lab_04.clipped_step, __name__)
