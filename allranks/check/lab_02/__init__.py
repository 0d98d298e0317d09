"""The tasks of Lab 02: DDP from scratch, and a trainer around it."""

from allranks.check.lab_02.bucketing import buckets
from allranks.check.lab_02.in_backward import hooks
from allranks.check.lab_02.loading import loader
from allranks.check.lab_02.means import average_gradients, reduce_mean
from allranks.check.lab_02.overlapping import overlap
from allranks.check.lab_02.saving import checkpoint
from allranks.check.lab_02.stepping import evaluate, train_step
from allranks.check.lab_02.together import bucket_sizes, milestone
from allranks.check.lab_02.training import fit
from allranks.check.lab_02.wrapping import ddp

__all__ = [
    "average_gradients",
    "bucket_sizes",
    "buckets",
    "checkpoint",
    "ddp",
    "evaluate",
    "fit",
    "hooks",
    "loader",
    "milestone",
    "overlap",
    "reduce_mean",
    "train_step",
]
