"""Figures that answer when touched: the same Python in a kernel and in a page without one.

An explorer is a module with three names: CONTROLS, what can be set; TITLE, what it is about; and
draw(width, **settings), which returns {"svg": the picture, "text": its numbers in words, "result": its one
number and what it is of, "insight": what to learn from it, "marks": places of the picture that answer} and,
where they apply, {"steps": how many can be played, "idle": names of controls without effect at this setting}.
It computes nothing itself: it asks the arithmetic, and runs wherever that runs.
"""

from .frame.controls import settings
from .frame.svg import NARROW, WIDE

NAMES = (
    "waiting",
    "strategies",
    "roofline",
    "all_reduce",
    "precision",
    "memory",
    "averaging",
    "buckets",
    "compression",
    "local_updates",
    "zero",
    "tensor_parallel",
    "pipeline",
    "context_parallel",
    "experts",
    "mesh",
    "layout",
    "decode",
    "serving",
    "traces",
    "goodput",
)


def explorer(name):
    """The module of the explorer `name`; ValueError if there is none."""
    if name not in NAMES:
        raise ValueError(f"explorer must be one of {', '.join(NAMES)}, not {name!r}")
    return __import__(f"allranks.explorers.{name}", None, None, ["draw"])


def draw(name, given=None, width=WIDE):
    """What the explorer `name` shows at the settings `given`: a dict with "svg" and "text" (see above).

    width: of the picture in pixels, WIDE or NARROW. Raises ValueError for a setting that is not allowed.
    """
    module = explorer(name)
    if width not in (WIDE, NARROW):
        raise ValueError(f"width must be {WIDE} or {NARROW}, not {width!r}")
    return module.draw(width, **settings(module.CONTROLS, given or {}))


def show(name, **given):
    """Show the explorer `name` in Jupyter, at the settings `given`; its stored output is the picture."""
    from .frame.jupyter import Explorer

    return Explorer(name, given)
