"""What do the ranks hold only in order to communicate?

Data parallelism packs gradients into buckets; fully sharded data parallelism brings one layer at a time
together. Both take memory beyond the states.
"""

from ..inputs import one_of, quantity, whole
from .states import ZERO, recipe_of

FIRST_BUCKET, BUCKET = 2**20, 25 * 2**20


def ddp_buckets(sizes, first=FIRST_BUCKET, cap=BUCKET):
    """The buckets that DDP packs gradients of `sizes` bytes into: lists of indices into `sizes`.

    sizes: in the order in which gradients are ready, last layer first. A bucket is closed as soon as it holds
    `cap` bytes or more, the first one at `first`: 1 MiB, then 25 MiB (Li et al. 2020, section 3.2.3; torch's
    defaults).
    """
    quantity("first", first, positive=True), quantity("cap", cap, positive=True)
    buckets, filled, limit = [[]], 0, first
    for index, size in enumerate(sizes):
        buckets[-1].append(index)
        filled += quantity("size", size)
        if filled >= limit:
            buckets.append([])
            filled, limit = 0, cap
    return [bucket for bucket in buckets if bucket]


def ddp_bucket_bytes(parameters, recipe=ZERO, gradient_as_bucket_view=False):
    """Bytes of DDP's buckets: all gradients once more, or none if each gradient is a view of its bucket."""
    quantity("parameters", parameters)
    one_of("gradient_as_bucket_view", gradient_as_bucket_view, (False, True))
    return 0 if gradient_as_bucket_view else recipe_of(recipe).gradients * parameters


def unsharded_bytes(unit_parameters, recipe=ZERO, prefetched=1):
    """Bytes beyond the shards while FSDP (stage 3) uses a unit of `unit_parameters`: take the largest.

    The weights of the unit that computes and of those `prefetched` meanwhile, and the gradients of one before
    they are reduced and cut.
    """
    quantity("unit_parameters", unit_parameters), whole("prefetched", prefetched, 0)
    recipe = recipe_of(recipe)
    return ((1 + prefetched) * recipe.weights + recipe.gradients) * unit_parameters
