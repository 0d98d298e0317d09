"""How many seconds does one step take, for any mixture of prompts and single tokens?

The model: overhead + max(weight bytes / ηB, FLOPs / ηP) + cache bytes / ηB + collectives. Weights are read
while the matrix products run, so the longer of the two counts; the cache is read by attention alone, and
nothing hides the collectives, which are those of `tensor_messages`. η is the part of the peak bandwidth B and
of the peak arithmetic P that kernels reach.
"""

from collections import namedtuple

from .. import collectives, hardware, memory, transformer
from ..inputs import quantity, whole
from .roofline import dense
from .tensor import tensor_messages, tensor_slice


class Engine(
    namedtuple(
        "Engine",
        "overhead weights row rows flops_token flops_pair cache_token sums gathers",
    )
):
    """Seconds of the parts of a step.

    For every step `overhead` and `weights`; for a new token `row` of the embedding (up to `rows` tokens) and
    `flops_token`; for a new token and one that it meets `flops_pair`; for each token in the cache
    `cache_token`. `sums` and `gathers` have a pair for each protocol of NCCL: the latencies of all the
    collectives of a step, and what each new token adds to them.
    """

    __slots__ = ()

    def seconds(self, tokens, pairs, cached):
        """Seconds of a step over `tokens` new tokens, with `cached` tokens in the cache after it.

        pairs: for each sequence its new tokens times its tokens in the cache after the step, all added up.
        """
        reading = self.weights + self.row * min(tokens, self.rows)
        arithmetic = tokens * self.flops_token + pairs * self.flops_pair
        return self.overhead + max(reading, arithmetic) + cached * self.cache_token + self.sending(tokens)

    def sending(self, tokens):
        """Seconds of the collectives of a step over `tokens` new tokens, by their fastest protocols."""
        return sum(
            min(latencies + tokens * each for latencies, each in pairs)
            for pairs in (self.sums, self.gathers)
            if pairs
        )


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

    FLOPs and bytes are those of `step` for a rank's slice (`tensor_slice`); collectives run over rings, as in
    `decode_seconds`. efficiency: η, above 0 and at most 1; overhead: seconds; element: bytes.
    """
    dense(model)
    whole("tensor_parallel", tensor_parallel), quantity("overhead", overhead)
    quantity("element", element, positive=True)
    if quantity("efficiency", efficiency, positive=True) > 1:
        raise ValueError(f"efficiency must be a part of the peak, above 0 and at most 1, not {efficiency}")
    bandwidth = hardware.accelerator(accelerator).bandwidth * efficiency
    peak = hardware.peak(accelerator, dtype) * efficiency
    links, part = hardware.protocols(link), tensor_slice(model, tensor_parallel)
    pair = 4 * part.layers * part.heads * part.head_width
    row = 0 if part.tied else element * part.hidden
    layers = part.layers * transformer.layer_parameters(part) + transformer.norm_parameters(part)
    sent = tensor_messages(model, 1, element)
    sums = collectives.cost("all_reduce", "ring", sent.nbytes, tensor_parallel)
    gather = collectives.cost("all_gather", "ring", sent.gathered, tensor_parallel)
    return Engine(
        overhead,
        element * (layers + part.vocabulary * part.hidden) / bandwidth,
        row / bandwidth,
        part.vocabulary,
        (transformer.forward_flops(part, 1, 1) - pair) / peak,
        pair / peak,
        memory.kv_cache_bytes(part, 1, 1, element=element) / bandwidth,
        by_protocol(sums, links, sent.all_reduces),
        by_protocol(gather, links, 1),
    )


def by_protocol(cost, links, count):
    """For each protocol the seconds of `count` collectives: of their rounds, and of a token's bytes."""
    return tuple((count * cost.rounds * each.α, count * cost.nbytes * each.β) for each in links)


def constant(seconds):
    """An `Engine` whose every step takes `seconds`: the server of a queue in textbooks."""
    return Engine(quantity("seconds", seconds, positive=True), 0, 0, 0, 0, 0, 0, (), ())
