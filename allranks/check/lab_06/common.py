"""What do the tasks of the lab share? Ranks on CPUs, small models of any shape, refusals that travel."""

import random

import torch

from allranks.check.labs import on_ranks as run_on_ranks
from allranks.model import GREYS
from allranks.serving import Llama
from allranks.transformer import decoder


class Refusal(Exception):
    """What is wrong with the reader's answer, found on a rank: a sentence."""


def must(condition, sentence):
    """Raise `Refusal` with this sentence unless the condition holds."""
    if not condition:
        raise Refusal(sentence)


def _heard(test, *args):
    """What `test` returns, or the sentence of its `Refusal`: (sentence or None, result)."""
    try:
        return None, test(*args)
    except Refusal as refusal:
        return str(refusal), None


def on_ranks(test, *args, world_size=1, **options):
    """What `test(*args)` returns on each CPU rank; fail with the sentence of the first `Refusal`."""
    ranks = run_on_ranks(_heard, test, *args, world_size=world_size, backend="gloo", **options)
    for sentence, _ in ranks:
        assert sentence is None, sentence
    return [result for _, result in ranks]


def each(test, cases):
    """What `test(*case)` returns for each of the cases, on one rank."""
    return [test(*case) for case in cases]


def forward(model, attention, tokens, pasts=None):
    """Pass new tokens (sequences, new) through `model`; `attention` is that of the first task."""
    x, after = model.model.embed_tokens(tokens), []
    for number, layer in enumerate(model.model.layers):
        past = None if pasts is None else pasts[number]
        y, past = attention(layer.self_attn, layer.input_layernorm(x), past)
        x = x + y
        x = x + layer.mlp(layer.post_attention_layernorm(x))
        after.append(past)
    return model.lm_head(model.model.norm(x)), after


def new_shape():
    """The `Transformer` of a small Llama with fewer heads of keys than of queries, drawn anew."""
    kv_heads, width = random.choice([(2, 8), (4, 4), (2, 12)])
    return decoder(
        layers=2, hidden=16, heads=2 * kv_heads, kv_heads=kv_heads, head_width=width, feed_forward=24,
        vocabulary=GREYS + 10, sequence=64, gated=True, tied=False, biases=False, learned_positions=False,
    )  # fmt: skip


def new_llama(dtype=torch.float64, shape=None):
    """A Llama with random weights, drawn anew; large enough that a wrong position is seen in the logits."""
    model = Llama(shape or new_shape())
    draw = torch.Generator().manual_seed(random.randrange(2**31))
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.normal_(0, 2 * weight.shape[1] ** -0.5, generator=draw)
            else:
                weight.uniform_(0.5, 1.5, generator=draw)
    return model.to(dtype).eval().requires_grad_(False)


def new_tokens(*size):
    """Random greys, a tensor of this size."""
    draw = torch.Generator().manual_seed(random.randrange(2**31))
    return torch.randint(GREYS, size, generator=draw)


def is_equal(found, right, atol=1e-5):
    """Whether two tensors have one shape and differ by rounding only."""
    return found.shape == right.shape and torch.allclose(found.to(right.dtype), right, rtol=1e-5, atol=atol)
