"""The tasks of Lab 03: fully sharded data parallel."""

from allranks.check.lab_03.in_background import background
from allranks.check.lab_03.numbers import clip, precision
from allranks.check.lab_03.saving import checkpoint, full_state
from allranks.check.lab_03.starting import start
from allranks.check.lab_03.stepping import accumulate, recompute
from allranks.check.lab_03.strategies import strategy
from allranks.check.lab_03.together import milestone, policies_measured
from allranks.check.lab_03.wrapping import held, wrap

__all__ = [
    "accumulate",
    "background",
    "checkpoint",
    "clip",
    "full_state",
    "held",
    "milestone",
    "policies_measured",
    "precision",
    "recompute",
    "start",
    "strategy",
    "wrap",
]
