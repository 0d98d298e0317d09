"""How do several ranks compute attention when each has a part of the sequence?

Three ways. In a ring, keys and values travel from rank to rank, and what each part contributes is merged
(Liu et al. 2023). With an all-gather, every rank first gets the keys and values of all (Grattafiori et al.
2024, section 3.3.2). With an all-to-all, every rank gets the whole sequence of a part of the heads (Jacobs et
al. 2023). Queries, keys and values are (batch, heads, tokens, width), the tokens those that `part` gives.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F

from . import fused


def places(split, rank, ranks):
    """Which pieces of the sequence `rank` has: one of p ("contiguous"), or two of 2p ("zigzag")."""
    return [rank] if split == "contiguous" else [rank, 2 * ranks - 1 - rank]


def part(t, dim, split="contiguous", group=None):
    """Return this rank's tokens of `t`, which lie along `dim`; ValueError if the pieces would differ."""
    ranks = dist.get_world_size(group)
    mine = places(split, dist.get_rank(group), ranks)
    pieces = len(mine) * ranks
    if t.shape[dim] % pieces:
        raise ValueError(f"{t.shape[dim]} tokens cannot be cut into {pieces} equal pieces")
    chunks = t.chunk(pieces, dim)
    return torch.cat([chunks[place] for place in mine], dim)


def tiles(split, rank, owner, ranks, causal):
    """Yield (i, j, diagonal): `rank`'s i-th piece of queries meets `owner`'s j-th piece of keys."""
    for i, query in enumerate(places(split, rank, ranks)):
        for j, key in enumerate(places(split, owner, ranks)):
            if not causal or key <= query:
                yield i, j, causal and key == query


def scores(q, k, diagonal=False):
    """How well each query likes each key: (…, queries, keys); on the diagonal, no key that comes later."""
    s = q.float() @ k.float().mT / q.shape[-1] ** 0.5
    if diagonal:
        s = s.masked_fill(torch.ones_like(s, dtype=torch.bool).triu(1), -torch.inf)
    return s


def attend(q, k, v, diagonal=False):
    """Attention to these keys only: the output, and for each query the log of its sum of exponentials.

    They are (…, queries, width) and (…, queries, 1), in fp32. On the diagonal, no key that comes later is
    seen. This writes all scores to memory; `fused` does not.
    """
    s = scores(q, k, diagonal)
    lse = s.logsumexp(-1, keepdim=True)
    return (s - lse).exp() @ v.float(), lse


def merge(one, other):
    """Attention to two sets of keys, from the attention to each: pairs as `attend` returns them."""
    (out_1, lse_1), (out_2, lse_2) = one, other
    lse = torch.logaddexp(lse_1, lse_2)
    return out_1 * (lse_1 - lse).exp() + out_2 * (lse_2 - lse).exp(), lse


def attend_backward(gradient, out, lse, q, k, v, diagonal=False):
    """Gradients of q, k and v from these keys; `out` and `lse` are those of all keys."""
    weights = (scores(q, k, diagonal) - lse).exp()
    gradient, out, q, k, v = (t.float() for t in (gradient, out, q, k, v))
    dot = (gradient * out).sum(-1, keepdim=True)
    ds = weights * (gradient @ v.mT - dot) / q.shape[-1] ** 0.5
    return ds @ k, ds.mT @ q, weights.mT @ gradient


def shift(t, group=None):
    """Start to send `t` on around the ring; return what will have come, and the requests to wait for."""
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    came = torch.empty_like(t)
    send = dist.P2POp(dist.isend, t, group=group, group_peer=(rank + 1) % ranks)
    receive = dist.P2POp(dist.irecv, came, group=group, group_peer=(rank - 1) % ranks)
    return came, dist.batch_isend_irecv([send, receive])


def wait(came, requests):
    """Wait for what `shift` has started, and return what came."""
    for request in requests:
        request.wait()
    return came


def hops(t, group=None):
    """Yield (owner, its `t`) for all ranks, this one first; the next is on its way while the caller works."""
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    for hop in range(ranks):
        on_the_way = shift(t, group) if hop + 1 < ranks else None
        yield (rank - hop) % ranks, t
        if on_the_way:
            t = wait(*on_the_way)


