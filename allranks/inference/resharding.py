"""What moves when the ranks that train a model generate with it too, in another layout?

The model: training cuts the weights into `tensor` × `pipeline` parts of equal size, `replicas` times;
generation cuts them into fewer parts, one for each rank of a smaller group. Every rank needs its part for
generation, and keeps its part for training. Results are shares of the weights (HybridFlow, Sheng et al.
2025, section 5.4).
"""

from collections import namedtuple

from ..inputs import one_of, whole

Resharding = namedtuple("Resharding", "received peak")
"""Shares of the weights: what a rank receives, and the most that it holds meanwhile."""

WAYS = "all ranks", "same groups", "regrouped"


def generation_groups(ranks, parts):
    """Groups of `parts` ranks that generate together, of `ranks` that train one replica: each list in order.

    Rank r trains on part r of `ranks`. The groups take every (ranks / parts)-th rank, so that each rank's
    part for generation contains its part for training.
    """
    whole("ranks", ranks), whole("parts", parts)
    if ranks % parts:
        raise ValueError(f"parts must divide ranks, {ranks}, not be {parts}: the weights are cut evenly")
    return [list(range(first, ranks, ranks // parts)) for first in range(ranks // parts)]


def reshard(way, tensor, pipeline, replicas, generation_tensor, generation_pipeline=1):
    """The `Resharding` from training to generation, in one of three `WAYS`.

    "all ranks": every rank gathers the whole model from all ranks, each of which holds a shard of it
    (DeepSpeed-Chat). "same groups": it gathers the whole model within its training replica, and consecutive
    ranks generate together. "regrouped": it gathers only its part for generation, in `generation_groups`.
    """
    for name, value in (("tensor", tensor), ("pipeline", pipeline), ("replicas", replicas)):
        whole(name, value)
    for name, value, most in (
        ("generation_tensor", generation_tensor, tensor),
        ("generation_pipeline", generation_pipeline, pipeline),
    ):
        whole(name, value)
        if most % value:
            raise ValueError(f"{name} must divide its size in training, {most}, not be {value}")
    one_of("way", way, WAYS)
    parts, generated = tensor * pipeline, generation_tensor * generation_pipeline
    if way == "all ranks":
        ranks = parts * replicas
        return Resharding((ranks - 1) / ranks, 1.0)
    if way == "same groups":
        return Resharding((parts - 1) / parts, 1.0)
    return Resharding((parts - generated) / (generated * parts), 1 / generated)
