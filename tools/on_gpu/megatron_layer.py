"""Which layer do the formulas of activations describe? Megatron's, here without ranks."""

import torch
import torch.nn.functional as F
from torch import nn


class Layer(nn.Module):
    """Megatron's layer without ranks; `gated` is Llama's, `fused` computes attention in tiles."""

    def __init__(self, model, dropout=0.1, fused=False):
        super().__init__()
        h, f, width = model.hidden, model.feed_forward, model.head_width
        self.model, self.fused, self.rate = model, fused, dropout
        if model.biases:
            self.norm_1, self.norm_2 = nn.LayerNorm(h), nn.LayerNorm(h)
        else:  # with a gain, torch's RMSNorm on a CPU keeps what it multiplies; a fused one does not
            self.norm_1, self.norm_2 = (nn.RMSNorm(h, elementwise_affine=False) for _ in range(2))
        self.query = nn.Linear(h, model.heads * width, model.biases)
        self.key, self.value = (nn.Linear(h, model.kv_heads * width, model.biases) for _ in range(2))
        self.out = nn.Linear(model.heads * width, h, model.biases)
        self.up, self.down = nn.Linear(h, f, model.biases), nn.Linear(f, h, model.biases)
        self.gate = nn.Linear(h, f, model.biases) if model.gated else None

    def drop(self, x):
        return torch.native_dropout(x, self.rate, True)[0] if self.rate else x

    def attention(self, q, k, v):
        if self.fused:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.drop((q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1)) @ v

    def feed_forward(self, x):
        if self.gate is None:
            return self.down(F.gelu(self.up(x)))
        return self.down(F.silu(self.gate(x)) * self.up(x))

    def forward(self, x):
        y = self.norm_1(x)
        q, k, v = (
            w(y).unflatten(-1, (-1, self.model.head_width)).transpose(1, 2)
            for w in (self.query, self.key, self.value)
        )
        x = x + self.drop(self.out(self.attention(q, k, v).transpose(1, 2).flatten(-2)))
        return x + self.drop(self.feed_forward(self.norm_2(x)))
