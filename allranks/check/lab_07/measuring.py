"""Seconds of a step by layout, on the student's machine."""

from allranks.check import exercise
from allranks.check.measured import by_form

TASK = "Say which row is the slowest. Say what a ratio of two rows tells. Say how far apart repeats are."


@exercise
def layouts_measured(table, plot, reflection):
    """The seconds of a step in four layouts: a table, a plot and three sentences."""
    return by_form(
        table,
        plot,
        reflection,
        x="layout",
        y="step (s)",
        xs=("1×4×1", "1×1×4", "4×1×1", "2×1×2"),
        ratio_to="1×4×1",
        task=TASK,
    )