def for_each_head(kv, heads):
    """Keys and values, (2, batch, heads, tokens, width), for each of `heads` heads of queries."""
    shared = heads // kv.shape[2]
    return kv if shared == 1 else kv.repeat_interleave(shared, 2)


def meet(q, arrivals, causal, split, group, attend):
    """Attention of this rank's queries to all keys: the output, and the log of its sum.

    arrivals: (owner, its keys and values), for all ranks, in any order. What `attend` makes of each tile is
    merged in fp32.
    """
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    pieces = len(places(split, rank, ranks))
    queries = q.chunk(pieces, 2)
    done = [(torch.zeros_like(x).float(), torch.full_like(x[..., :1], -torch.inf).float()) for x in queries]
    for owner, kv in arrivals:
        keys, values = (x.chunk(pieces, 2) for x in for_each_head(kv, q.shape[1]))
        for i, j, diagonal in tiles(split, rank, owner, ranks, causal):
            done[i] = merge(done[i], attend(queries[i], keys[j], values[j], diagonal))
    out, lse = (torch.cat(x, 2) for x in zip(*done, strict=True))
    return out.to(q.dtype), lse


def meet_backward(gradient, out, lse, q, owner, kv, causal, split, group, attend_backward):
    """What the keys and values `kv` of `owner` add to this rank's gradient of q, and their own: both fp32."""
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    pieces = len(places(split, rank, ranks))
    mine = list(zip(*(x.chunk(pieces, 2) for x in (gradient, out, lse, q)), strict=True))
    spread = for_each_head(kv, q.shape[1])
    dq, d = torch.zeros_like(q).float(), torch.zeros_like(spread).float()
    keys, values, dqs, dks, dvs = (x.chunk(pieces, 2) for x in (*spread, dq, *d))
    for i, j, diagonal in tiles(split, rank, owner, ranks, causal):
        of_q, of_k, of_v = attend_backward(*mine[i], keys[j], values[j], diagonal)
        dqs[i].add_(of_q), dks[j].add_(of_k), dvs[j].add_(of_v)
    return dq, d.unflatten(2, (kv.shape[2], -1)).sum(3)


def ring_forward(q, k, v, causal=True, split="contiguous", group=None, attend=attend):
    """`meet` the keys and values of all ranks as they come around the ring."""
    return meet(q, hops(torch.stack([k, v]), group), causal, split, group, attend)


def ring_backward(gradient, out, lse, q, k, v, causal, split, group, attend_backward):
    """Gradients of this rank's q, k and v: those of keys and values travel one hop behind them."""
    dq, home, on_the_way = 0, None, None
    for owner, kv in hops(torch.stack([k, v]), group):
        of_q, d = meet_backward(gradient, out, lse, q, owner, kv, causal, split, group, attend_backward)
        dq = dq + of_q
        if owner == dist.get_rank(group):
            home = d
        else:
            if on_the_way:
                d += wait(*on_the_way)
            on_the_way = shift(d.to(kv.dtype), group)
    if on_the_way:
        home += wait(*on_the_way)
    return dq.to(q.dtype), *home.to(k.dtype)


class Ring(torch.autograd.Function):
    """Attention whose keys and values travel around the ring, forward and backward."""

    @staticmethod
    def forward(ctx, q, k, v, *how):
        forward, ctx.of_a_tile = fused.kernels(q) or (attend, attend_backward)
        out, lse = ring_forward(q, k, v, *how, forward)
        ctx.save_for_backward(out, lse, q, k, v)
        ctx.how = how
        return out

    @staticmethod
    def backward(ctx, gradient):
        back = ring_backward(gradient, *ctx.saved_tensors, *ctx.how, ctx.of_a_tile)
        return *back, None, None, None


def ring_attention(q, k, v, causal=True, split="contiguous", group=None):
    """Attention of this rank's queries to the keys and values of all ranks, by a ring.

    q, k, v: (batch, heads, tokens of this rank, width); the output is as q. k and v may have fewer heads, a
    divisor of those of q.
    """
    return Ring.apply(q, k, v, causal, split, group)


