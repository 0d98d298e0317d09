"""What bounds the next token? The parts of a decode step, on tensor-parallel ranks and stages of a pipeline.

The model: each rank reads its slice of the weights (`tensor_slice`) and of the cache while it computes, so
the longer of the two counts (`step`). The collectives of `tensor_messages` follow, and overlap with nothing:
each takes α for every hop, its latency, and β for every byte, its bandwidth, with the fastest of NCCL's
protocols. All ranks are joined by one kind of link.
"""

from collections import namedtuple

from .. import collectives, hardware, memory
from ..inputs import quantity, whole
from .roofline import step
from .tensor import tensor_messages, tensor_slice


class NextToken(namedtuple("NextToken", "weights cache arithmetic latency bandwidth")):
    """Seconds that each part of a decode step takes: two of reading, arithmetic, two of collectives."""

    @property
    def reading(self):
        """Seconds to read weights and cache."""
        return self.weights + self.cache

    @property
    def device(self):
        """Seconds on the device: of reading or of arithmetic, whichever takes longer."""
        return max(self.reading, self.arithmetic)

    @property
    def sending(self):
        """Seconds in collectives."""
        return self.latency + self.bandwidth

    @property
    def seconds(self):
        """Seconds until the next token."""
        return self.device + self.sending

    @property
    def bound(self):
        """The longest part of the seconds; arithmetic is none of them where reading hides it, nor reading
        where arithmetic does."""
        own = ("weights", "cache") if self.reading >= self.arithmetic else ("arithmetic",)
        return max(own + ("latency", "bandwidth"), key=lambda name: getattr(self, name))


def next_token(
    model,
    accelerator,
    link,
    ranks=1,
    sequences=1,
    past=0,
    stages=1,
    algorithm="ring",
    element=2,
    dtype="bf16",
):
    """The `NextToken` of a dense model on `ranks` tensor-parallel ranks in each of `stages` equal stages.

    Of `sequences` sequences, each with `past` tokens in the cache, as many as possible share a pass: all, or
    one group for each stage, which take turns. A token goes through all stages and over `stages` links, since
    the first needs what the last has chosen. algorithm: of the all-reduces; element: bytes of a weight or an
    element of the cache; dtype: of the arithmetic.
    """
    together = -(-whole("sequences", sequences) // whole("stages", stages))
    part = tensor_slice(model, ranks)
    own, sent = step(part, 1, past, together, element), tensor_messages(model, together, element)
    arithmetic, _ = own.seconds(accelerator, dtype)
    read = hardware.accelerator(accelerator).bandwidth
    calls = [
        ("all_reduce", algorithm, sent.nbytes, ranks, sent.all_reduces),
        ("all_gather", "ring", sent.gathered, ranks, 1),
        ("send", "direct", sent.nbytes, 2, stages if stages > 1 else 0),
    ]
    links, latency, bandwidth = hardware.protocols(link), 0.0, 0.0
    for collective, way, nbytes, group, count in calls:
        name, seconds = collectives.by_protocol(collective, way, nbytes, group, links)
        α = next(each.α for each in links if each.name == name)
        hops = collectives.cost(collective, way, nbytes, group).rounds * α
        latency, bandwidth = latency + count * hops, bandwidth + count * (seconds - hops)
    return NextToken(own.weight_bytes / read, own.cache_bytes / read, arithmetic, latency, bandwidth)


def decode_seconds(
    model, ranks, accelerator, link, past=0, sequences=1, algorithm="ring", element=2, dtype="bf16"
):
    """(on the device, in collectives): seconds of a decode step on `ranks` ranks, from `next_token`."""
    token = next_token(model, accelerator, link, ranks, sequences, past, 1, algorithm, element, dtype)
    return token.device, token.sending


def decode_memory(model, ranks=1, stages=1, sequences=1, tokens=1, element=2):
    """Bytes of (weights, cache) on the fullest rank, for `sequences` of `tokens` tokens each.

    With several stages, layers are spread as evenly as possible, and the cache is that of the stage with the
    most layers.
    """
    part = tensor_slice(model, ranks)
    quantity("element", element, positive=True)
    weights = max(
        sum(memory.rank_parameters(model, ranks, stages, stage=stage))
        for stage in range(whole("stages", stages))
    )
    cache = memory.kv_cache_bytes(part, tokens, sequences, element=element)
    layers = max(memory.stage_layers(model.layers, stages))
    return element * weights, cache * layers // part.layers


def batch_knee(model, accelerator, link, most=1024, **options):
    """The fewest sequences, up to `most`, at which something else bounds the next token than with one.

    None if nothing else does. options: those of `next_token`. Powers of two are tried first, then the numbers
    between the last two.
    """

    def bound(sequences):
        return next_token(model, accelerator, link, sequences=sequences, **options).bound

    first, high = bound(1), 1
    while high < whole("most", most) and bound(high) == first:
        high = min(2 * high, most)
    if bound(high) == first:
        return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if bound(middle) == first else (low, middle)
    return high
