"""What did GPUs do? The results of `make gpu-check`, one file for each machine, as it wrote them.

Nothing here computes: what a result should have been is the business of `roofline`, `memory`, `simulate` and
the other models, and of the page that compares the two.
"""

import functools
import json
from importlib import resources


def machines():
    """Names of the machines that have been measured, in alphabetical order."""
    files = (file.name for file in resources.files(__name__).iterdir())
    return sorted(name.removesuffix(".json") for name in files if name.endswith(".json"))


@functools.cache
def results(name):
    """What the machine of this name did: {"machine": {...}, "parts": {part: {...}}}; seconds and bytes.

    Raises ValueError for a machine that has not been measured.
    """
    if name not in machines():
        raise ValueError(f"{name!r} has not been measured; there are {', '.join(machines())}")
    text = resources.files(__name__).joinpath(f"{name}.json").read_text(encoding="utf-8")
    return json.loads(text)
