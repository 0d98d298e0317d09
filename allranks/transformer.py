"""How large is a decoder, and how much does it compute? Parameters exactly, FLOPs by the published counts.

The model: token embedding, `layers` times (norm, attention, norm, feed-forward), a last norm, an output layer
over the vocabulary. One record describes GPT-2, Llama and a mixture of experts alike.
"""

from collections import namedtuple

from .inputs import multiple, whole

Transformer = namedtuple(
    "Transformer",
    "layers hidden heads kv_heads head_width feed_forward vocabulary sequence"
    " gated tied biases learned_positions experts active_experts",
)


def decoder(
    layers,
    hidden,
    heads,
    vocabulary,
    sequence,
    *,
    kv_heads=None,
    head_width=None,
    feed_forward=None,
    gated=False,
    tied=True,
    biases=True,
    learned_positions=True,
    experts=1,
    active_experts=1,
):
    """Return the `Transformer` with these sizes; what is left out is as in GPT-2.

    layers, hidden (h), heads (a), vocabulary (V), sequence (s): whole numbers. kv_heads: heads of keys and values, fewer
    than `heads` in grouped-query attention. head_width: h/a if left out. feed_forward: 4h if left out.
    gated: three feed-forward matrices instead of two (SwiGLU). tied: the output layer is the token embedding.
    biases: in every linear layer and norm. learned_positions: an embedding of `sequence` positions.
    experts: feed-forwards in a layer, of which each token visits `active_experts`, chosen by a router.
    """
    whole("layers", layers), whole("hidden", hidden), whole("heads", heads)
    whole("vocabulary", vocabulary), whole("sequence", sequence)
    kv_heads = heads if kv_heads is None else whole("kv_heads", kv_heads, 1, heads)
    multiple("heads", heads, "kv_heads", kv_heads)
    if head_width is None:
        head_width = multiple("hidden", hidden, "heads", heads) // heads
    feed_forward = 4 * hidden if feed_forward is None else whole("feed_forward", feed_forward)
    (
        whole("head_width", head_width),
        whole("experts", experts),
        whole("active_experts", active_experts, 1, experts),
    )
    return Transformer(
        layers, hidden, heads, kv_heads, head_width, feed_forward, vocabulary, sequence,
        gated, tied, biases, learned_positions, experts, active_experts,
    )  # fmt: skip
