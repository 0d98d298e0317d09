"""How large is a decoder, and how much does it compute? Parameters exactly, FLOPs by the published counts.

The model: token embedding, `layers` times (norm, attention, norm, feed-forward), a last norm, an output layer
over the vocabulary. One record describes GPT-2, Llama and a mixture of experts alike. FLOPs are those of the
matrix products, a multiplication and an addition each; the causal mask is not discounted, so attention counts
as if every token saw every other (Narayanan et al. 2021, appendix; Chowdhery et al. 2022, appendix B).
"""

from collections import namedtuple

from .inputs import multiple, one_of, quantity, whole

RECOMPUTATION = ("none", "selective", "full")

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


# Parameters


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


# FLOPs


def tokens_of(model, batch, sequence):
    """The batch and the length of its sequences, `model.sequence` if none is given; both checked."""
    whole("batch", batch)
    if sequence is None:
        return batch, model.sequence
    return batch, whole("sequence", sequence, 1, model.sequence if model.learned_positions else None)


def attention_core_flops(model, batch=1, sequence=None):
    """FLOPs forward of one layer's two products without weights, QKᵀ and its product with V: 4bs²ad.

    Grouped-query attention shares keys and values, and computes no less. This is what selective recomputation
    computes again (Korthikanti et al. 2022, section 5).
    """
    batch, s = tokens_of(model, batch, sequence)
    return 4 * batch * s * s * model.heads * model.head_width


def layer_flops(model, batch=1, sequence=None):
    """FLOPs forward of one layer: 2 for each weight and token, and the attention core.

    24bsh² + 4bs²h in GPT-2's shape (Narayanan et al. 2021, appendix). Of the experts, the active ones count.
    """
    batch, s = tokens_of(model, batch, sequence)
    attention = 2 * model.hidden * (model.heads + model.kv_heads) * model.head_width
    expert = (3 if model.gated else 2) * model.hidden * model.feed_forward
    weights = attention + model.active_experts * expert + router_parameters(model)
    return 2 * batch * s * weights + attention_core_flops(model, batch, s)


def logits_flops(model, batch=1, sequence=None):
    """FLOPs forward of the output layer: 2bshV (Narayanan et al. 2021, appendix)."""
    batch, s = tokens_of(model, batch, sequence)
    return 2 * batch * s * model.hidden * model.vocabulary


def forward_flops(model, batch=1, sequence=None):
    """FLOPs of a forward pass over `batch` sequences: the layers and the output layer."""
    return model.layers * layer_flops(model, batch, sequence) + logits_flops(model, batch, sequence)


def backward_flops(model, batch=1, sequence=None):
    """FLOPs of a backward pass, recomputation aside: twice the forward's.

    Every product has two inputs, and the gradient of each is a product of the same size.
    """
    return 2 * forward_flops(model, batch, sequence)


def recomputation_flops(model, batch=1, recomputation="none", sequence=None):
    """FLOPs that a step computes a second time: 0, the attention cores (selective), all layers (full).

    The output layer never is (Narayanan et al. 2021, equation 3; Korthikanti et al. 2022, section 5).
    """
    one_of("recomputation", recomputation, RECOMPUTATION)
    if recomputation == "none":
        return 0
    again = attention_core_flops if recomputation == "selective" else layer_flops
    return model.layers * again(model, batch, sequence)


def step_flops(model, batch=1, recomputation="none", sequence=None):
    """FLOPs of a training step over `batch` sequences: forward, backward, and what is recomputed.

    Without recomputation these are the *model FLOPs*, with it the *hardware FLOPs* (Korthikanti et al. 2022,
    section 6.3). With "full" they are 96bslh²(1 + s/(6h) + V/(16lh)) in GPT-2's shape (Narayanan et al. 2021,
    equation 3).
    """
    model_flops = forward_flops(model, batch, sequence) + backward_flops(model, batch, sequence)
    return model_flops + recomputation_flops(model, batch, recomputation, sequence)


def training_flops(parameters, tokens, recomputation="none"):
    """FLOPs to train `parameters` on `tokens`: 6ND, with full recomputation 8ND.

    2 forward and 4 backward for each parameter and token (Kaplan et al. 2020, section 2.1); 2 again where
    everything is recomputed (Narayanan et al. 2021, section 5.1). The attention core is left out.
    """
    quantity("parameters", parameters)
    quantity("tokens", tokens)
    one_of("recomputation", recomputation, ("none", "full"))
    return (8 if recomputation == "full" else 6) * parameters * tokens


