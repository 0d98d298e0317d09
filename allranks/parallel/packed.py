"""How do ranks share the attention of a sequence that is packed of several documents?

A query meets only earlier keys of its own document. A rank's tokens are cut where documents end, into spans
(document, first, one after the last). A span of queries meets a span of keys fully, along the diagonal, or
not at all, because the spans of two ranks never overlap; so no tile needs a mask of its own. A layout lists
the spans of each rank, which hold equally many tokens; `attention.document_spans` gives three such layouts.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F

from . import fused
from .context import Swap, attend, attend_backward, for_each_head, hops, layer_forward, merge, shift, wait

IGNORED = -100  # the target of a token that does not count, as in torch


def pack(documents):
    """Put documents, 1-D tensors of tokens, into one sequence: (tokens, targets, positions), each 1-D.

    The last token of a document has no target, and positions begin at 0 in each.
    """
    targets = [F.pad(document[1:], (0, 1), value=IGNORED) for document in documents]
    positions = [torch.arange(len(document)) for document in documents]
    return torch.cat(documents), torch.cat(targets), torch.cat(positions)


def mask(lengths):
    """Whether a query (row) meets a key (column): not if it comes later, or is of another document."""
    number = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    return (number[:, None] == number) & torch.ones(len(number), len(number), dtype=torch.bool).tril()


def packed_logits(model, batch, allowed):
    """Logits of the running model in one process, whose queries meet the keys that `allowed` says."""
    tokens, _, positions = (t[None] for t in batch)

    def attention(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)

    x = model.token(tokens) + model.position(positions)
    for layer in model.layers:
        x = layer_forward(layer, x, attention)
    return model.head(model.norm(x))[0]


def take(t, dim, spans):
    """Return the tokens of `spans` from `t`, which lie along `dim`."""
    return torch.cat([t.narrow(dim, first, end - first) for _, first, end in spans], dim)


def tiles(own, others):
    """Yield (i, j, diagonal): the i-th span of `own` queries meets the j-th span of `others`' keys."""
    for i, (document, first, _) in enumerate(own):
        for j, (other, start, _) in enumerate(others):
            if document == other and start <= first:
                yield i, j, start == first


def cut(t, spans):
    """The tokens of a rank, (…, tokens, width), span by span."""
    return t.split([end - first for _, first, end in spans], -2)


def packed_forward(q, k, v, layout, group=None, attend=attend):
    """Attention of this rank's queries as keys come around a ring: the output, and the log of its sum."""
    own = layout[dist.get_rank(group)]
    queries = cut(q, own)
    done = [(torch.zeros_like(x).float(), torch.full_like(x[..., :1], -torch.inf).float()) for x in queries]
    for owner, kv in hops(torch.stack([k, v]), group):
        keys, values = (cut(x, layout[owner]) for x in for_each_head(kv, q.shape[1]))
        for i, j, diagonal in tiles(own, layout[owner]):
            done[i] = merge(done[i], attend(queries[i], keys[j], values[j], diagonal))
    out, lse = (torch.cat(x, 2) for x in zip(*done, strict=True))
    return out.to(q.dtype), lse


def terms(gradient, out, lse, q, kv, own, others, attend_backward):
    """What the keys and values `kv` add to the gradient of q, and their own gradient: both fp32."""
    mine = list(zip(*(cut(x, own) for x in (gradient, out, lse, q)), strict=True))
    spread = for_each_head(kv, q.shape[1])
    dq, d = torch.zeros_like(q).float(), torch.zeros_like(spread).float()
    dqs = cut(dq, own)
    keys, values, dks, dvs = (cut(x, others) for x in (*spread, *d))
    for i, j, diagonal in tiles(own, others):
        of_q, of_k, of_v = attend_backward(*mine[i], keys[j], values[j], diagonal)
        dqs[i].add_(of_q), dks[j].add_(of_k), dvs[j].add_(of_v)
    return dq, d.unflatten(2, (kv.shape[2], -1)).sum(3)


def packed_backward(gradient, out, lse, q, k, v, layout, group, attend_backward):
    """Gradients of this rank's q, k and v; they travel as in `context.ring_backward`."""
    rank = dist.get_rank(group)
    dq, home, on_the_way = 0, None, None
    for owner, kv in hops(torch.stack([k, v]), group):
        of_q, d = terms(gradient, out, lse, q, kv, layout[rank], layout[owner], attend_backward)
        dq = dq + of_q
        if owner == rank:
            home = d
        else:
            if on_the_way:
                d += wait(*on_the_way)
            on_the_way = shift(d.to(kv.dtype), group)
    if on_the_way:
        home += wait(*on_the_way)
    return dq.to(q.dtype), *home.to(k.dtype)


class Packed(torch.autograd.Function):
    """Attention within documents, whose keys and values travel around the ring, forward and backward."""

    @staticmethod
    def forward(ctx, q, k, v, *how):
        forward, ctx.of_a_tile = fused.kernels(q) or (attend, attend_backward)
        out, lse = packed_forward(q, k, v, *how, forward)
        ctx.save_for_backward(out, lse, q, k, v)
        ctx.how = how
        return out

    @staticmethod
    def backward(ctx, gradient):
        back = packed_backward(gradient, *ctx.saved_tensors, *ctx.how, ctx.of_a_tile)
        return *back, None, None


def packed_attention(q, k, v, layout, group=None):
    """Attention of this rank's queries to the earlier keys of their own documents, by a ring.

    q, k, v: (batch, heads, tokens of this rank, width), the tokens in the order of `layout[rank]`. k and v
    may have fewer heads, a divisor of those of q.
    """
    return Packed.apply(q, k, v, layout, group)


def hybrid_attention(q, k, v, layout, heads, ring):
    """All-to-alls in the group `heads`, a ring in the group `ring` (Fang & Zhao 2024).

    layout: the spans of each rank of the ring. The ranks of `heads` hold equal parts of these tokens, one
    after the other; each computes all of them for its part of the heads.
    """
    q, k, v = (Swap.apply(t, 1, 2, heads) for t in (q, k, v))
    return Swap.apply(packed_attention(q, k, v, layout, ring), 2, 1, heads)


def packed_loss(model, batch, layout, group=None):
    """This rank's share of the mean loss of all tokens that count; the sum of all ranks' shares is the loss.

    batch: what `pack` returns, the same on all ranks.
    """
    own = layout[dist.get_rank(group)]
    tokens, targets, positions = (take(t, 0, own)[None] for t in batch)
    x = model.token(tokens) + model.position(positions)
    for layer in model.layers:
        x = layer_forward(layer, x, lambda q, k, v: packed_attention(q, k, v, layout, group))
    logits = model.head(model.norm(x))
    total = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="sum")
    count = (targets != IGNORED).sum()
    dist.all_reduce(count, group=group)
    return total / count
