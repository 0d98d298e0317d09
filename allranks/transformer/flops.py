"""How much does a decoder compute? The FLOPs of its matrix products, and what share of the peak they are.

A multiplication and an addition are two FLOPs; norms, softmax and activations are left out. The causal mask
is not discounted: attention counts as if every token saw every other (Narayanan et al. 2021, appendix;
Chowdhery et al. 2022, appendix B).
"""

from ..inputs import one_of, quantity, whole
from .sizes import router_parameters

RECOMPUTATION = ("none", "selective", "full")


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
    Selective adds 4bs²h a layer, as appendix A of the latter says; its equation 8 has three times that.
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
