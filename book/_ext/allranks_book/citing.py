"""How is a page cited, and what do citation managers read in it?

Title and address are the page's, everything else is said once, in CITATION.cff.
"""

from __future__ import annotations

import re
from functools import cache
from html import escape
from pathlib import Path

import yaml

from allranks_book.changes import last_changed
from allranks_book.repository import repository

ROOT = Path(__file__).resolve().parents[3]
CITATION = ROOT / "CITATION.cff"


@cache
def book() -> dict:
    """The file as it is."""
    return yaml.safe_load(CITATION.read_text(encoding="utf-8"))


def people(cited: dict) -> list[tuple[str, str]]:
    """Family and given names of the authors; a group has only the first."""
    named = cited["authors"]
    return [
        (one["name"], "") if "name" in one else (one["family-names"], one.get("given-names", ""))
        for one in named
    ]


def year(cited: dict, printed: str) -> str:
    """The year of the release; before the first one, that of the copyright line."""
    return str(cited["date-released"])[:4] if "date-released" in cited else printed


def plain(title: str, address: str, cited: dict, when: str) -> str:
    """One sentence; `title` is empty for the whole book."""
    authors = ", ".join(" ".join(filter(None, (given, family))) for family, given in people(cited))
    within = f"“{title}”. In: {cited['title']}" if title else cited["title"]
    return f"{authors} ({when}). {within}, version {cited['version']}. {address}"


def bibtex(key: str, title: str, address: str, cited: dict, when: str) -> str:
    """The same for a bibliography; @misc, since every style knows it and all of them print the address."""
    authors = [
        f"{tex(family)}, {tex(given)}" if given else f"{{{tex(family)}}}" for family, given in people(cited)
    ]
    fields = {"author": " and ".join(authors), "title": f"{{{tex(title or cited['title'])}}}"}
    fields |= {"howpublished": f"In: {tex(cited['title'])}"} if title else {}
    fields |= {"year": when, "note": f"Version {cited['version']}", "url": address}
    lines = [f"  {name} = {{{value}}}," for name, value in fields.items()]
    return "\n".join([f"@misc{{{key},", *lines, "}"])


def tex(text: str) -> str:
    """A text that LaTeX sets as it is."""
    return re.sub(r"([&%$#_{}])", r"\\\1", text)


def address(page: str, config) -> str:
    """Where the page stays: below `html: baseurl` of _config.yml, or where GitHub Pages puts the book."""
    base = config.html_baseurl or repository(config).pages
    return f"{base.rstrip('/')}/{page}.html"


def box(title: str, texts: list[str], note: str, of: str) -> str:
    """The closed box at the end of a page; the book's own copy buttons find what stands in it."""
    shown = "".join(f'<div class="highlight"><pre>{escape(text)}</pre></div>' for text in texts)
    return f'<details class="ar-cite" id="cite"><summary>Cite {of}</summary>{shown}<p>{note}</p></details>'


def metadata(title: str, where: str, cited: dict, when: str) -> str:
    """What Zotero and Google Scholar look for."""
    tags = [("title", title or cited["title"]), ("publication_date", when), ("public_url", where)]
    tags += [("author", " ".join(filter(None, reversed(person)))) for person in people(cited)]
    tags += [("inbook_title", cited["title"])] if title else []
    return "\n".join(f'<meta name="citation_{name}" content="{escape(value)}" />' for name, value in tags)


def add_citation(app, pagename, templatename, context, doctree) -> None:
    """End each page with its citation, and put the same into its head."""
    if doctree is None:
        return
    file = Path(app.env.doc2path(pagename)).relative_to(app.srcdir).as_posix()
    is_book = pagename == app.config.root_doc
    title = "" if is_book else app.env.titles[pagename].astext()
    cited, where = book(), address(pagename, app.config)
    when = year(cited, app.config.copyright)
    key = "allranks" if is_book else f"allranks:{pagename.rsplit('/', 1)[1]}"
    texts = [plain(title, where, cited, when), bibtex(key, title, where, cited, when)]
    changed = last_changed().get(file)
    dated = f" This page last changed on <time>{changed.day}</time>." if changed else ""
    log = context["pathto"]("book/changes")
    note = f'Version {escape(str(cited["version"]))}.{dated} <a href="{log}">What changed</a>'
    context["body"] += box(title, texts, note, "this book" if is_book else "this page")
    context["metatags"] = f"{context.get('metatags', '')}\n{metadata(title, where, cited, when)}"


def setup(app) -> None:
    """Cite each page when its template is filled in."""
    app.connect("html-page-context", add_citation)
