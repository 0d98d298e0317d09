"""What have others measured, and does the planner predict it? 635 published runs, each with its source."""

from .measured import Collective, Run, collectives, machine, runs, seconds, setup, unknown
from .predict import Prediction, kind, predicted, predictions, unprinted
from .printed_memory import memory_error, memory_parts
from .ranking import groups, order, ordered, spread
from .stacks import STACKS, Stack

__all__ = [
    "STACKS",
    "Collective",
    "Prediction",
    "Run",
    "Stack",
    "collectives",
    "groups",
    "kind",
    "machine",
    "memory_error",
    "memory_parts",
    "order",
    "ordered",
    "predicted",
    "predictions",
    "runs",
    "seconds",
    "setup",
    "spread",
    "unknown",
    "unprinted",
]
