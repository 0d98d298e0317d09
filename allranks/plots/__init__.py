"""How is what was computed or measured shown? These functions draw; they compute nothing.

Each module draws one kind of answer: curves, timelines, shares of a whole, graphs, samples.
"""

from allranks.plots.curves import (
    against,
    against_ranks,
    by_model,
    collective_times,
    layouts,
    losses,
    message_times,
    ratios,
    roofline,
)
from allranks.plots.graphs import blocks, networks, who_sends_to_whom
from allranks.plots.samples import pictures
from allranks.plots.shares import binades, held_in_a_step, parts, parts_by_model, sent_by_rank, whole_units
from allranks.plots.timelines import PHASES, gantt, held_over_time, kept_over_a_step, messages, timeline

__all__ = [
    "PHASES",
    "against",
    "against_ranks",
    "binades",
    "blocks",
    "by_model",
    "collective_times",
    "gantt",
    "held_in_a_step",
    "held_over_time",
    "kept_over_a_step",
    "layouts",
    "losses",
    "message_times",
    "messages",
    "networks",
    "parts",
    "parts_by_model",
    "pictures",
    "ratios",
    "roofline",
    "sent_by_rank",
    "timeline",
    "who_sends_to_whom",
    "whole_units",
]
