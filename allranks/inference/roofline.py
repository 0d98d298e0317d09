"""What does a step of inference compute and read, and which of the two bounds it?

The model: a step takes some new tokens of each sequence through the model and attends to all tokens before
them too. It reads every weight once, whatever the batch, and the cache of every sequence; it writes what it
adds to the cache. Activations stay on the chip, and arithmetic overlaps perfectly with memory (the roofline
of Williams et al. 2009). A prefill is a step with many new tokens, a decode step one with a single token.
"""

from collections import namedtuple

from .. import hardware, memory, transformer
from ..inputs import quantity, whole


class Step(namedtuple("Step", "flops weight_bytes cache_bytes")):
    """What one step computes, and the bytes that it reads and writes: of weights, and of the cache."""

    @property
    def nbytes(self):
        """Bytes that cross the memory's bus."""
        return self.weight_bytes + self.cache_bytes

    @property
    def intensity(self):
        """FLOPs a byte."""
        return self.flops / self.nbytes

    def seconds(self, accelerator, dtype="bf16"):
        """(arithmetic, memory): the seconds that each takes alone on the accelerator of this name."""
        device = hardware.accelerator(accelerator)
        return self.flops / hardware.peak(accelerator, dtype), self.nbytes / device.bandwidth

    def bound(self, accelerator, dtype="bf16"):
        """Which takes longer on the accelerator of this name: "arithmetic" or "memory"."""
        arithmetic, memory = self.seconds(accelerator, dtype)
        return "arithmetic" if arithmetic >= memory else "memory"


def step(model, new=1, past=0, sequences=1, element=2):
    """The `Step` of `new` tokens of each of `sequences`, behind `past` tokens in the cache.

    FLOPs: 2 for each weight and new token, 4·heads·width for each new token, token that it meets and layer.
    As in the counts of training, the pairs that a causal mask hides are counted, and the logits of all new
    tokens are computed. Bytes of `element` each: weights once, of the embedding only the rows looked up; keys
    and values of the past are read, those of new tokens written. ValueError for a mixture of experts: which
    weights are read depends on the router.
    """
    whole("new", new), whole("past", past, 0), whole("sequences", sequences)
    quantity("element", element, positive=True)
    dense(model)
    core = 4 * model.heads * model.head_width * new * (past + new)
    alone = transformer.layer_flops(model, 1, 1) - transformer.attention_core_flops(model, 1, 1)
    logits = transformer.logits_flops(model, 1, 1)
    flops = sequences * (model.layers * (core + new * alone) + new * logits)
    return Step(
        flops,
        weight_bytes(model, new * sequences, element),
        memory.kv_cache_bytes(model, past + new, sequences, element=element),
    )


def weight_bytes(model, tokens=1, element=2):
    """Bytes of weights that a step over `tokens` tokens reads: all, but of the embedding one row for each."""
    dense(model)
    rows = min(whole("tokens", tokens), model.vocabulary)
    layers = model.layers * transformer.layer_parameters(model) + transformer.norm_parameters(model)
    embedding = 0 if model.tied else rows * model.hidden  # a tied one is read whole, for the logits
    return element * (layers + model.vocabulary * model.hidden + embedding)


def largest_batch(model, tokens, capacity, element=2):
    """How many sequences of `tokens` tokens fit beside the weights into `capacity` bytes."""
    quantity("capacity", capacity)
    free = capacity - element * transformer.parameters(model)
    return max(0, int(free // memory.kv_cache_bytes(model, whole("tokens", tokens), element=element)))


def latent_attention_flops(past, heads, width, latent, rotary, absorbed):
    """FLOPs of a layer's attention of one new token to `past` under multi-head latent attention.

    Each head has queries of `width` + `rotary` elements and values of `width`. Plain: keys and values of all
    heads are made of the `latent` elements of each past token. Absorbed: the matrix that makes keys is
    applied to the query, the one that makes values to the result (DeepSeek-V2, section 2.1.2).
    """
    for name, value in (("past", past), ("heads", heads), ("width", width), ("latent", latent)):
        whole(name, value)
    whole("rotary", rotary, 0)
    if absorbed:
        return 2 * heads * (2 * width * latent + past * (latent + rotary) + past * latent)
    return 2 * heads * past * (2 * latent * width + (width + rotary) + width)


def dense(model):
    """Raise ValueError for a mixture of experts."""
    if model.experts > 1:
        raise ValueError(
            f"the model has {model.experts} experts, and which of them a step reads depends on the router; "
            "this is for models with one: give a dense model"
        )
