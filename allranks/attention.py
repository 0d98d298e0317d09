"""Who computes which part of attention when the sequence is split over ranks, and what does the ring carry?

The model: a rank owns the queries, keys and values of its tokens. It needs the keys and values of all
others, which travel around a ring: at hop h, rank r has those of rank r − h (Ring Attention, Liu et al.
2023). Work is counted in pairs of a query and a key; with a causal mask a query meets no later key.
Contiguous: rank r owns the r-th of p parts. Zig-zag: of 2p parts, rank r owns part r and part 2p−1−r, so that
a causal mask gives every rank the same work (Grattafiori et al. 2024, section 3.3.2, who gather the keys and
values instead). Where a sequence is packed of several documents, a query meets only keys of its own.
"""

from .collectives import all_to_all_bytes, ring_all_gather_bytes
from .inputs import multiple, one_of, quantity, whole

SPLITS = ("contiguous", "zigzag")
DOCUMENT_SPLITS = ("contiguous", "zigzag", "documents")


def spans(sequence, context_parallel, split, rank):
    """The positions of `rank`'s tokens: a list of (first, one after the last)."""
    _checked(sequence, context_parallel, split)
    whole("rank", rank, 0, context_parallel - 1)
    if split == "contiguous":
        part = sequence // context_parallel
        return [(rank * part, (rank + 1) * part)]
    part, last = sequence // (2 * context_parallel), 2 * context_parallel - 1 - rank
    return [(rank * part, (rank + 1) * part), (last * part, (last + 1) * part)]


def pairs(queries, keys, causal):
    """Pairs of a query and a key it meets, both given as spans of positions (first, one after the last)."""
    (first, end), (start, stop) = queries, keys
    if not causal:
        return (end - first) * (stop - start)
    some = range(max(first, start), min(end, stop))  # these queries meet a part of the keys
    partly = len(some) * (some[0] + some[-1] + 2 - 2 * start) // 2 if len(some) else 0
    return partly + max(0, end - max(first, stop)) * (stop - start)


def hop_pairs(sequence, context_parallel, split, causal, rank, hop):
    """Pairs that `rank` computes at `hop`: its queries with the keys of rank − hop, modulo p."""
    whole("hop", hop, 0, context_parallel - 1)
    owner = (rank - hop) % context_parallel
    mine = spans(sequence, context_parallel, split, rank)
    theirs = spans(sequence, context_parallel, split, owner)
    return sum(pairs(queries, keys, causal) for queries in mine for keys in theirs)


def ring_pairs(sequence, context_parallel, split, causal):
    """`hop_pairs` of all hops and ranks: a list for each hop, from 0, of a number for each rank."""
    _checked(sequence, context_parallel, split)
    ranks = range(context_parallel)
    args = (sequence, context_parallel, split, causal)
    return [[hop_pairs(*args, rank, hop) for rank in ranks] for hop in ranks]


def rank_pairs(sequence, context_parallel, split, causal):
    """Pairs that each rank computes over all hops."""
    hops = ring_pairs(sequence, context_parallel, split, causal)
    return [sum(hop[rank] for hop in hops) for rank in range(context_parallel)]


def document_spans(sequence, context_parallel, split, documents, rank):
    """`rank`'s tokens, cut where documents end: a list of (document, first, one after the last).

    documents: their lengths, in order, which add up to `sequence`. Besides the two splits of `spans` there is
    "documents": each document is split in zig-zag by itself, and the tokens that its 2p equal pieces leave
    over are dealt out in turn, through all documents (Wang et al. 2025, section 5.1).
    """
    ends = _ends(sequence, documents)
    whole("rank", rank, 0, whole("context_parallel", context_parallel) - 1)
    one_of("split", split, DOCUMENT_SPLITS)
    if split == "documents":
        multiple("sequence", sequence, "context_parallel", context_parallel)
        return _by_document(documents, ends, context_parallel, rank)
    cut, own = [], spans(sequence, context_parallel, split, rank)
    for document, end in enumerate(ends):
        start = end - documents[document]
        clipped = [(document, max(start, first), min(end, last)) for first, last in own]
        cut += [span for span in clipped if span[1] < span[2]]
    return cut


def _by_document(documents, ends, ranks, rank):
    cut, dealt = [], 0
    for document, end in enumerate(ends):
        piece, left = divmod(documents[document], 2 * ranks)
        start = end - documents[document]
        for place in (rank, 2 * ranks - 1 - rank) if piece else ():
            cut.append((document, start + place * piece, start + (place + 1) * piece))
        own = [at for at in range(end - left, end) if (dealt + at - end + left) % ranks == rank]
        cut += [(document, at, at + 1) for at in own]
        dealt += left
    return cut


def document_hops(sequence, context_parallel, split, documents):
    """Pairs at each hop, as `ring_pairs`, if a query meets no later key and none of another document."""
    ranks = range(whole("context_parallel", context_parallel))
    own = [document_spans(sequence, context_parallel, split, documents, rank) for rank in ranks]
    return [[_met(own[rank], own[(rank - hop) % context_parallel]) for rank in ranks] for hop in ranks]


def document_pairs(sequence, context_parallel, split, documents):
    """Pairs that each rank computes if a query meets no later key and none of another document.

    Zig-zag makes ranks equal under a causal mask alone, and documents make them unequal again; the split
    "documents" of `document_spans` makes them equal, up to the tokens that are dealt out one by one.
    """
    ends, counts = _ends(sequence, documents), []
    for rank in range(whole("context_parallel", context_parallel)):
        own = document_spans(sequence, context_parallel, split, documents, rank)
        starts = [(ends[document] - documents[document], first, last) for document, first, last in own]
        counts.append(sum(pairs((first, last), (start, last), True) for start, first, last in starts))
    return counts


