"""How do the published numbers get onto their page, and the code that names one gets a link to it?

A page says `<!-- ledger: summary -->`, `table` or `errata` where it wants one (`allranks.claims` makes them);
it is read again when a paper's numbers change, or a chapter, since the table says where each is used.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from allranks import claims
from allranks_book.permalinks import link_html

ROOT = Path(__file__).resolve().parents[3]
NOTEBOOKS = ROOT / "notebooks"
PAGE = "book/claims"
PLACE = re.compile(r"<!-- ledger: (summary|table|errata) -->")
ENTRY = re.compile(r"(<tr id='([^']+)'[^>]*><td>)(.*?)(?=<td>)")
QUOTED = re.compile(r"""(<span class="s[12]">)("|'|&quot;|&#39;)([\w.-]+)\2</span>""")


def fill_in(app, docname: str, source: list[str]) -> None:
    """Put the parts of the ledger where a page asks for them."""
    if PLACE.search(source[0]):
        table = claims.table(NOTEBOOKS)
        parts = {"summary": table.summary(), "table": raw(table), "errata": raw(claims.errata())}
        source[0] = PLACE.sub(lambda place: parts[place[1]], source[0])
        for file in [*(ROOT / "allranks" / "claims").rglob("*.*ml"), *NOTEBOOKS.glob("*/*.ipynb")]:
            app.env.note_dependency(str(file))


def raw(shown) -> str:
    """What a notebook would show as HTML, for a page in Markdown."""
    return f"```{{raw}} html\n{shown._repr_html_()}\n```"


@cache
def known() -> frozenset[str]:
    """The ids of all entries."""
    return frozenset(claim.id for claim in claims.table().claims)


def link_claims(app, pagename: str, templatename: str, context: dict, doctree) -> None:
    """Each entry of the ledger links to itself, and the code of a chapter that names one to the entry."""
    body = context.get("body", "")
    if pagename == PAGE:
        context["body"] = ENTRY.sub(
            lambda row: f"{row[1]}{row[3]}{link_html(row[2], 'published number')}", body
        )
    elif doctree is not None and pagename.startswith("notebooks/"):
        page = app.builder.get_relative_uri(pagename, PAGE)
        context["body"] = QUOTED.sub(lambda found: claim_link(found, page), body)


def claim_link(quoted: re.Match, page: str) -> str:
    """A string of the code, as a link if it is the id of an entry."""
    whole, claim = quoted[0], quoted[3]
    if claim not in known():
        return whole
    return f'{quoted[1]}{quoted[2]}<a class="ar-ledger" href="{page}#{claim}">{claim}</a>{quoted[2]}</span>'


def setup(app) -> None:
    """Fill in the page as it is read, and add links as pages are written."""
    app.connect("source-read", fill_in)
    app.connect("html-page-context", link_claims)
