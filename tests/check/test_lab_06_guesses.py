"""Lab 06, guesses checked in one pass: right answers in several styles, and what students get wrong."""

import torch
from students import judged_here

from allranks import check
from allranks.model import GREYS


def speculate(step, draft, tokens, new):
    fed, pasts, end = tokens, None, tokens.shape[1] + new
    while tokens.shape[1] < end:
        guesses = draft(tokens)[:, : end - tokens.shape[1] - 1]
        count = guesses.shape[1]
        logits, pasts = step(torch.cat([fed, guesses], 1), pasts)
        own = logits[:, -count - 1 :, :GREYS].argmax(-1)
        kept = int((own[0, :count] == guesses[0]).cumprod(0).sum())
        fed = own[:, kept : kept + 1]
        tokens = torch.cat([tokens, own[:, : kept + 1]], 1)
        pasts = [past[:, :, :, : tokens.shape[1] - 1] for past in pasts]
    return tokens


def after_a_prefill(step, draft, tokens, new):
    known = tokens.shape[1]
    logits, pasts = step(tokens, None)
    tokens = torch.cat([tokens, logits[:, -1:, :GREYS].argmax(-1)], 1)
    while (left := known + new - tokens.shape[1]) > 0:
        guesses = draft(tokens)
        if guesses.shape[1] >= left:
            guesses = guesses[:, : left - 1]
        logits, pasts = step(torch.cat([tokens[:, -1:], guesses], 1), pasts)
        kept, following = 0, logits[0, :, :GREYS].argmax(-1).tolist()
        for guess, own in zip(guesses[0].tolist(), following, strict=False):
            if guess != own:
                break
            kept += 1
        tokens = torch.cat([tokens, torch.tensor([following[: kept + 1]])], 1)
        refused = guesses.shape[1] - kept
        pasts = tuple(past[..., : past.size(-2) - refused, :].clone() for past in pasts)
    return tokens


def with_a_list(step, draft, tokens, new):
    written, end, pasts = tokens[0].tolist(), tokens.shape[1] + new, None
    while len(written) < end:
        held = 0 if pasts is None else pasts[0].shape[3]
        guess = draft(torch.tensor([written]))[0].tolist()
        guess = guess[: end - len(written) - 1]
        logits, pasts = step(torch.tensor([written[held:] + guess]), pasts)
        own = logits[0, :, :GREYS].max(-1).indices[len(written) - held - 1 :].tolist()
        for mine, other in zip(own, [*guess, None], strict=True):
            written.append(mine)
            if mine != other:
                break
        pasts = [past.narrow(3, 0, len(written) - 1) for past in pasts]
    return torch.tensor([written])


RIGHT = [(speculate,), (after_a_prefill,), (with_a_list,)]

WRONG = {
    "speculate": {
        "refused guesses stay": ("a rejected guess", "past[:, :, :, : tokens.shape[1] - 1]", "past"),
        "one refused guess stays": (
            "a rejected guess",
            ": tokens.shape[1] - 1] for",
            ": tokens.shape[1]] for",
        ),
        "cut too short": (
            "does not begin with the next one",
            "shape[1] - 1] for",
            "shape[1] - 2] for",
        ),
        "cut along another dim": ("a rejected guess", "past[:, :, :, :", "past[:, :, :, :, :"),
        "past forgotten": ("loses the past", "pasts)\n", "None)\n"),
        "everything fed again": (
            "does not begin with",
            "torch.cat([fed, guesses], 1)",
            "torch.cat([tokens, guesses], 1)",
        ),
        "guesses beyond the end": ("take fewer guesses at the end", "[:, : end - tokens.shape[1] - 1]", ""),
        "one guess beyond the end": (
            "take fewer guesses",
            ": end - tokens.shape[1] - 1",
            ": end - tokens.shape[1]",
        ),
        "matches counted": ("all guesses before it", ".cumprod(0)", ".long()"),
        "all guesses kept": (
            "the model's own choices",
            "own[:, : kept + 1]",
            "torch.cat([guesses, own[:, -1:]], 1)",
            "fed = own[:, kept : kept + 1]",
            "fed = own[:, -1:]",
        ),
        "no token of its own": (
            "fewer tokens than it could",
            "own[:, : kept + 1]",
            "own[:, : max(kept, 1)]",
            "own[:, kept : kept + 1]",
            "own[:, max(kept, 1) - 1 : max(kept, 1)]",
        ),
        "no guesses": ("a single token", "draft(tokens)[:, :", "draft(tokens)[:, : 0 and"),
        "one guess a pass": ("fewer tokens than it could", "[:, : end", "[:, :1][:, : end"),
        "logits a place late": ("", "-count - 1 :, :GREYS", "-count:, :GREYS"),
        "any token of the vocabulary": ("choose among the first", ", :GREYS", ""),
        "the least likely": ("is not what the model writes", "argmax", "argmin"),
        "new tokens alone": ("known, new", "    return tokens", "    return tokens[:, -new:]"),
        "nothing returned": ("returns nothing yet", "    return tokens", "    return"),
        "in place": (
            "in place",
            "    fed, pasts",
            "    given = tokens\n    fed, pasts",
            "    return tokens",
            "    given.zero_()\n    return tokens",
        ),
        "a list": ("expected a tensor", "    return tokens", "    return tokens[0].tolist()"),
    },
}


def test_every_answer_is_told_what_it_is(monkeypatch):
    judged_here(check.lab_06.guesses, __name__, monkeypatch)
