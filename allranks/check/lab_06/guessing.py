"""Guess several tokens and check them in one pass."""

import random

import torch

from allranks.check import exercise
from allranks.check.lab_06.common import must, new_tokens, on_ranks
from allranks.check.lab_06.decoding import likely_greys, written
from allranks.check.labs import is_written
from allranks.model import GREYS

MOST = 4  # guesses that a draft makes at a time
SEED = 7  # of the model that stands in


def new_draft(kinds):
    """A draft that guesses as `kinds` say, in turn: for each guess of a pass, whether it is right.

    A guess after a wrong one is what the model would write after that, so that counting is not enough.
    """

    def draft(tokens):
        guesses = tokens[:, :0]
        for is_right in kinds[tokens.shape[1] % len(kinds)]:
            grey = written(torch.cat([tokens, guesses], 1), 1, SEED)[:, -1:]
            guesses = torch.cat([guesses, grey if is_right else (grey + 1) % GREYS], 1)
        return guesses

    return draft


def fewest(draft, tokens, new, prefill=False):
    """Passes that are needed; with `prefill`, the first one checks no guess."""
    right, length, passes = written(tokens, new, SEED), tokens.shape[1], 0
    end = length + new
    while length < end:
        guesses = draft(right[:, :length])[:, : 0 if prefill and not passes else end - length - 1]
        same = guesses == right[:, length : length + guesses.shape[1]]
        length, passes = length + 1 + int(same.cumprod(1).sum()), passes + 1
    return passes


class _Model:
    """What stands in for `step`, with a cache that keeps tokens themselves, so that it can be looked into."""

    def __init__(self, right, known):
        self.right, self.known = right, known
        self.passes, self.written = 0, known  # `written`: tokens, when the draft was last asked

    def step(self, tokens, pasts=None):
        must(torch.is_tensor(tokens) and tokens.dim() == 2, "step takes tokens (sequences, new).")
        new = self.right.shape[1] - self.known
        must(self.passes <= new + 1, f"speculate takes more than {new} passes for {new} new tokens.")
        must(
            (pasts is None) == (not self.passes),
            "speculate loses the past: the first pass gets None, and each later one what the previous "
            "pass returned.",
        )
        held = self._held(pasts)
        length, count = held.shape[1], tokens.shape[1]
        must(count > 0, "A pass without tokens: the last token written always has to pass.")
        must(
            length + count < self.right.shape[1],
            f"The pass fills the cache with {length + count} tokens, but it has room for "
            f"{self.right.shape[1] - 1}: take fewer guesses at the end.",
        )
        missing = self.right[:, length : max(self.written, length + 1)]
        must(
            torch.equal(tokens[:, : missing.shape[1]], missing),
            f"The past holds {length} tokens, but the pass does not begin with the next one: feed written "
            "tokens that are not in the past, then the guesses.",
        )
        self.passes += 1
        both = torch.cat([held, tokens], 1)
        logits = likely_greys(both, SEED)[:, -count:]
        return logits, [torch.stack([both, both])[:, :, None, :, None].double() for _ in range(2)]

    def _held(self, pasts):
        if pasts is None:
            return self.right[:, :0]
        must(
            isinstance(pasts, list | tuple) and len(pasts) == 2 and all(map(torch.is_tensor, pasts)),
            "pasts is a list with a tensor for each layer; cut each of them, and keep the list.",
        )
        lengths = {past.shape[3] if past.dim() == 5 else -1 for past in pasts}
        must(
            len(lengths) == 1 and -1 not in lengths and all(p.shape[:3] == (2, 1, 1) for p in pasts),
            "A past is (2, sequences, key heads, tokens, width): cut the tokens of each layer alike.",
        )
        held = pasts[0][0, :, 0, :, 0].long()
        agree = self._agree(held)
        must(
            agree == held.shape[1],
            f"After a pass the past still holds token {agree}, a rejected guess: cut the pasts back to "
            "the written tokens.",
        )
        return held

    def _agree(self, tokens):
        return int((tokens == self.right[:, : tokens.shape[1]]).cumprod(1).sum())


def _tried(answer, tokens, new, kinds):
    right, guess = written(tokens, new, SEED), new_draft(kinds)
    model, given = _Model(right, tokens.shape[1]), tokens.clone()

    def draft(some):
        must(
            torch.is_tensor(some) and some.dim() == 2 and len(some) == 1,
            "draft takes all tokens written so far, (1, count).",
        )
        _judge_tokens(some, right, tokens.shape[1])
        model.written = some.shape[1]
        return guess(some)

    found = answer(model.step, draft, tokens, new)
    must(torch.equal(tokens, given), "speculate changes its tokens in place; return a longer tensor.")
    must(
        found is not None and found is not ...,
        "speculate returns nothing yet; it should return all tokens, (1, known + new).",
    )
    must(torch.is_tensor(found), f"speculate returned {type(found).__name__}; expected a tensor of tokens.")
    must(
        found.shape == right.shape,
        f"speculate returned shape {tuple(found.shape)}; expected {tuple(right.shape)}: known, new.",
    )
    must(found.dtype == tokens.dtype, f"speculate returned {found.dtype}; tokens are in {tokens.dtype}.")
    _judge_tokens(found, right, tokens.shape[1])
    most = max(fewest(guess, tokens, new), fewest(guess, tokens, new, prefill=True))
    why = (
        "every pass writes a single token"
        if model.passes == new
        else "a pass writes fewer tokens than it could"
    )
    must(
        model.passes <= most,
        f"{model.passes} passes for {new} tokens; {most} are enough: {why}. It writes the guesses before "
        "the first wrong one, and one token of the model's own.",
    )


def _judge_tokens(found, right, known):
    """Refuse tokens, written so far, that the model would not have written."""
    must(
        bool((found[:, known:] < GREYS).all()),
        (f"A new token is not a grey: choose among the first {GREYS}."),
    )
    must(found.shape[1] <= right.shape[1], "More tokens are written than `new`.")
    same = (found == right[:, : found.shape[1]])[0]
    wrong = same.logical_not().nonzero().flatten().tolist()
    must(
        not wrong,
        f"Token {min(wrong, default=0)} is not what the model writes there. A guess is kept only "
        "if it and all guesses before it are the model's own choices.",
    )


def _all(answer, cases):
    with torch.no_grad():
        for case in cases:
            _tried(answer, *case)


def _cases():
    """(tokens, new, whether each guess of a pass is right); the last draft is drawn anew."""
    right, wrong = [[True] * MOST], [[False] * MOST]
    drawn = [[random.random() < 0.6 for _ in range(random.randint(0, MOST))] for _ in range(5)]
    mixed = [[True, False, True, True], [], [True], [False, True], [True, True, False, True]]
    return [
        (new_tokens(1, 5), 40, right),
        (new_tokens(1, 1), 9, wrong),
        (new_tokens(1, 3), 30, mixed),
        (new_tokens(1, 2), 6, [[]]),
        (new_tokens(1, 4), 1, right),
        (new_tokens(1, 4), 30, drawn),
    ]


@exercise
def guesses(speculate):
    """`speculate(step, draft, tokens, new)`: the tokens of `write`, in as few passes as the draft allows."""
    is_written(speculate)
    cases = _cases()
    on_ranks(_all, speculate, cases)
    new = sum(new for _, new, _ in cases)
    return f"{new} likeliest greys take fewer passes, and no rejected guess stays in the past."