def training_seconds(parameters, tokens, devices, flops_per_second, recomputation="full"):
    """Seconds to train `parameters` on `tokens`: 8TP/(nX) (Narayanan et al. 2021, equation 4).

    flops_per_second (X) is what each of `devices` (n) achieves, recomputation counted in as in the paper.
    """
    whole("devices", devices)
    quantity("flops_per_second", flops_per_second, positive=True)
    return training_flops(parameters, tokens, recomputation) / (devices * flops_per_second)


def mfu(model, batch, seconds, devices, peak, sequence=None):
    """Model FLOPs utilisation: the share of `devices` times `peak` FLOP/s that a step's model FLOPs take.

    `batch` sequences in `seconds`; what is recomputed does not count (Chowdhery et al. 2022, section 4.1).
    """
    return hfu(model, batch, seconds, devices, peak, "none", sequence)


def hfu(model, batch, seconds, devices, peak, recomputation, sequence=None):
    """Hardware FLOPs utilisation: as `mfu`, and what is recomputed counts too; never less than `mfu`."""
    quantity("seconds", seconds, positive=True)
    whole("devices", devices)
    quantity("peak", peak, positive=True)
    return step_flops(model, batch, recomputation, sequence) / (seconds * devices * peak)


def gpt2(layers, hidden, heads):
    """A GPT-2 (Radford et al. 2019, Table 2; vocabulary and context from section 2.3)."""
    return decoder(layers, hidden, heads, 50257, 1024)


def megatron(layers, hidden, heads):
    """A GPT in Megatron-LM: the vocabulary is padded to 51200 (Narayanan et al. 2021, section 5.1)."""
    return decoder(layers, hidden, heads, 51200, 2048)


def llama(layers, hidden, heads, vocabulary, sequence, kv_heads, feed_forward, **experts):
    """A Llama: SwiGLU, RMSNorm, rotary positions, no biases (Touvron et al. 2023, section 2.2)."""
    return decoder(
        layers, hidden, heads, vocabulary, sequence, kv_heads=kv_heads, feed_forward=feed_forward,
        gated=True, tied=False, biases=False, learned_positions=False, **experts,
    )  # fmt: skip


PRESETS = {
    # Radford et al. 2019, Table 2
    "gpt2": gpt2(12, 768, 12),
    "gpt2-medium": gpt2(24, 1024, 16),
    "gpt2-large": gpt2(36, 1280, 20),
    "gpt2-xl": gpt2(48, 1600, 25),
    # Brown et al. 2020, Table 2.1; GPT-2's vocabulary
    "gpt3-175b": decoder(96, 12288, 96, 50257, 2048),
    # Touvron et al. 2023, Table 1 and the released configurations
    "llama2-7b": llama(32, 4096, 32, 32000, 4096, 32, 11008),
    "llama2-13b": llama(40, 5120, 40, 32000, 4096, 40, 13824),
    "llama2-70b": llama(80, 8192, 64, 32000, 4096, 8, 28672),
    # Grattafiori et al. 2024, Table 3; sequences of 8192 before the long-context stage (section 3.4.1)
    "llama3-8b": llama(32, 4096, 32, 128256, 8192, 8, 14336),
    "llama3-70b": llama(80, 8192, 64, 128256, 8192, 8, 28672),
    "llama3-405b": llama(126, 16384, 128, 128256, 8192, 8, 53248),
    # Jiang et al. 2024, Table 1
    "mixtral-8x7b": llama(32, 4096, 32, 32000, 32768, 8, 14336, experts=8, active_experts=2),
    # Smith et al. 2022, section 3.2; also Narayanan et al. 2021, Table 1
    "mt-nlg-530b": megatron(105, 20480, 128),
    # Narayanan et al. 2021, Table 1; 22b: Korthikanti et al. 2022, Table 3
    "megatron-1.7b": megatron(24, 2304, 24),
    "megatron-3.6b": megatron(30, 3072, 32),
    "megatron-7.5b": megatron(36, 4096, 32),
    "megatron-18b": megatron(40, 6144, 48),
    "megatron-22b": megatron(48, 6144, 64),
    "megatron-39b": megatron(48, 8192, 64),
    "megatron-76b": megatron(60, 10240, 80),
    "megatron-146b": megatron(80, 12288, 96),
    "megatron-310b": megatron(96, 16384, 128),
    "megatron-530b": megatron(105, 20480, 128),
    "megatron-1t": megatron(128, 25600, 160),
    # the model that this book trains: allranks.model.GPT
    "running": decoder(4, 64, 4, 28, 64, tied=False),
}
