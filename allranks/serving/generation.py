"""How is a sequence written? One pass for each new token, over all tokens again or with a cache."""

import torch

from allranks.model import GREYS, PIXELS


@torch.no_grad()
def generate(model, tokens, new=PIXELS, cache=None, seed=None):
    """Write `new` greys behind `tokens` (sequences, written); return all tokens and each step's logits.

    Without a cache every step passes all tokens through the model again; with one, those that it does not
    hold yet. The likeliest grey is taken; with a `seed` one is drawn. The last grey is never fed: a cache
    needs room for one token less than the whole.
    """
    sampler = torch.Generator(tokens.device).manual_seed(seed or 0)
    steps = []
    for _ in range(new):
        past = 0 if cache is None else cache.length
        logits = model(tokens[:, past:], cache)[:, -1, :GREYS]
        if seed is None:
            grey = logits.argmax(-1, keepdim=True)
        else:
            grey = torch.multinomial(logits.softmax(-1), 1, generator=sampler)
        tokens = torch.cat([tokens, grey], 1)
        steps.append(logits)
    return tokens, torch.stack(steps, 1)


def pictures(tokens):
    """The 8×8 greys of sequences that begin with their digit: (sequences, 8, 8)."""
    return tokens[:, 1 : 1 + PIXELS].view(-1, 8, 8).cpu()
