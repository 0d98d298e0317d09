"""Decode with a cache."""

import random

import torch

from allranks.check import exercise
from allranks.check.lab_06.common import forward, is_equal, must, new_llama, new_tokens, on_ranks
from allranks.check.labs import is_written
from allranks.model import GREYS
from allranks.serving.cache import attend
from allranks.serving.model import rotate


def cached(layer, x, past, first=None, twice=False, again=False, blind=False, plain=False):
    """Attention to the past and to new tokens: the right answer, and what the usual wrong ones compute.

    first: the position of the first new token; twice, again: all keys, or those of the past, are
    rotated once more; blind: new tokens see only each other; plain: nothing is rotated.
    """
    before = 0 if past is None else past.shape[3]
    positions = torch.arange(x.shape[1]) + (before if first is None else first(before))
    projections = (layer.q_proj, layer.k_proj, layer.v_proj)
    q, k, v = (project(x).unflatten(-1, (-1, layer.width)).transpose(1, 2) for project in projections)
    if not plain:
        q, k = (rotate(t, positions).to(x.dtype) for t in (q, k))
    new = torch.stack([k, v])
    if again and before:
        past = torch.stack([rotate(past[0], torch.arange(before)).to(x.dtype), past[1]])
    past = new if past is None else torch.cat([past, new], 3)
    keys = past[0]
    if twice and before:
        keys = rotate(keys, torch.arange(keys.shape[2])).to(x.dtype)
    seen = past.shape[3] if not blind else x.shape[1]
    order = torch.arange(before, before + x.shape[1])
    keys, values, at = keys[:, :, -seen:], past[1][:, :, -seen:], torch.arange(past.shape[3])[-seen:]
    return layer.o_proj(attend(q, keys, values, order, at)[0].transpose(1, 2).flatten(-2)), past


USUAL = (  # what a wrong answer computes, and what is to be said about it
    (
        {"first": lambda before: 0},
        "the positions of new tokens begin at 0 in every pass; they go on where the past ends",
    ),
    (
        {"first": lambda before: before + bool(before)},
        "after a past, positions begin one too late: the first new token's position is the past's length",
    ),
    (
        {"first": lambda before: before - bool(before)},
        "after a past, positions begin one too early: that is the position of its last token",
    ),
    ({"twice": True}, "keys of the past are rotated again; they were rotated when they were new"),
    ({"again": True}, "keys of the past are rotated again; they were rotated when they were new"),
    ({"plain": True}, "nothing is rotated: q and k turn by their positions before they meet"),
    ({"blind": True}, "new tokens attend only to each other, not to the past"),
)


def _usual(model, pieces):
    """The logits of every usual wrong answer: [(logits, sentence)]."""
    found = []
    for options, sentence in USUAL:

        def wrong(*given, options=options):
            return cached(*given, **options)

        found.append((_passes(model, wrong, pieces), sentence))
    return found


def _passes(model, attention, pieces):
    pasts, logits = None, []
    for piece in pieces:
        some, pasts = forward(model, attention, piece, pasts)
        logits.append(some)
    return torch.cat(logits, 1)


def _attends(answer, model, pieces):
    """The logits of the reader's attention, piece by piece; on a rank."""
    held = 0

    def attention(layer, x, past):
        before, names = None if past is None else past.clone(), set(vars(layer))
        try:
            found = answer(layer, x, past)
        except RuntimeError as error:
            must(
                not any(word in str(error) for word in ("dtype", "scalar type")),
                f"In {x.dtype}: {error}. rotate returns 32 bits; convert q and k to x.dtype.",
            )
            raise
        must(
            found is not None and found is not ...,
            "attention returns nothing yet; it should return (output, past).",
        )
        must(
            isinstance(found, tuple | list) and len(found) == 2 and all(map(torch.is_tensor, found)),
            "attention should return two tensors, (output, past).",
        )
        out, after = found
        must(
            past is None or torch.equal(past, before),
            "attention changes the past it was given; return a new tensor (torch.cat).",
        )
        new = sorted(set(vars(layer)) - names)
        must(
            not new,
            f"attention keeps {', '.join(new)} in the layer, which all conversations share; return it.",
        )
        size = [2, len(x), model.shape.kv_heads, held + x.shape[1], model.shape.head_width]
        _judge_past(after, size, x, model.shape)
        must(out.shape == x.shape, f"The output has shape {tuple(out.shape)}; expected {tuple(x.shape)}.")
        return out, after

    logits, pasts = [], None
    for piece in pieces:
        some, pasts = forward(model, attention, piece, pasts)
        logits.append(some)
        held += piece.shape[1]
    return torch.cat(logits, 1)


def _judge_past(after, size, x, shape):
    expected = f"{tuple(size)}: keys and values, sequences, key heads, tokens, width"
    found = list(after.shape)
    if found != size and len(found) == 5:
        queries = size[:2] + [shape.heads] + size[3:]
        must(
            found != queries,
            f"The past holds {shape.heads} heads, one for each query; {shape.kv_heads} heads of keys are "
            "enough, and attend shares them.",
        )
        must(
            found[3] == size[3],
            f"The past holds {found[3]} tokens after {size[3]} have passed; keep each token once.",
        )
    must(found == size, f"The past has shape {tuple(found)}; expected {expected}.")
    must(
        after.untyped_storage().nbytes() <= 2 * after.nbytes,
        f"The past takes {after.nbytes:,} bytes and keeps {after.untyped_storage().nbytes():,} in memory: "
        "it is a view of something larger.",
    )
    must(
        after.dtype == x.dtype,
        f"The past is in {after.dtype}, but the tokens are in {x.dtype}: a cache keeps the dtype of x.",
    )


