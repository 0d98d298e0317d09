"""How is what was computed or measured shown? These functions draw; they compute nothing.

Each module draws one kind of answer: curves, timelines, exchanges, shares of a whole, graphs, samples,
servers, traces; `drawings` draws in the palette of the page.
"""

from allranks.plots.curves import (
    against,
    against_bandwidth,
    against_ranks,
    by_model,
    collective_times,
    differences,
    gaps,
    layouts,
    losses,
    message_times,
    percentages,
    ratios,
    roofline,
    utilization,
)
from allranks.plots.diagrams import letters
from allranks.plots.dots import published_runs
from allranks.plots.drawings import bars, holders, passes, streams
from allranks.plots.exchanges import calls, entered, messages, queues
from allranks.plots.graphs import blocks, cuts, networks, owned, rank_groups, who_sends_to_whom
from allranks.plots.recorded import attempts, traces
from allranks.plots.samples import pictures
from allranks.plots.serving import break_even, grouped, served
from allranks.plots.shares import binades, held_in_a_step, parts, parts_by_model, sent_by_rank, whole_units
from allranks.plots.timelines import PHASES, gantt, held_over_time, kept_over_a_step, lanes, timeline

__all__ = [
    "PHASES",
    "against",
    "against_bandwidth",
    "against_ranks",
    "attempts",
    "bars",
    "binades",
    "blocks",
    "break_even",
    "by_model",
    "calls",
    "collective_times",
    "cuts",
    "differences",
    "entered",
    "gantt",
    "gaps",
    "grouped",
    "held_in_a_step",
    "held_over_time",
    "holders",
    "kept_over_a_step",
    "lanes",
    "layouts",
    "letters",
    "losses",
    "message_times",
    "messages",
    "networks",
    "owned",
    "parts",
    "parts_by_model",
    "passes",
    "percentages",
    "pictures",
    "published_runs",
    "queues",
    "rank_groups",
    "ratios",
    "roofline",
    "sent_by_rank",
    "served",
    "streams",
    "timeline",
    "traces",
    "utilization",
    "who_sends_to_whom",
    "whole_units",
]
