"""How can one pass through the model write several tokens? Guess them, and keep what it would have written.

A cheap draft guesses tokens; the model reads all of them in one pass and accepts a beginning (Leviathan et
al. 2023, section 2). Here the draft looks the last tokens up in the sequence itself and guesses what followed
them there: prompt lookup, the n-gram method of vLLM.
"""

import torch

from allranks.model import GREYS


def lookup(tokens, guesses, longest=3):
    """At most `guesses` tokens that followed where the last `longest` tokens, or fewer, first occurred."""
    for size in range(min(longest, len(tokens) - 1), 0, -1):
        for first in range(len(tokens) - size):
            if tokens[first : first + size] == tokens[-size:]:
                return tokens[first + size :][:guesses]
    return []


def outcomes(p, q, guess):
    """Chances of each (tokens accepted, next token), shape (γ + 1, vocabulary), for γ guessed tokens.

    p: the model's distribution at each guess and after the last, (γ + 1, vocabulary); q: the draft's, from
    which `guess` was drawn, (γ, vocabulary). A guess x is accepted with probability min(1, p(x)/q(x)); after
    a refusal the next token comes from what p has more than q (Leviathan et al. 2023, algorithm 1).
    """
    reached, chances = p.new_ones(()), []
    for own, draft, token in zip(p, q, guess, strict=False):
        accepted = (own[token] / draft[token]).clamp(max=1)
        more = (own - draft).clamp(min=0)
        chances.append(reached * (1 - accepted) * more / more.sum().clamp(min=1e-30))
        reached = reached * accepted
    return torch.stack([*chances, reached * p[len(guess)]])


@torch.no_grad()
def speculate(model, prompt, new, cache, guesses=4, seed=None, draft=lookup):
    """Write `new` greys behind `prompt`, a list of tokens, with an empty `cache` of one sequence.

    `draft(tokens, guesses)` lists guesses, with certainty. The likeliest greys are written, the same as
    without guesses; with a `seed` they are drawn, from the same distribution. Return all tokens, and for each
    pass (guesses, accepted).
    """
    tokens, total, log = list(prompt), len(prompt) + new, []
    device = next(model.parameters()).device
    sampler = torch.Generator(device).manual_seed(seed or 0)
    while len(tokens) < total:
        guess = draft(tokens, min(guesses, total - len(tokens) - 1))
        fed = torch.tensor([tokens[cache.length :] + guess], device=device)
        logits = model(fed, cache)[0, -len(guess) - 1 :, :GREYS]
        if seed is None:
            best = logits.argmax(-1).tolist()
            accepted = 0
            while accepted < len(guess) and guess[accepted] == best[accepted]:
                accepted += 1
            following = best[accepted]
        else:
            certain = torch.eye(GREYS, device=device)[guess]
            chances = outcomes(logits.softmax(-1), certain, guess)
            accepted, following = divmod(
                int(torch.multinomial(chances.flatten(), 1, generator=sampler)), GREYS
            )
        tokens += [*guess[:accepted], following]
        cache.length = len(tokens) - 1  # what was refused is overwritten
        log.append((len(guess), accepted))
    return tokens, log