def _writes(answer, tokens, new, seed):
    """What `write` returns, and what it has passed to `step`; on a rank."""
    fed, memory = [], []

    def step(some, pasts=None):
        must(torch.is_tensor(some) and some.dim() == 2, "step takes tokens (sequences, new).")
        must(
            (pasts is None) == (not fed) and (not fed or pasts is memory[-1]),
            "write loses the past: the first step gets None, and each later one what the previous step "
            "returned.",
        )
        must(len(fed) <= new + 2, f"write takes more than {new} steps for {new} new tokens.")
        fed.append(some.clone())
        memory.append([object()])
        return likely_greys(torch.cat(fed, 1), seed)[:, -some.shape[1] :], memory[-1]

    given = tokens.clone()
    found = answer(step, tokens, new)
    must(torch.equal(tokens, given), "write changes its tokens in place; return a longer tensor.")
    return found, fed


def likely_greys(tokens, seed):
    """Logits that depend on all tokens so far; beyond the greys stands a larger number, for a trap."""
    weights = torch.arange(1, tokens.shape[1] + 1) * (2 * seed + 1)
    hashed = (tokens * weights).cumsum(1) * 7 + weights
    logits = torch.zeros(*tokens.shape, GREYS + 10)
    logits[..., GREYS] = 2.0
    return logits.scatter(-1, (hashed % GREYS)[..., None], 1.0)


def written(tokens, new, seed):
    """The likeliest greys behind `tokens`, one pass for each."""
    for _ in range(new):
        tokens = torch.cat([tokens, likely_greys(tokens, seed)[:, -1:, :GREYS].argmax(-1)], 1)
    return tokens


def _judge_written(found, fed, tokens, new, right):
    must(
        found is not None and found is not ...,
        "write returns nothing yet; it should return all tokens, (sequences, known + new).",
    )
    passed, known = torch.cat(fed, 1) if fed else tokens[:, :0], tokens.shape[1]
    must(fed, "write never calls step.")
    if passed.shape[1] > known + new - 1 and len(fed) > 1:
        again = torch.equal(fed[1][:, :1], tokens[:, :1]) and fed[1].shape[1] > 1
        must(
            not again,
            f"write passes all tokens through step again: {passed.shape[1]} tokens; {known + new - 1} are "
            "enough.",
        )
        must(
            not (fed[0].shape[1] == known and torch.equal(fed[1], tokens[:, -1:])),
            "The last known token passes through step twice, so the cache has it twice: the first pass "
            "already predicts what follows.",
        )
    must(
        passed.shape[1] <= known + new - 1,
        f"{passed.shape[1]} tokens pass through step; the last new one need not: nothing follows it.",
    )
    must(torch.is_tensor(found), f"write returned {type(found).__name__}; expected a tensor of tokens.")
    must(
        found.shape == right.shape,
        f"write returned shape {tuple(found.shape)}; expected {tuple(right.shape)}, known and new tokens.",
    )
    must(found.dtype == tokens.dtype, f"write returned {found.dtype}; tokens are in {tokens.dtype}.")
    must(
        bool((found[:, known:] < GREYS).all()),
        (f"A new token is not a grey: choose among the first {GREYS}."),
    )
    must(torch.equal(found, right), "The tokens are not the likeliest ones, or not in order.")


def _both(attention, write, cases, jobs):
    """On a rank: the reader's logits for each case; then the loop is judged."""
    with torch.no_grad():
        found = [_attends(attention, model, pieces) for model, pieces in cases]
    for tokens, new, seed in jobs:
        right = written(tokens, new, seed)
        _judge_written(*_writes(write, tokens, new, seed), tokens, new, right)
    return found


def _cases():
    """Models in 64 bits, and passes of several lengths: a prompt, single tokens, a chunk."""
    cases = []
    for cuts in ([5, 1, 1, 3, 1], [1, 1, 4], [19, 1, 2]):
        tokens = new_tokens(random.choice([1, 3]), sum(cuts))
        cases.append((new_llama(), list(tokens.split(cuts, 1))))
    return cases


def _in_16_bits():
    """A model whose cache takes twice the bytes if it keeps what `rotate` returns."""
    return new_llama(torch.bfloat16), list(new_tokens(2, 5).split([4, 1], 1))


def logits_are_right(found, model, pieces):
    """Fail unless `found` are the logits of one pass over all tokens; name the usual mistake."""
    right = model(torch.cat(pieces, 1))
    if is_equal(found, right):
        return
    for wrong, sentence in _usual(model, pieces):
        assert not is_equal(found, wrong), (
            f"The logits differ from those of one pass over all tokens: {sentence}."
        )
    first = next(at for at in range(right.shape[1]) if not is_equal(found[:, at], right[:, at]))
    lengths = [piece.shape[1] for piece in pieces]
    raise AssertionError(
        f"In passes of {lengths} tokens, the logits of token {first} are not those of one pass over all."
    )


@exercise
def decode(attention, write):
    """`attention(layer, x, past)` and `write(step, tokens, new)`: the logits of one pass over all tokens."""
    is_written(attention, write)
    cases = _cases()
    jobs = [(new_tokens(2, 5), 4, 3), (new_tokens(1, 1), 6, 5), (new_tokens(3, 4), 1, 8)]
    found = on_ranks(_both, attention, write, cases, jobs)[0]
    with torch.no_grad():
        for (model, pieces), logits in zip(cases, found, strict=True):
            logits_are_right(logits, model, pieces)
    on_ranks(_both, attention, write, [_in_16_bits()], [])
    return "The logits equal one pass over all tokens; each token passes once and is cached once."
