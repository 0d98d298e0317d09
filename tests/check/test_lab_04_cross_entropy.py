"""Lab 04, a loss that adds up in fp32: right answers in several styles, and what students get wrong."""

import pytest
import torch
import torch.nn.functional as F
from students import judged_on_ranks

from allranks import check


def cross_entropy(logits, targets):
    logits = logits.float()
    logits = logits - logits.max(-1, keepdim=True).values
    log_sum = logits.exp().sum(-1).log()
    return (log_sum - logits.gather(-1, targets[:, None]).squeeze(-1)).mean()


def by_logsumexp(logits, targets):
    wide = logits.to(torch.float32)
    picked = wide[torch.arange(len(targets), device=wide.device), targets]
    return torch.mean(torch.logsumexp(wide, dim=1) - picked)


def by_log_softmax(logits, targets):
    return F.nll_loss(F.log_softmax(logits, -1, dtype=torch.float32), targets)


def without_autocast(logits, targets):
    with torch.autocast(logits.device.type, enabled=False):
        z = logits.float()
        top = z.detach().amax(1, keepdim=True)
        log_sum = top[:, 0] + torch.log(torch.sum(torch.exp(z - top), 1))
        losses = log_sum - torch.take_along_dim(z, targets.unsqueeze(1), 1)[:, 0]
        return losses.sum() / losses.numel()


def in_fp64(logits, targets):
    z = logits.double()
    return (z.logsumexp(-1) - z.gather(1, targets[:, None])[:, 0]).mean().float()


RIGHT = [(cross_entropy,), (by_logsumexp,), (by_log_softmax,), (without_autocast,), (in_fp64,)]
WRONG = {
    "cross_entropy": {
        "never converted": ("outside autocast", "logits = logits.float()", "pass"),
        "converted after subtracting": (
            "convert before the first operation",
            "    logits = logits.float()\n",
            "",
            "keepdim=True).values",
            "keepdim=True).values\n    logits = logits.float()",
        ),
        "converted after exp": (
            "convert before the first operation",
            "    logits = logits.float()\n",
            "",
            "exp()",
            "exp().float()",
        ),
        "largest not subtracted": (
            "and do not take the logarithm of a softmax",
            "    logits = logits - logits.max(-1, keepdim=True).values\n",
            "",
        ),
        "largest of all rows": (
            "and do not take the logarithm of a softmax",
            "logits.max(-1, keepdim=True).values",
            "logits.max()",
        ),
        "largest of each column": ("convert before the first operation", "max(-1, k", "max(0, k"),
        "mean of each row instead of the largest": (
            "and do not take the logarithm of a softmax",
            "max(-1, keepdim=True).values",
            "mean(-1, keepdim=True)",
        ),
        "summed in 16 bits": (
            "convert before the first operation",
            "exp().sum(-1)",
            "exp().to(torch.bfloat16).sum(-1)",
        ),
        "averaged in 16 bits": (
            "convert before the first operation",
            "squeeze(-1)).mean()",
            "squeeze(-1)).bfloat16().mean().float()",
        ),
        "each row with each target": ("every row meets the target of every row", ".squeeze(-1)", ""),
        "sum instead of mean": ("expected the mean", ".mean()", ".sum()"),
        "mean over the vocabulary": (
            "convert before the first operation",
            ".mean()",
            ".sum() / logits.shape[-1]",
        ),
        "returned in 16 bits": ("outside autocast", ".mean()", ".mean().bfloat16()"),
        "returned in 64 bits": ("outside autocast", ".mean()", ".mean().double()"),
        "one number in a vector": ("the loss has shape", ".mean()", ".mean().view(1)"),
        "a number without a graph": ("expected a tensor of shape", ".mean()", ".mean().item()"),
        "logits changed in place": (
            "the logits or the targets have changed",
            "logits = logits - logits.max(-1, keepdim=True).values",
            "logits.data.sub_(logits.max(-1, keepdim=True).values)",
        ),
        "targets changed in place": ("RuntimeError", "targets[:, None]", "targets.unsqueeze_(1)"),
        "no gradient through the sum": (
            "the loss is right",
            "exp().sum(-1).log()",
            "exp().sum(-1).log().detach()",
        ),
        "no gradient through the target": (
            "the loss is right",
            "gather(-1, targets[:, None])",
            "detach().gather(-1, targets[:, None])",
        ),
        "sign turned": ("convert before the first operation", "(log_sum - ", "-(log_sum - "),
        "softmax and then log": (
            "and do not take the logarithm of a softmax",
            "(log_sum - logits.gather",
            "-(logits.softmax(-1).log().gather",
        ),
        "softmax, an epsilon, log": (
            "convert before the first operation",
            "(log_sum - logits.gather",
            "-((logits.softmax(-1) + 1e-9).log().gather",
        ),
        "clamped": (
            "convert before the first operation",
            "logits = logits.float()",
            "logits = logits.float().clamp(-80, 80)",
        ),
        "targets picked by a matrix product": (
            "convert before the first operation",
            "logits.gather(-1, targets[:, None]).squeeze(-1)",
            "(logits @ F.one_hot(targets, logits.shape[-1]).to(logits).T).diagonal()",
        ),
        "fp32 inputs rounded": (
            "convert before the first operation",
            "logits.float()",
            "logits.bfloat16().float()",
        ),
        "torch's own in 16 bits": (
            "outside autocast",
            "    logits = logits.float()\n",
            "    return F.cross_entropy(logits, targets)\n",
        ),
        "torch's own, converted afterwards": (
            "convert before the first operation",
            "    logits = logits.float()\n",
            "    return F.cross_entropy(logits, targets).float()\n",
        ),
        "logsumexp in 16 bits": (
            "convert before the first operation",
            "    logits = logits.float()\n",
            "    return (logits.logsumexp(-1).float() - logits.gather(-1, targets[:, None])[:, 0]).mean()\n",
        ),
        "no gradient: detached copy": (
            "no gradient reaches the logits",
            "logits.float()",
            "logits.detach().float()",
        ),
    }
}


@pytest.mark.stamped("lab 04")
def test_every_answer_is_told_what_it_is(nothing_is_left_behind):
    judged_on_ranks(check.lab_04.cross_entropy, __name__)
