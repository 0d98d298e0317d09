"""The tasks of Lab 03: fully sharded data parallel."""

from allranks.check.lab_03.numbers import clip, precision
from allranks.check.lab_03.saving import checkpoint, full_state, milestone
from allranks.check.lab_03.strategies import strategy
from allranks.check.lab_03.wrapping import held, wrap

__all__ = [
    "checkpoint",
    "clip",
    "full_state",
    "held",
    "milestone",
    "precision",
    "strategy",
    "wrap",
]
