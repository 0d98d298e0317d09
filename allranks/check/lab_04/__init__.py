"""The tasks of Lab 04: mixed precision on ranks, from one step to a run that survives an overflow."""

from allranks.check.lab_04.autocast import cross_entropy, forward_backward
from allranks.check.lab_04.clipping import clipped_step
from allranks.check.lab_04.scaling import loss_scaler, rank_scaler, unscale
from allranks.check.lab_04.sharding import shard
from allranks.check.lab_04.training import milestone

__all__ = [
    "clipped_step",
    "cross_entropy",
    "forward_backward",
    "loss_scaler",
    "milestone",
    "rank_scaler",
    "shard",
    "unscale",
]
