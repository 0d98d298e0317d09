"""In which order does each rank of a pipeline run its forwards and backwards?

A schedule is plain data: for each rank, the list of its operations. Functions make them, `check` proves them
legal, and `allranks.simulate` plays them.
"""

from .flushed import gpipe, interleaved, looped_bfs, one_f_one_b
from .operations import Operation, Schedule

__all__ = ["Operation", "Schedule", "gpipe", "interleaved", "looped_bfs", "one_f_one_b"]
