"""Seconds of a step by ZeRO's stage, on the student's machine."""

from allranks.check import exercise
from allranks.check.measured import by_form

TASK = "Say which row is the slowest. Say what a ratio of two rows tells. Say how far apart repeats are."


@exercise
def steps_measured(table, plot, reflection):
    """The seconds of a step in each stage of ZeRO: a table, a plot and three sentences."""
    return by_form(
        table, plot, reflection, x="ZeRO stage", y="step (s)", xs=(0, 1, 2, 3), ratio_to=0, task=TASK
    )
