"""How large is a decoder? Every parameter of a model whose shape one record describes.

The model: token embedding, `layers` times (norm, attention, norm, feed-forward), a last norm, an output layer
over the vocabulary. GPT-2, Llama and a mixture of experts alike.
"""

from collections import namedtuple

from ..inputs import multiple, one_of, whole

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

    layers, hidden (h), heads (a), vocabulary (V), sequence (s): whole numbers. kv_heads: heads of keys and
    values, fewer than `heads` in grouped-query attention. head_width (d): h/a if left out. feed_forward (f):
    4h if left out. gated: three feed-forward matrices instead of two (SwiGLU). tied: the output layer is the
    token embedding. biases: in every linear layer and norm, but not in an output layer or a router.
    learned_positions: an embedding of `sequence` positions. experts: feed-forwards in a layer, of which each
    token visits `active_experts`, chosen by a router.
    """
    whole("layers", layers)
    whole("hidden", hidden)
    whole("heads", heads)
    whole("vocabulary", vocabulary)
    whole("sequence", sequence)
    kv_heads = heads if kv_heads is None else whole("kv_heads", kv_heads, 1, heads)
    multiple("heads", heads, "kv_heads", kv_heads)
    if head_width is None:
        head_width = multiple("hidden", hidden, "heads", heads) // heads
    whole("head_width", head_width)
    feed_forward = 4 * hidden if feed_forward is None else whole("feed_forward", feed_forward)
    for name, flag in (
        ("gated", gated),
        ("tied", tied),
        ("biases", biases),
        ("learned_positions", learned_positions),
    ):
        one_of(name, flag, (False, True))
    whole("experts", experts)
    whole("active_experts", active_experts, 1, experts)
    return Transformer(
        layers, hidden, heads, kv_heads, head_width, feed_forward, vocabulary, sequence,
        gated, tied, biases, learned_positions, experts, active_experts,
    )  # fmt: skip


def attention_parameters(model):
    """Parameters of one layer's attention: h(2a + 2a_kv)d, and (a + 2a_kv)d + h biases.

    Four matrices: queries and the output of all `heads`, keys and values of `kv_heads` (Ainslie et al. 2023).
    """
    queries, keys = model.heads * model.head_width, model.kv_heads * model.head_width
    biases = queries + 2 * keys + model.hidden if model.biases else 0
    return 2 * model.hidden * (queries + keys) + biases


def expert_parameters(model):
    """Parameters of one feed-forward: 2hf, with biases f + h more; gated 3hf (Shazeer 2020) and 2f + h."""
    inner = (2 if model.gated else 1) * model.feed_forward
    biases = inner + model.hidden if model.biases else 0
    return model.hidden * (inner + model.feed_forward) + biases


def router_parameters(model):
    """Parameters of one layer's router: one row of h for each expert, 0 if there is only one."""
    return model.hidden * model.experts if model.experts > 1 else 0


def norm_parameters(model):
    """Parameters of one norm: a gain for each of h, and with biases a shift (LayerNorm; else RMSNorm)."""
    return (2 if model.biases else 1) * model.hidden


def layer_parameters(model):
    """Parameters of one layer: attention, all its experts, their router, two norms.

    12h² + 13h in GPT-2's shape (Narayanan et al. 2021, equation 2).
    """
    experts = model.experts * expert_parameters(model) + router_parameters(model)
    return attention_parameters(model) + experts + 2 * norm_parameters(model)


def embedding_parameters(model):
    """Parameters before the first layer: (V + s)h, or Vh without learned positions."""
    positions = model.sequence if model.learned_positions else 0
    return (model.vocabulary + positions) * model.hidden


def output_parameters(model):
    """Parameters after the last layer: the last norm, and Vh of an output layer that is not tied."""
    return norm_parameters(model) + (0 if model.tied else model.vocabulary * model.hidden)


def parameters(model):
    """Parameters of the whole model, a tied matrix counted once.

    12lh²(1 + 13/(12h) + (V + s)/(12lh)) in GPT-2's shape (Narayanan et al. 2021, equation 2), and 2h for the
    last norm, which the equation leaves out.
    """
    return embedding_parameters(model) + model.layers * layer_parameters(model) + output_parameters(model)


def active_parameters(model):
    """Parameters that one token meets: `active_experts` of the experts, all of the rest."""
    idle = model.experts - model.active_experts
    return parameters(model) - model.layers * idle * expert_parameters(model)
