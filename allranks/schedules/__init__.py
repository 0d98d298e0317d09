"""In which order does each rank of a pipeline run its forwards and backwards?

A schedule is plain data: for each rank, the tuple of its operations. Functions make schedules, `check` proves
one complete, legal and free of deadlock, `bubble_of_ideal` and its like have the published closed forms, and
`allranks.simulate` plays a schedule.
"""

from collections import OrderedDict

from ..interleaving import group_size
from .asynchronous import pipedream, staleness, stashed_versions, weights_used
from .bidirectional import dualpipe, dualpipe_v
from .closed_forms import bubble_of_ideal, bubble_of_total, bubble_seconds, peak_activations
from .flushed import gpipe, interleaved, looped_bfs, one_f_one_b
from .operations import Operation, Schedule, homes
from .search import zero_bubble
from .split_backward import zb_h1, zb_h2, zb_v
from .validity import SENDS, check

SCHEDULES = OrderedDict(
    [
        ("gpipe", gpipe),
        ("one_f_one_b", one_f_one_b),
        ("looped_bfs", looped_bfs),
        ("interleaved", interleaved),
        ("pipedream", pipedream),
        ("zb_h1", zb_h1),
        ("zb_h2", zb_h2),
        ("zb_v", zb_v),
        ("zero_bubble", zero_bubble),
        ("dualpipe", dualpipe),
        ("dualpipe_v", dualpipe_v),
    ]
)
"""Every schedule, name -> function, in teaching order."""

__all__ = [
    "SCHEDULES",
    "SENDS",
    "Operation",
    "Schedule",
    "bubble_of_ideal",
    "bubble_of_total",
    "bubble_seconds",
    "check",
    "dualpipe",
    "dualpipe_v",
    "gpipe",
    "group_size",
    "homes",
    "interleaved",
    "looped_bfs",
    "one_f_one_b",
    "peak_activations",
    "pipedream",
    "staleness",
    "stashed_versions",
    "weights_used",
    "zb_h1",
    "zb_h2",
    "zb_v",
    "zero_bubble",
]
