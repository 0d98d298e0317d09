"""Which slice of a Llama does each rank decode with? Its heads, its columns, and a cache of its own heads.

The layers of `allranks.parallel.tensor`, forward only: two all-reduces a layer, one more after the embedding,
and an all-gather of the logits, so that every rank chooses the same token. Beyond the number of key heads,
several ranks hold copies of one (`allranks.inference.tensor_slice`).
"""

import torch
import torch.distributed as dist
from torch import nn

from allranks.inference import tensor_slice
from allranks.parallel.tensor import Column, ParallelEmbedding, Row


def whole_heads(linear, heads, group=None):
    """The part of a linear layer that makes this rank's heads, of `heads`: beyond as many ranks a copy."""
    ranks = dist.get_world_size(group)
    pieces = min(heads, ranks)
    rows = linear.weight.detach().chunk(pieces)[dist.get_rank(group) * pieces // ranks]
    part = nn.Linear(*reversed(rows.shape), bias=False)
    part.weight = nn.Parameter(rows.clone())
    return part


class GatheredHead(Column):
    """The output layer cut by vocabulary entries: hidden states to the logits of all of them."""

    def __init__(self, linear, group=None):
        super().__init__(linear, group)
        self.group = group

    def forward(self, x):
        part = super().forward(x)
        parts = part.new_empty(dist.get_world_size(self.group), *part.shape)
        dist.all_gather_single(parts, part[None], group=self.group)
        return torch.cat(tuple(parts), -1)


def parallelize(model, group=None):
    """Cut a `Llama` in place, and return it; its `shape`, and so a `Cache` for it, is that of this rank.

    All ranks get the same tokens and return the same logits. ValueError if they cannot share the heads,
    columns or vocabulary evenly; the model is whole then.
    """
    kv_heads = model.shape.kv_heads
    model.shape = tensor_slice(model.shape, dist.get_world_size(group))
    model.model.embed_tokens = ParallelEmbedding(model.model.embed_tokens, group)
    for layer in model.model.layers:
        attention, mlp = layer.self_attn, layer.mlp
        attention.q_proj = Column(attention.q_proj, group)
        attention.k_proj = whole_heads(attention.k_proj, kv_heads, group)
        attention.v_proj = whole_heads(attention.v_proj, kv_heads, group)
        attention.o_proj = Row(attention.o_proj, group)
        mlp.gate_proj = Column(mlp.gate_proj, group)
        mlp.up_proj = Column(mlp.up_proj, group)
        mlp.down_proj = Row(mlp.down_proj, group)
    model.lm_head = GatheredHead(model.lm_head, group)
    return model
