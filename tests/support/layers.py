"""The layer of each module, read from the table in the docstring of the package."""

import re
from pathlib import Path

import allranks

PACKAGE = Path(allranks.__file__).resolve().parent
NAMES = ("arithmetic", "torch", "presentation")
ARITHMETIC, TORCH, PRESENTATION = range(3)


def table(docstring):
    """{module: layer}: below the line of a layer and what it is, the lines that name its modules."""
    layer, found = None, {}
    for line in docstring.splitlines():
        first = re.match(r"    (\w+) {2,}", line)
        if first:
            layer = NAMES.index(first[1])
        elif line.startswith(" " * 18):
            found |= dict.fromkeys(line.split(), layer)
    return found


LAYER = table(allranks.__doc__)
