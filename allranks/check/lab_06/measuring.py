"""Time to the first token and for each later one against the number of requests, on the student's machine."""

from allranks.check import exercise
from allranks.check.measured import by_form

TASK = "Say which row is the slowest. Say what a ratio of two rows tells. Say how far apart repeats are."


@exercise
def latency_measured(table, plot, reflection):
    """TTFT and TPOT by the number of requests: a table, a plot and three sentences."""
    return by_form(
        table,
        plot,
        reflection,
        x="requests",
        y=("TTFT (s)", "TPOT (s)"),
        xs=(1, 4, 16, 64),
        ratio_to=1,
        task=TASK,
    )
