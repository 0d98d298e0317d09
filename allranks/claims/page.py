"""How is the ledger shown? As a table and a list, in HTML that needs no script, and in plain text.

`claims.js` of the book adds filters to the table; it reads the attributes `data-…` and the texts.
"""

import ast
import html
import itertools
import json
import re
from collections import Counter, namedtuple
from pathlib import Path

from .ledger import STATUSES

CELL = re.compile(", (?:row|column) ")
MEANING = {
    "reproduced": "recomputed and as printed",
    "erratum": "where the paper contradicts itself",
    "differs": "where ours differs from what is printed",
    "quoted": "quoted, because no formula gives them",
}


class Table(namedtuple("Table", "claims papers cited")):
    """Every entry in a row, grouped by paper and place."""

    def summary(self):
        """What the table holds, in one sentence of several lines."""
        counts = Counter(claim.status for claim in self.claims)
        papers = len({claim.paper for claim in self.claims})
        lines = [f"{counts[status]} {MEANING[status]}" for status in STATUSES if counts[status]]
        return f"{len(self.claims)} published numbers of {papers} papers:\n" + ",\n".join(lines) + "."

    def __repr__(self):
        lines = [self.summary()]
        for paper, claims in itertools.groupby(self.claims, lambda claim: claim.paper):
            counts = Counter(claim.status for claim in claims)
            shown = ", ".join(f"{counts[status]} {status}" for status in STATUSES if counts[status])
            lines.append(f"{self.papers[paper]}: {shown}")
        return "\n".join(lines)

    def _repr_html_(self):
        columns = "".join(f"<th scope=col>{name}" for name in ("What", "Printed", "Ours", "Status"))
        rows = "".join(self._paper(*group) for group in itertools.groupby(self.claims, lambda c: c.paper))
        return (
            "<div class='ar-claims pst-scrollable-table-container'><table>"
            f"<caption>Published numbers, by paper and place</caption><thead><tr>{columns}</thead>"
            f"{rows}</table></div>"
        )

    def _paper(self, paper, claims):
        name = html.escape(self.papers[paper])
        heads = f"\n<tbody data-paper={paper}><tr><th colspan=4 scope=rowgroup class=ar-paper>{name}"
        places = itertools.groupby(claims, _table)
        return heads + "".join(self._place(*place) for place in places)

    def _place(self, where, claims):
        head = f"\n<tr><th colspan=4 scope=rowgroup class=ar-place>{html.escape(where)}"
        return head + "".join(map(self._row, claims))

    def _row(self, claim):
        chapters = self.cited.get(claim.id, [])
        links = ", ".join(
            f"<a href='../notebooks/{each.slug}.html'>{html.escape(each.title)}</a>" for each in chapters
        )
        used = f" <small>in {links}</small>" if links else ""
        attribute = f" data-in='{' '.join(each.slug for each in chapters)}'" if chapters else ""
        unit = f" {html.escape(claim.unit)}" if claim.unit else ""
        outcome = claim.outcome()
        ours = "–" if outcome is None else html.escape(outcome.shown) + ("" if claim.formula else unit)
        status = claim.status
        if claim.why and status in ("erratum", "differs"):
            status = f"<a href='#why-{claim.id}'>{status}</a>"
        return (
            f"<tr id='{claim.id}'{attribute}><td>{html.escape(_what(claim))}{used}"
            f"<td>{html.escape(claim.printed)}{unit}<td>{ours}<td>{status}"
        )


class Errata(namedtuple("Errata", "claims papers")):
    """The entries in which ours is not what is printed, those with one reason together."""

    def groups(self):
        """(paper, status, reason, claims) of each reason, in the order of the ledger."""
        apart = {}
        for claim in self.claims:
            if claim.status in ("erratum", "differs"):
                apart.setdefault((claim.paper, claim.status, claim.why), []).append(claim)
        return [(*key, claims) for key, claims in apart.items()]

    def __repr__(self):
        return "\n".join(
            f"{self.papers[paper]}, {len(claims)} × {status}: {why}"
            for paper, status, why, claims in self.groups()
        )

    def _repr_html_(self):
        items = []
        for paper, status, why, claims in self.groups():
            cells = "".join(
                f"\n<li id='why-{claim.id}'><a href='#{claim.id}'>{html.escape(_where(claim))}</a>:"
                f" {html.escape(_both(claim))}"
                for claim in claims
            )
            items.append(
                f"\n<dt>{html.escape(self.papers[paper])} <small>({status})</small>"
                f"<dd>{html.escape(why)}<ul>{cells}</ul>"
            )
        return f"<dl class='ar-errata'>{''.join(items)}</dl>"


def _table(claim):
    """The place of an entry without its row and column."""
    return CELL.split(claim.where)[0]


def _what(claim):
    """What an entry is about, with those of its row and column that it does not name itself."""
    return ", ".join([claim.what, *(each for each in CELL.split(claim.where)[1:] if each not in claim.what)])


def _where(claim):
    return f"{_table(claim)}, {_what(claim)}"


def _both(claim):
    unit = f" {claim.unit}" if claim.unit else ""
    return f"printed {claim.printed}{unit}, ours {claim.outcome().shown}{'' if claim.formula else unit}"


Chapter = namedtuple("Chapter", "slug title")


def citations(folder):
    """Which notebooks below `folder` say `claims.check("id", …)`: id -> list of `Chapter`."""
    cited = {}
    for path in sorted(Path(folder).resolve().glob("*/*.ipynb")) if folder else []:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        sources = ["".join(cell["source"]) for cell in cells]
        code = [source for cell, source in zip(cells, sources) if cell["cell_type"] == "code"]
        ids = itertools.chain.from_iterable(map(_ids, code))
        title = sources[0].partition("\n")[0].lstrip("# ")
        for id in dict.fromkeys(ids):
            cited.setdefault(id, []).append(Chapter(f"{path.parent.name}/{path.stem}", title))
    return cited


def _ids(source):
    """The ids that the calls of `claims.check` in a piece of code are written with."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "claims.check":
            yield from (arg.value for arg in node.args if isinstance(arg, ast.Constant))
