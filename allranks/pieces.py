"""Where can a pipeline cut the running model? Between any two pieces of a chain.

The pieces are the embedding, the two halves of every layer (attention and feed-forward network), and the
output. Between two of them travels one tensor, (batch, sequence, hidden), so a stage is a run of pieces.
A piece shares its parameters with the model it is taken from.
"""

import torch
import torch.nn.functional as F
from torch import nn


class Embedding(nn.Module):
    """Tokens, (batch, sequence), to hidden states, (batch, sequence, hidden)."""

    def __init__(self, model):
        super().__init__()
        self.token, self.position = model.token, model.position

    def forward(self, tokens):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return self.token(tokens) + self.position(places)


class Attention(nn.Module):
    """The first half of a layer, its residual included: (batch, sequence, hidden) to the same shape."""

    def __init__(self, layer):
        super().__init__()
        self.heads, self.norm, self.out = layer.heads, layer.norm_1, layer.out
        self.qkv = nn.ModuleList([layer.query, layer.key, layer.value])

    def forward(self, x):
        y = self.norm(x)
        q, k, v = (w(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for w in self.qkv)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(y.transpose(1, 2).flatten(-2))


class FeedForward(nn.Module):
    """The second half of a layer, its residual included: (batch, sequence, hidden) to the same shape."""

    def __init__(self, layer):
        super().__init__()
        self.inside = nn.Sequential(layer.norm_2, layer.up, nn.GELU(), layer.down)

    def forward(self, x):
        return x + self.inside(x)


def pieces_of(model):
    """The running model as a chain of modules: two for each layer, an embedding before, an output after."""
    halves = [half(layer) for layer in model.layers for half in (Attention, FeedForward)]
    return [Embedding(model), *halves, nn.Sequential(model.norm, model.head)]


def part_of(model, cut, stage):
    """Stage number `stage` of a model cut into stages of `cut[0]`, `cut[1]`, … pieces: an `nn.Sequential`.

    ValueError if the stages have more or fewer pieces than the model.
    """
    pieces = pieces_of(model)
    if sum(cut) != len(pieces):
        raise ValueError(f"the cut {cut} has {sum(cut)} pieces; the model has {len(pieces)}: change the cut")
    start = sum(cut[:stage])
    return nn.Sequential(*pieces[start : start + cut[stage]])
