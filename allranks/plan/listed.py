"""Which layouts are there? Every legal way to divide a model and its batch over a number of devices."""

from ..inputs import one_of, whole
from ..memory.states import STAGES
from ..transformer import RECOMPUTATION
from .legal import AXES, Layout, illegal


def divisors(number):
    """The divisors of a whole number, in order."""
    small = [each for each in range(1, int(whole("number", number) ** 0.5) + 1) if number % each == 0]
    return small + [number // each for each in reversed(small) if each * each != number]


def layouts(
    model, devices, batch, *, chunks=1, at_most=None, sequence_parallel=True, zero_stages=STAGES,
    recomputations=RECOMPUTATION,
):  # fmt: skip
    """Every legal `Layout` of `model` on `devices` devices with `batch` sequences a step, as an iterator.

    at_most: a dict from tp, cp, pp, dp or ep to the largest size to try. zero_stages, recomputations: which
    to try; on a single replica all ZeRO stages are the same, and only the first is there. In one mesh the
    micro-batches grow, and each is tried with `recomputations` from the last to the first.
    """
    whole("devices", devices), whole("batch", batch), whole("chunks", chunks)
    zero_stages, recomputations = tuple(zero_stages), tuple(recomputations)
    for stage in zero_stages:
        one_of("zero_stages", stage, STAGES)
    for each in recomputations:
        one_of("recomputations", each, RECOMPUTATION)
    at_most = {} if at_most is None else at_most
    for axis in at_most:
        one_of("at_most", axis, AXES), whole(f"at_most for {axis}", at_most[axis])

    def sizes(axis, number):
        return [size for size in divisors(number) if size <= at_most.get(axis, size)]

    for tp in sizes("tp", devices):
        for cp in sizes("cp", devices // tp):
            for pp in sizes("pp", devices // tp // cp):
                dp = devices // tp // cp // pp
                if batch % dp or dp > at_most.get("dp", dp):
                    continue
                for ep in sizes("ep", model.experts):
                    if (cp * dp) % ep:
                        continue
                    for microbatch in divisors(batch // dp):
                        shape = (tp, cp, pp, dp, ep)
                        amounts = (microbatch, batch // dp // microbatch)
                        one = Layout(*shape, 0, *amounts, "none", chunks)
                        if illegal(model, one, sequence_parallel):
                            continue
                        for stage in zero_stages if cp * dp > 1 else zero_stages[:1]:
                            for recomputation in reversed(recomputations):
                                yield Layout(*shape, stage, *amounts, recomputation, chunks)
