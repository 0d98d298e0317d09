"""Which model do the chapters on inference serve? A Llama, small enough to train here, that draws digits.

Rotary positions, RMSNorm, SwiGLU and grouped-query attention (Touvron et al. 2023, section 2.2). Modules bear
the names that Hugging Face's `LlamaForCausalLM` gives them, so that one checkpoint serves both. Attention is
asked of a `cache`, if there is one: the model does not know how the past is stored.
"""

import torch
from torch import nn

from .cache import attend


class Norm(nn.Module):
    """RMSNorm: the last dimension divided by its root mean square, then scaled by a gain."""

    def __init__(self, hidden):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))

    def forward(self, x):
        return self.weight * (x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt())


def rotate(x, positions):
    """Turn each pair of elements i and i + width/2 of (…, tokens, width) by position · 10000^(−2i/width)."""
    half = x.shape[-1] // 2
    speeds = 10000.0 ** -(torch.arange(half, device=x.device) / half)
    angles = positions[:, None] * speeds
    cos, sin, (first, second) = angles.cos(), angles.sin(), x.split(half, -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


class Attention(nn.Module):
    def __init__(self, hidden, heads, kv_heads, width):
        super().__init__()
        self.width = width
        for name, count in (("q", heads), ("k", kv_heads), ("v", kv_heads)):
            self.add_module(f"{name}_proj", nn.Linear(hidden, count * width, bias=False))
        self.o_proj = nn.Linear(heads * width, hidden, bias=False)

    def forward(self, x, positions, layer, cache):
        projections = (self.q_proj, self.k_proj, self.v_proj)
        q, k, v = (project(x).unflatten(-1, (-1, self.width)).transpose(1, 2) for project in projections)
        q, k = rotate(q, positions), rotate(k, positions)
        if cache is None:
            out, _ = attend(q, k, v, positions, positions)
        else:
            out = cache.attend(layer, q, k, v, positions)
        return self.o_proj(out.transpose(1, 2).flatten(-2))


class MLP(nn.Module):
    def __init__(self, hidden, intermediate):
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(hidden, intermediate, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(intermediate, hidden, bias=False)

    def forward(self, x):
        return self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, hidden, heads, kv_heads, width, intermediate):
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = Norm(hidden), Norm(hidden)
        self.self_attn = Attention(hidden, heads, kv_heads, width)
        self.mlp = MLP(hidden, intermediate)

    def forward(self, x, *past):
        x = x + self.self_attn(self.input_layernorm(x), *past)
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    """Tokens (sequences, new) to logits (sequences, new, vocabulary); all sequences have the same past.

    With `positions` (new) the past is not asked for: a row may then hold tokens of several sequences, which
    its cache has to tell apart.

    `shape` is a `Transformer` of `allranks.transformer`; of its fields a Llama has no biases, no experts and
    an output layer of its own.
    """

    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        sizes = (shape.hidden, shape.heads, shape.kv_heads, shape.head_width, shape.feed_forward)
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(shape.vocabulary, shape.hidden)
        self.model.layers = nn.ModuleList(Layer(*sizes) for _ in range(shape.layers))
        self.model.norm = Norm(shape.hidden)
        self.lm_head = nn.Linear(shape.hidden, shape.vocabulary, bias=False)

    def forward(self, tokens, cache=None, positions=None):
        if positions is None:
            past = 0 if cache is None else cache.length
            positions = torch.arange(past, past + tokens.shape[1], device=tokens.device)
        x = self.model.embed_tokens(tokens)
        for number, layer in enumerate(self.model.layers):
            x = layer(x, positions, number, cache)
        if cache is not None:
            cache.length += tokens.shape[1]
        return self.lm_head(self.model.norm(x))
