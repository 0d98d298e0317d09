"""How do ranks of a pipeline interleave pieces of a model, and how long do they wait for each other?"""

from .inputs import whole


def group_size(stages, microbatches):
    """Micro-batches that `interleaved` takes through one piece before the next: the fewest that cost no time.

    From p to m, with a last group that is whole or has at least p too, as Megatron Core 0.20 demands
    (`microbatch_group_size_per_vp_stage`); all m if m < p. Where torch accepts m this is its number of a
    round. Fewer would wait at each wrap from the last rank to the first, or deadlock; more keep more.
    """
    whole("stages", stages), whole("microbatches", microbatches)
    for group in range(stages, microbatches):
        if not 0 < microbatches % group < stages:
            return group
    return microbatches


def flushed_bubble(stages, microbatches, work, chunks=1):
    """Seconds that the busiest rank of a flushed pipeline idles in a step; None micro-batches are enough.

    work: seconds of a micro-batch on a rank, forward and backward. (p-1)/v of it with v = `chunks`; with
    m < p, every one of the v-1 wraps from the last rank to the first waits for p-m more (Huang et al. 2019,
    section 2.3; Narayanan et al. 2021, section 2.2).
    """
    whole("stages", stages), whole("chunks", chunks)
    few = 0 if microbatches is None else max(0, stages - whole("microbatches", microbatches))
    return (stages - 1 + (chunks - 1) * few) * work / chunks
