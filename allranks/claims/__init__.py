"""Is a published number what the formulas say? Every number that the book quotes, recomputed.

There is a YAML file for each paper; `check` prints entries in a chapter, `table` and `errata` show them all.
`ledger` reads the files, `printed` compares numbers, `expressions` says what may compute them.
"""

import difflib

from . import ledger
from .page import Errata, Table, citations

__all__ = ["check", "errata", "table"]

MARKS = {"reproduced": "✓", "erratum": "≠", "differs": "≠", "quoted": "–"}


def check(*ids):
    """Print one line for each id: the number as printed, ours, and what it means where they differ.

    AssertionError if the numbers give an entry another status than it has, ValueError if there is no such id.
    """
    for id in ids:
        claim = find(id)
        problem = claim.problem()
        if problem is not None:
            raise AssertionError(problem)  # no assert: `python -O` would remove it
        print(line(claim))


def find(id):
    """The entry with this id; ValueError with the ids most like it if there is none."""
    entries = ledger.entries()
    if id not in entries:
        near = difflib.get_close_matches(str(id), entries, n=3, cutoff=0.4)
        hint = f"; near it are {', '.join(near)}" if near else ""
        raise ValueError(f"the ledger has no claim {id!r}{hint}")
    return entries[id]


def line(claim):
    """One line about an entry, for a chapter."""
    name = ledger.papers()[claim.paper].partition(" (")[0]
    unit = f" {claim.unit}" if claim.unit else ""
    text = f"{MARKS[claim.status]} {name}, {claim.where}: {claim.what}: printed {claim.printed}{unit}"
    if claim.status == "quoted":
        return f"{text} (quoted, not computed)"
    text += f", ours {claim.outcome().shown}{'' if claim.formula else unit}"
    if claim.status == "reproduced":
        return text
    return f"{text} ({claim.status}: {claim.why.split('. ')[0].rstrip('.')})"


def table(chapters=None):
    """The whole ledger, to be shown by a notebook. `chapters`: the folder of notebooks that cite entries."""
    return Table(list(ledger.entries().values()), ledger.papers(), citations(chapters))


def errata():
    """The entries in which ours is not what is printed, each with the reason, to be shown by a notebook."""
    return Errata(list(ledger.entries().values()), ledger.papers())