def whole_documents(documents, ranks):
    """Deal out documents whole: the numbers of those that each of the ranks gets, a list of lists.

    The longest first, each to the rank that has the fewest pairs so far. No key has to travel, but neither
    pairs nor tokens are equal, and the longest document is a lower bound.
    """
    load, dealt = [0] * whole("ranks", ranks), [[] for _ in range(ranks)]
    for document in sorted(range(len(documents)), key=lambda each: -documents[each]):
        least = load.index(min(load))
        dealt[least].append(document)
        load[least] += documents[document] * (documents[document] + 1) // 2
    return dealt


def attended(sequence, context_parallel=1, documents=None):
    """The share of s² pairs that the busiest of the ranks computes, times their number, split in zig-zag.

    All of it if no mask is skipped; a causal mask leaves (s+1)/(2s), and `documents` (lengths that add up to
    s) fewer. What papers count as FLOPs of a step includes the pairs that are skipped.
    """
    split = "zigzag" if context_parallel > 1 else "contiguous"
    documents = [sequence] if documents is None else documents
    return max(document_pairs(sequence, context_parallel, split, documents)) * context_parallel / sequence**2


def ring_efficiency(sequence, context_parallel, split, causal):
    """The part of the ranks' time that is work, if computing sets the pace: all pairs / (p · makespan)."""
    hops = ring_pairs(sequence, context_parallel, split, causal)
    return sum(sum(hop) for hop in hops) / (context_parallel * sum(max(hop) for hop in hops))


def hop_bytes(sequence, context_parallel, kv_heads, head_width, element=2, batch=1):
    """Bytes that each rank sends at each of the p−1 hops of one layer: keys and values of s/p tokens.

    2 · batch · s/p · kv_heads · head_width · element; none if there is one rank. The backward pass sends
    them again, and their gradients with them.
    """
    whole("context_parallel", context_parallel)
    multiple("sequence", whole("sequence", sequence), "context_parallel", context_parallel)
    whole("kv_heads", kv_heads)
    whole("head_width", head_width)
    quantity("element", element, positive=True)
    whole("batch", batch)
    if context_parallel == 1:
        return 0
    return 2 * batch * (sequence // context_parallel) * kv_heads * head_width * element


def ring_bytes(sequence, context_parallel, kv_heads, head_width, element=2, batch=1):
    """Bytes that each rank sends in the forward pass of one layer: those of a ring all-gather."""
    part = hop_bytes(sequence, context_parallel, kv_heads, head_width, element, batch)
    return ring_all_gather_bytes(context_parallel * part, context_parallel)


def ring_backward_bytes(sequence, context_parallel, kv_heads, head_width, element=2, batch=1):
    """Bytes that each rank sends in the backward pass of one layer: keys and values, and their gradients.

    Twice `ring_bytes`. The gradient of a rank's own part stays at home and waits for what the others found,
    so that the gradients make p−1 hops, not p.
    """
    return 2 * ring_bytes(sequence, context_parallel, kv_heads, head_width, element, batch)


def ulysses_bytes(sequence, context_parallel, heads, kv_heads, head_width, element=2, batch=1):
    """Bytes that each rank sends in the forward pass of one layer with all-to-alls; backward as many.

    Queries and output, keys and values of s/p tokens, (p−1)/p of each: 4bsh/p elements times (p−1)/p if there
    are as many heads of keys as of queries (Jacobs et al. 2023, section 3.2). p must divide both.
    """
    part = hop_bytes(sequence, context_parallel, kv_heads, head_width, element, batch)
    multiple("heads", whole("heads", heads), "context_parallel", context_parallel)
    multiple("kv_heads", kv_heads, "context_parallel", context_parallel)
    return all_to_all_bytes(part * (heads + kv_heads) // kv_heads, context_parallel)


def hop_tokens(heads, kv_heads, flops_per_second, bandwidth, element=2, causal=False):
    """Tokens a rank needs for a hop's computing, forward, to take as long as its sending.

    A hop computes 4c² · heads · head_width FLOPs, with a causal mask and zig-zag half of them, and sends
    2c · kv_heads · head_width · element bytes at `bandwidth` bytes a second. With two bytes and kv_heads =
    heads, c is the ratio of FLOPs and bytes a second (Liu et al. 2023, section 3).
    """
    multiple("heads", whole("heads", heads), "kv_heads", whole("kv_heads", kv_heads))
    quantity("flops_per_second", flops_per_second, positive=True)
    quantity("bandwidth", bandwidth, positive=True)
    quantity("element", element, positive=True)
    return (2 if causal else 1) * element * kv_heads * flops_per_second / (2 * heads * bandwidth)


def _checked(sequence, context_parallel, split):
    whole("context_parallel", context_parallel)
    one_of("split", split, SPLITS)
    parts = context_parallel if split == "contiguous" else 2 * context_parallel
    multiple("sequence", whole("sequence", sequence), "the number of parts", parts)


def _ends(sequence, documents):
    """Where each of the documents ends."""
    ends, end = [], 0
    for length in documents:
        end += whole("every document", length)
        ends.append(end)
    if end != sequence:
        raise ValueError(f"documents must add up to a sequence of {sequence} tokens, not to {end}")
    return ends


def _met(queries, keys):
    """Pairs of queries and keys, each a list of (document, first, one after the last)."""
    keys_of = {}
    for document, first, end in keys:
        keys_of.setdefault(document, []).append((first, end))
    met = [(first, end, key) for document, first, end in queries for key in keys_of.get(document, ())]
    return sum(pairs((first, end), key, True) for first, end, key in met)
