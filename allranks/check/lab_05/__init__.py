"""The tasks of Lab 05: DeepSpeed by its configuration, from a stage of ZeRO to plain weights."""

from allranks.check.lab_05.budgets import choose
from allranks.check.lab_05.checkpoints import checkpoint
from allranks.check.lab_05.common import engine_of, preload, shown, train
from allranks.check.lab_05.configurations import configuration, offload
from allranks.check.lab_05.files import nvme
from allranks.check.lab_05.huggingface import repaired
from allranks.check.lab_05.measuring import steps_measured
from allranks.check.lab_05.states import bytes_held, excess
from allranks.check.lab_05.training import milestone

__all__ = [
    "bytes_held",
    "checkpoint",
    "choose",
    "configuration",
    "engine_of",
    "excess",
    "milestone",
    "nvme",
    "offload",
    "preload",
    "repaired",
    "shown",
    "steps_measured",
    "train",
]
