"""How many seconds does one step take, for any mixture of prompts and single tokens?

The model: overhead + max(weight bytes / ηB, FLOPs / ηP) + cache bytes / ηB + all-reduces. Weights are read
while the matrix products run, so the longer of the two counts; the cache is read by attention alone, and
nothing hides the all-reduces, two a layer (Shoeybi et al. 2019, section 3). η is the part of the peak
bandwidth B and of the peak arithmetic P that kernels reach.
"""

from collections import namedtuple

from .. import collectives, hardware, memory, transformer
from ..inputs import quantity, whole
from .roofline import dense


class Engine(
    namedtuple(
        "Engine",
        "overhead weights row rows flops_token flops_pair cache_token all_reduce_step all_reduce_token",
    )
):
    """Seconds of the parts of a step.

    For every step `overhead`, `weights`, `all_reduce_step`; for a new token `row` of the embedding (up to
    `rows` tokens), `flops_token`, `all_reduce_token`; for a new token and one that it meets `flops_pair`; for
    each token in the cache `cache_token`.
    """

    __slots__ = ()

    def seconds(self, tokens, pairs, cached):
        """Seconds of a step over `tokens` new tokens, with `cached` tokens in the cache after it.

        pairs: for each sequence its new tokens times its tokens in the cache after the step, all added up.
        """
        reading = self.weights + self.row * min(tokens, self.rows)
        arithmetic = tokens * self.flops_token + pairs * self.flops_pair
        sending = self.all_reduce_step + tokens * self.all_reduce_token
        return self.overhead + max(reading, arithmetic) + cached * self.cache_token + sending


def engine(
    model,
    accelerator,
    tensor_parallel=1,
    link="nvlink-4",
    efficiency=1.0,
    overhead=0.0,
    dtype="bf16",
    element=2,
):
    """The `Engine` of a dense model on accelerators of this name, `tensor_parallel` of them.

    FLOPs and bytes are those of `step`, divided by the ranks; the cache by heads (`memory.kv_cache_bytes`).
    The all-reduce is a ring's. efficiency: η, above 0 and at most 1; overhead: seconds; element: bytes.
    """
    dense(model)
    whole("tensor_parallel", tensor_parallel), quantity("overhead", overhead)
    quantity("element", element, positive=True)
    if quantity("efficiency", efficiency, positive=True) > 1:
        raise ValueError(f"efficiency must be a part of the peak, above 0 and at most 1, not {efficiency}")
    bandwidth = hardware.accelerator(accelerator).bandwidth * efficiency
    peak = hardware.peak(accelerator, dtype) * efficiency
    ranks, wire = tensor_parallel, hardware.link(link)
    pair = 4 * model.layers * model.heads * model.head_width
    token = transformer.forward_flops(model, 1, 1) - pair
    row = 0 if model.tied else element * model.hidden
    layers = model.layers * transformer.layer_parameters(model) + transformer.norm_parameters(model)
    weights = element * (layers + model.vocabulary * model.hidden)
    reduced = collectives.cost("all_reduce", "ring", element * model.hidden, ranks)
    return Engine(
        overhead,
        weights / ranks / bandwidth,
        row / ranks / bandwidth,
        model.vocabulary,
        token / ranks / peak,
        pair / ranks / peak,
        memory.kv_cache_bytes(model, 1, 1, ranks, element) / bandwidth,
        2 * model.layers * reduced.rounds * wire.α,
        2 * model.layers * reduced.nbytes * wire.β,
    )


def constant(seconds):
    """An `Engine` whose every step takes `seconds`: the server of a queue in textbooks."""
    return Engine(quantity("seconds", seconds, positive=True), 0, 0, 0, 0, 0, 0, 0, 0)
