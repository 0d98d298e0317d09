"""When is moving a cache cheaper than computing it again, and which rank sends which heads of it?

The model: keys and values move in whole pages over a link that carries α + βn seconds for n bytes; computing
them again takes the FLOPs of a prefill without logits, which no cache needs. Ranks of a tensor-parallel group
hold heads as `tensor_slice` says: beyond `kv_heads` ranks there are copies, and one copy is enough to send.
"""

from collections import namedtuple

from .. import memory, transformer
from ..inputs import quantity, whole
from .roofline import dense

Route = namedtuple("Route", "sender receiver source target heads")
"""`heads` neighbouring heads of keys that one rank sends another, and the place of the first of them in the
caches of both, `source` and `target`. Ranks are those of a group with the senders first."""


def held_heads(kv_heads, ranks, rank):
    """The heads of keys that `rank` of `ranks` holds, a range: a slice of them, or a copy of one."""
    whole("kv_heads", kv_heads), whole("ranks", ranks), whole("rank", rank, 0, ranks - 1)
    if kv_heads % ranks and ranks % kv_heads:
        raise ValueError(
            f"{ranks} ranks cannot share {kv_heads} (kv_heads) evenly: "
            "one number must divide the other; where there are more ranks, they hold copies"
        )
    pieces = min(kv_heads, ranks)
    each, piece = kv_heads // pieces, rank * pieces // ranks
    return range(piece * each, (piece + 1) * each)


def routes(kv_heads, senders, receivers):
    """All `Route`s from `senders` ranks to `receivers` ranks: each receiver gets each of its heads once.

    Where several senders hold copies of a head, the receivers that need it take them in turn.
    """
    holds = [held_heads(kv_heads, senders, rank) for rank in range(senders)]
    found = []
    for receiver in range(whole("receivers", receivers)):
        needs = held_heads(kv_heads, receivers, receiver)
        for head in needs:
            holders = [rank for rank in range(senders) if head in holds[rank]]
            sender = holders[receiver % len(holders)]
            before = found[-1] if found else None
            if before and before[:2] == (sender, senders + receiver):
                found[-1] = Route(*before[:4], before.heads + 1)
            else:
                source = head - holds[sender][0]
                found.append(Route(sender, senders + receiver, source, head - needs[0], 1))
    return found


def moved_bytes(model, tokens, receivers=1, page=1, element=2):
    """Bytes that a request of `tokens` cached tokens sends to `receivers` ranks, in whole pages of `page`.

    `receivers` times what one of them holds: the size of the cache, and more beyond `kv_heads` receivers.
    """
    pages = -(-whole("tokens", tokens) // whole("page", page))
    return whole("receivers", receivers) * memory.kv_cache_bytes(model, pages * page, 1, receivers, element)


def recompute_flops(model, tokens):
    """FLOPs of making the keys and values of `tokens` tokens: all layers, no logits."""
    dense(model)
    return model.layers * transformer.layer_flops(model, 1, whole("tokens", tokens))


def break_even_bandwidth(model, tokens, flops, element=2):
    """Bytes a second above which moving a cache of `tokens` tokens beats computing it at `flops` FLOP/s."""
    seconds = recompute_flops(model, tokens) / quantity("flops", flops, positive=True)
    return moved_bytes(model, tokens, element=element) / seconds


def mooncake_break_even(tokens, hidden, groups, attention, dense, element=2):
    """The same in bytes a FLOP, as Mooncake prints it: 2ds / (gqa(apd + bd²)) (Qin et al. 2025, equation 2).

    p `tokens`, d `hidden`, gqa `groups` of queries that share a head of keys, a `attention` and b `dense`:
    FLOPs of a layer over p²d and over pd². Exact where heads · width is `hidden`.
    """
    whole("tokens", tokens), whole("hidden", hidden), whole("groups", groups)
    quantity("attention", attention), quantity("dense", dense, positive=True)
    quantity("element", element, positive=True)
    return 2 * hidden * element / (groups * (attention * tokens * hidden + dense * hidden**2))


def streamed_seconds(layers, computing, moving):
    """Seconds until all layers have arrived, each sent while the next one is computed.

    computing, moving: seconds for all layers, which are alike. The first layer is computed, the last one is
    sent, and in between the slower of the two sets the pace: (C + M + (L−1)·max(C, M)) / L.
    """
    whole("layers", layers), quantity("computing", computing), quantity("moving", moving)
    return (computing + moving + (layers - 1) * max(computing, moving)) / layers
