"""Where did a step go? Traces of all ranks, read, put on one clock, and divided into what they waited for.

| module    | what                                                                                |
|-----------|-------------------------------------------------------------------------------------|
| intervals | union, difference and length of intervals of time                                   |
| reading   | a file of `torch.profiler` becomes a `Recorded`: phases, computation, collectives   |
| clocks    | which collectives belong together, and how far the clocks of ranks can be apart     |
| blame     | computed, exposed, waited: what each rank did, and which one the others waited for  |
| compact   | a few kB for a page, and one file for a viewer                                      |
| examples  | a healthy program and five faulty ones, recorded; `benchmarks/traces.py` writes it   |

Times are in seconds. No module needs torch, so a page can run all of them.
"""

from .blame import WAITED, Share, last_to_enter, shares, straggler, waits
from .clocks import (
    SYNCHRONISING,
    Match,
    aligned,
    before_it_began,
    matched,
    same_origin,
    shift_bounds,
    shifted,
)
from .compact import MERGED, MOST_JOINED, chrome, hosts_of, packed, unpacked
from .examples import ABOUT, EXAMPLES, example
from .intervals import difference, total, union
from .reading import KINDS, Collective, Recorded, Span, read

__all__ = [
    "ABOUT",
    "EXAMPLES",
    "KINDS",
    "MERGED",
    "MOST_JOINED",
    "SYNCHRONISING",
    "WAITED",
    "Collective",
    "Match",
    "Recorded",
    "Share",
    "Span",
    "aligned",
    "before_it_began",
    "chrome",
    "difference",
    "example",
    "hosts_of",
    "last_to_enter",
    "matched",
    "packed",
    "read",
    "same_origin",
    "shares",
    "shift_bounds",
    "shifted",
    "straggler",
    "total",
    "union",
    "unpacked",
    "waits",
]
