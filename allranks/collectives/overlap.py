"""How much of the gradients' communication does the backward pass hide? Buckets that leave as they fill.

Gradients are ready one after another, last layer first. A bucket is all-reduced once its last gradient is
ready, one bucket after another in the order of their numbers, on a stream of its own beside the backward pass
(Li et al. 2020, section 3.2.3). That communication slows the computation beside it is left out.
"""

from collections import namedtuple

from ..inputs import quantity
from .choice import seconds


class Overlap(namedtuple("Overlap", "backward filled starts ends")):
    """A backward pass of `backward` seconds; when each bucket was full, its all-reduce started and ended."""

    __slots__ = ()

    @property
    def end(self):
        """Seconds from the begin of the backward pass until all gradients are averaged."""
        return max(self.backward, self.ends[-1]) if self.ends else self.backward

    @property
    def communication(self):
        """Seconds in which an all-reduce runs."""
        return sum(end - start for start, end in zip(self.starts, self.ends))

    @property
    def exposed(self):
        """Seconds of communication that the backward pass does not hide: what a step waits for."""
        return self.end - self.backward

    @property
    def hidden(self):
        """Seconds in which both run."""
        return max(0.0, self.communication - self.exposed)


def overlapped(ready, buckets, all_reduces):
    """`Overlap` of a backward pass whose gradient i is ready after ready[i] seconds.

    buckets: lists of indices into `ready`, as `memory.ddp_buckets` returns them; all_reduces: the seconds of
    each bucket's. Bucket k starts at max(full_k, end_(k−1)), full_k = max of ready[i] over its gradients.
    """
    if len(buckets) != len(all_reduces):
        raise ValueError(f"all_reduces must have {len(buckets)} times, one a bucket, not {len(all_reduces)}")
    backward, free, filled, starts, ends = 0.0, 0.0, [], [], []
    for at in ready:
        backward = max(backward, quantity("ready", at))
    for bucket, time in zip(buckets, all_reduces):
        filled.append(max(ready[index] for index in bucket))
        starts.append(max(filled[-1], free))
        free = starts[-1] + quantity("all_reduces", time)
        ends.append(free)
    return Overlap(backward, filled, starts, ends)


def bucketed_backward(sizes, backward, buckets, world_size, α, β, algorithm="ring"):
    """`Overlap` of a backward pass of `backward` seconds that makes gradients of `sizes` bytes.

    sizes: in the order in which gradients are ready, each after a time in proportion to its bytes. Buckets as
    in `overlapped`; each is all-reduced among `world_size` ranks in `seconds` (α in s, β in s/byte).
    """
    quantity("backward", backward)
    total, made, ready = 0, 0, []
    for size in sizes:
        total += quantity("size", size)
    for size in sizes:
        made += size
        ready.append(backward * made / total if total else backward)
    times, known = [], {}
    for bucket in buckets:
        nbytes = sum(sizes[index] for index in bucket)
        if nbytes not in known:
            known[nbytes] = seconds("all_reduce", algorithm, nbytes, world_size, α, β)
        times.append(known[nbytes])
    return overlapped(ready, buckets, times)


def beside_a_product(communication, product):
    """Exposed seconds of a communication that starts with a product of `product` seconds it does not need."""
    return max(0.0, quantity("communication", communication) - quantity("product", product))


def decomposed(communication, product, world_size):
    """Exposed seconds of a collective of `communication` and a product of `product` seconds that needs it.

    Both are cut into pieces by `world_size`, p: p - 1 transfers, each beside one of p products; one product
    is alone, the first of a reduce-scatter's and the last of an all-gather's (Wang et al. 2023).
    """
    p = quantity("world_size", world_size)
    if p == 1:
        return 0.0
    return (p - 1) * beside_a_product(communication / (p - 1), product / p)
