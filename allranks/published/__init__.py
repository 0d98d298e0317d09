"""What have others measured, and does the planner predict it? 635 published runs, each with its source."""

from .measured import Collective, Run, collectives, machine, runs, seconds, setup, unknown
from .predict import Prediction, kendall, kind, memory_error, predicted, predictions
from .stacks import STACKS, Stack

__all__ = [
    "STACKS",
    "Collective",
    "Prediction",
    "Run",
    "Stack",
    "collectives",
    "kendall",
    "kind",
    "machine",
    "memory_error",
    "predicted",
    "predictions",
    "runs",
    "seconds",
    "setup",
    "unknown",
]
