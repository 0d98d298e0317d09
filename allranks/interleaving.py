"""How many micro-batches does a rank take through one of its pieces of a model before the next piece?"""

from .inputs import whole


def group_size(stages, microbatches):
    """Micro-batches that `interleaved` takes through one piece before the next: the fewest that cost no time.

    From p to m, with a last group that is whole or has at least p too, as Megatron-Core 0.20 demands
    (`microbatch_group_size_per_vp_stage`); all m if m < p. Where torch accepts m this is its number of a
    round. Fewer would wait at each wrap from the last rank to the first, or deadlock; more keep more.
    """
    whole("stages", stages), whole("microbatches", microbatches)
    for group in range(stages, microbatches):
        if not 0 < microbatches % group < stages:
            return group
    return microbatches
