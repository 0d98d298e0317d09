"""The tasks of Lab 04: mixed precision on ranks, from one step to a run that survives an overflow."""

from allranks.check.lab_04.autocast import cross_entropy, forward_backward
from allranks.check.lab_04.clipping import clipped_step
from allranks.check.lab_04.eight_bits import fp8
from allranks.check.lab_04.measuring import measured
from allranks.check.lab_04.memory import bytes_kept
from allranks.check.lab_04.runs import train
from allranks.check.lab_04.scaling import loss_scaler, rank_scaler, unscale
from allranks.check.lab_04.sharding import shard
from allranks.check.lab_04.training import milestone

__all__ = [
    "bytes_kept",
    "clipped_step",
    "cross_entropy",
    "forward_backward",
    "fp8",
    "loss_scaler",
    "measured",
    "milestone",
    "rank_scaler",
    "shard",
    "train",
    "unscale",
]
