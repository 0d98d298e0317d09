"""What does a compressed gradient cost? Bytes that a rank sends, as a share of the dense all-reduce.

Sparse gradients of p ranks do not add up to a sparse one, so they travel by all-gather, each with its indices
(Aji & Heafield 2017). Low-rank factors add up, so they travel by all-reduce (PowerSGD, Vogels et al. 2019).
Signs are averaged by the rank that owns a slice, and become signs again (1-bit Adam, Tang et al. 2021).
"""

from . import collectives
from .inputs import one_of, quantity, whole

METHODS = ("dense", "top_k", "one_bit", "power_sgd")


def cost(method, elements, world_size, density=0.001, factors=0, value_bytes=4):
    """Return the `Cost` of averaging gradients of `elements` by rings: latencies in a row, and bytes.

    dense: an all-reduce. top_k: all-gathers of values and of 4-byte indices, the share `density` of the
    elements. one_bit: an all-to-all of signs, an all-gather of the averages' signs. power_sgd: all-reduces of
    what stays whole and of two factors, one after another, `factors` elements in all (`power_sgd_elements`).
    """
    one_of("method", method, METHODS), quantity("elements", elements), whole("world_size", world_size)
    quantity("density", density), quantity("factors", factors), whole("value_bytes", value_bytes)
    reduce, gather = collectives.ring_all_reduce, collectives.ring_all_gather
    if method == "top_k":
        kept = world_size * density * elements
        return gather(kept * value_bytes, world_size).then(gather(kept * 4, world_size))
    if method == "one_bit":
        return collectives.pairwise(elements / 8, world_size).then(gather(elements / 8, world_size))
    if method == "power_sgd":
        latencies = reduce(0, world_size)
        return reduce(factors * value_bytes, world_size).then(latencies).then(latencies)
    return reduce(elements * value_bytes, world_size)


def seconds(method, elements, world_size, latency, bandwidth, rate, value_bytes=4, **options):
    """Return (compressing, latencies, sending): the seconds that averaging takes, in its three parts.

    latency: α in seconds. bandwidth: of a link, bytes/s. rate: bytes of dense gradients that are compressed
    in a second. options: as for `cost`. Nothing overlaps.
    """
    quantity("latency", latency), quantity("bandwidth", bandwidth, positive=True)
    quantity("rate", rate, positive=True)
    each = cost(method, elements, world_size, value_bytes=value_bytes, **options)
    compressing = 0.0 if method == "dense" else elements * value_bytes / rate
    return compressing, each.rounds * latency, each.nbytes / bandwidth


def fastest(elements, world_size, latency, bandwidth, rate, **options):
    """Return the method that takes the fewest seconds; of several, the first of METHODS."""
    taken = [
        sum(seconds(each, elements, world_size, latency, bandwidth, rate, **options)) for each in METHODS
    ]
    return METHODS[taken.index(min(taken))]


def elements_of(shape):
    """Return the product of the sizes in `shape`."""
    elements = 1
    for size in shape:
        elements *= whole("a size in shapes", size)
    return elements


def sparse_bytes(elements, world_size, value_bytes=4, index_bytes=4):
    """Return the bytes a rank sends so that all ranks hold `elements` values and indices of each rank."""
    quantity("elements", elements), whole("world_size", world_size)
    whole("value_bytes", value_bytes), whole("index_bytes", index_bytes, 0)
    gathered = world_size * elements * (value_bytes + index_bytes)
    return collectives.ring_all_gather_bytes(gathered, world_size)


def sparse_share(density, world_size, value_bytes=4, index_bytes=4):
    """Return what sparse gradients send over what dense ones send; with 4-byte indices, density times ranks.

    density: share of its gradient's elements that each rank sends.
    """
    quantity("density", density), whole("world_size", world_size)
    whole("value_bytes", value_bytes), whole("index_bytes", index_bytes, 0)
    return density * world_size * (value_bytes + index_bytes) / (2 * value_bytes)


def power_sgd_elements(shapes, rank):
    """Return how many elements PowerSGD all-reduces for gradients of `shapes`: factors, or the whole.

    A tensor of n rows and m other elements becomes rank·(n + m) where that is less than half, as in torch.
    """
    whole("rank", rank)
    total = 0
    for shape in shapes:
        elements = elements_of(shape)
        columns = elements // shape[0]
        factors = min(rank, shape[0], columns) * (shape[0] + columns)
        total += factors if len(shape) > 1 and 2 * factors < elements else elements
    return total


def saved_by_warm_up(warm_up, bits=1, of=16):
    """Return dense bytes over those sent if `bits` replace `of` after the share `warm_up` of all steps.

    1 / (w + (1 - w)/16) for 1-bit Adam in 16-bit training (Tang et al. 2021).
    """
    quantity("warm_up", warm_up), whole("bits", bits), whole("of", of, bits)
    if warm_up > 1:
        raise ValueError(f"warm_up must be a share of the steps, from 0 to 1, not {warm_up}")
    return 1 / (warm_up + (1 - warm_up) * bits / of)


def fastest_link(nbytes, share, seconds, world_size):
    """Return the bandwidth, in bytes/s, above which compressing no longer pays.

    nbytes: of the dense gradients. share: what is sent of them. seconds: that compressing takes. No overlap.
    """
    quantity("share", share), quantity("seconds", seconds, positive=True)
    return (1 - share) * collectives.ring_all_reduce_bytes(nbytes, world_size) / seconds