class Gathered(torch.autograd.Function):
    """Attention whose keys and values are gathered first; backward, a reduce-scatter of their gradients."""

    @staticmethod
    def forward(ctx, q, k, v, *how):
        kv, ranks = torch.stack([k, v]), dist.get_world_size(how[-1])
        everybodys = kv.new_empty((2 * ranks, *k.shape))
        dist.all_gather_single(everybodys, kv, group=how[-1])
        everybodys = everybodys.unflatten(0, (ranks, 2))
        forward, ctx.of_a_tile = fused.kernels(q) or (attend, attend_backward)
        out, lse = meet(q, enumerate(everybodys), *how, forward)
        ctx.save_for_backward(out, lse, q, everybodys)
        ctx.how = how
        return out

    @staticmethod
    def backward(ctx, gradient):
        out, lse, q, everybodys = ctx.saved_tensors
        dq, of_all = 0, torch.empty_like(everybodys)
        for owner, kv in enumerate(everybodys):
            given = gradient, out, lse, q, owner, kv, *ctx.how
            of_q, of_all[owner] = meet_backward(*given, ctx.of_a_tile)
            dq = dq + of_q
        d = torch.empty_like(of_all[0])
        dist.reduce_scatter_single(d, of_all.flatten(0, 1), group=ctx.how[-1])
        return dq.to(q.dtype), *d, None, None, None


def gather_attention(q, k, v, causal=True, split="contiguous", group=None):
    """Attention of this rank's queries to the keys and values of all ranks, by an all-gather.

    q, k, v as for `ring_attention`.
    """
    return Gathered.apply(q, k, v, causal, split, group)


def swap(t, scatter, gather, group=None):
    """Cut `t` along `scatter`, a part for each rank; put together along `gather` what comes from all."""
    ranks = dist.get_world_size(group)
    if t.shape[scatter] % ranks:
        raise ValueError(f"{ranks} ranks cannot share {t.shape[scatter]} heads evenly")
    parts = [x.contiguous() for x in t.chunk(ranks, scatter)]
    came = [torch.empty_like(x) for x in parts]
    dist.all_to_all(came, parts, group=group)
    return torch.cat(came, gather)


class Swap(torch.autograd.Function):
    """`swap`, whose backward pass swaps back."""

    @staticmethod
    def forward(ctx, t, scatter, gather, group):
        ctx.back = gather, scatter, group
        return swap(t, scatter, gather, group)

    @staticmethod
    def backward(ctx, gradient):
        return swap(gradient, *ctx.back), None, None, None


def ulysses_attention(q, k, v, causal=True, split="contiguous", group=None):
    """Attention of this rank's queries to the keys and values of all ranks, by all-to-alls.

    q, k, v as for `gather_attention`. ValueError for a zig-zag split, and if the ranks cannot share the heads
    of q or those of k evenly.
    """
    if split != "contiguous":
        raise ValueError("Ulysses needs contiguous parts: a rank computes whole sequences")
    q, k, v = (Swap.apply(t, 1, 2, group) for t in (q, k, v))
    out = F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)
    return Swap.apply(out, 2, 1, group)


def layer_forward(layer, x, attention):
    """A `Layer` of the running model on this rank's tokens; `attention` is told q, k and v."""
    y = layer.norm_1(x)
    qkv = layer.query(y), layer.key(y), layer.value(y)
    q, k, v = (w.unflatten(-1, (layer.heads, -1)).transpose(1, 2) for w in qkv)
    x = x + layer.out(attention(q, k, v).transpose(1, 2).flatten(-2))
    return x + layer.down(F.gelu(layer.up(layer.norm_2(x))))


def context_loss(model, tokens, attention=ring_attention, split="zigzag", group=None):
    """This rank's share of `loss_of`: the mean over its tokens. The mean of all ranks' shares is the loss.

    tokens: (batch, sequence + 1), the same on all ranks. ValueError if the sequence cannot be cut into equal
    pieces, one a rank or two with a zig-zag split.
    """
    tokens = tokens.to(next(model.parameters()).device)
    positions = torch.arange(tokens.shape[1] - 1, device=tokens.device)
    inputs, targets = (part(t, 1, split, group) for t in (tokens[:, :-1], tokens[:, 1:]))
    x = model.token(inputs) + model.position(part(positions, 0, split, group))
    for layer in model.layers:
        x = layer_forward(layer, x, lambda q, k, v: attention(q, k, v, True, split, group))
    return F.cross_entropy(model.head(model.norm(x)).flatten(0, 1), targets.flatten())
