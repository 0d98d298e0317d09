"""What should be read beside the chapters, in which order, and in how much time?

`book/reading_list.yaml` holds every work once. A page with the comment `<!-- reading list -->` gets the
whole list there, one with `<!-- quick reference -->` the card, both as plain Markdown, complete without a
script. For `reading_list.js`, which filters, sorts, plans and exports, the list ends with its data as JSON.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import yaml
from pybtex.database import parse_string

from allranks import claims

ROOT = Path(__file__).resolve().parents[3]
WORKS = ROOT / "book" / "reading_list.yaml"
BIBLIOGRAPHY = ROOT / "book" / "references.bib"
LIST, CARD = "<!-- reading list -->", "<!-- quick reference -->"
ENTRY = re.compile(r"^@\w+\{([\w-]+),.*?^\}", re.MULTILINE | re.DOTALL)


# ---- what is known of a work ----


def reading_list() -> dict:
    """The file as it is: topics, works, and the rows of the card."""
    return yaml.safe_load(WORKS.read_text(encoding="utf-8"))


def bibtex() -> dict[str, str]:
    """Key → its entry in the bibliography, as written there."""
    text = BIBLIOGRAPHY.read_text(encoding="utf-8")
    return {found[1]: found[0] for found in ENTRY.finditer(text)}


def citations() -> dict[str, dict]:
    """Key → who, year, address, and what the address is called."""
    return {key: _citation(entry) for key, entry in _parsed(BIBLIOGRAPHY.read_text(encoding="utf-8")).items()}


@cache
def _parsed(text):
    return dict(parse_string(text, "bibtex").entries)


def _citation(entry):
    names = [plain(" ".join(person.last_names)) for person in entry.persons.get("author", [])]
    fields = entry.fields
    url = fields.get("url") or (f"https://doi.org/{fields['doi']}" if "doi" in fields else "")
    preprint = re.search(r"arXiv:[\d.]+", fields.get("note", ""))
    host = re.sub(r"^https?://(www\.)?|/.*$", "", url)
    who = f"{names[0]} et al." if len(names) > 2 or "others" in names else " and ".join(names)
    return {
        "who": who,
        "year": int(fields["year"]) if "year" in fields else None,
        "url": url,
        "place": preprint[0] if preprint and "arxiv" in url else host.replace("doi.org", "DOI"),
    }


def plain(text: str) -> str:
    """A text of the bibliography without the braces and backslashes of TeX."""
    return re.sub(r"[{}\\]", "", text)


def chapter_title(chapter: str) -> str:
    """The heading of a notebook, given as a path below notebooks/ without its suffix."""
    notebook = json.loads((ROOT / "notebooks" / f"{chapter}.ipynb").read_text(encoding="utf-8"))
    heading = "".join(notebook["cells"][0]["source"]).splitlines()[0]
    return heading.removeprefix("# ").strip()


def duration(minutes: int) -> str:
    """`45 min`, `1 h`, `1 h 15 min`."""
    hours, rest = divmod(minutes, 60)
    return " ".join([f"{hours} h"] * bool(hours) + [f"{rest} min"] * bool(rest))


# ---- the pages ----


def anchor(key: str) -> str:
    """The name of a work's place on the page."""
    return f"read-{key}"


def stars(priority: int) -> str:
    """The priority as stars, with its words for those who do not see them."""
    return f'<span role="img" aria-label="priority {priority} of 3">{"★" * priority}</span>'


def list_markdown(known_pages: set[str]) -> str:
    """The whole list: a section for each topic, and in it one for each work."""
    stored = reading_list()
    cited, names = citations(), {work["key"]: work["name"] for work in stored["works"]}
    parts = [
        start_markdown(stored, cited),
        '```{raw} html\n<div class="ar-reading-place"></div>\n```',
    ]
    for topic, title in stored["topics"].items():
        parts.append(f"## {title}")
        parts += [stored["notes"][topic]] if topic in stored["notes"] else []
        for work in stored["works"]:
            if work["topic"] == topic:
                parts.append(work_markdown(work, cited[work["key"]], names, known_pages))
    return "\n\n".join([*parts, data_html(stored, cited)])


def start_markdown(stored: dict, cited: dict[str, dict]) -> str:
    """The works to start with, in the order in which to read them."""
    works = {work["key"]: work for work in stored["works"]}
    lines = ["## Start here\n"]
    for key in stored["start"]:
        link = f"[{works[key]['name']}](#{anchor(key)})"
        lines.append(f"1. {link}, {cited[key]['who']}, {duration(works[key]['minutes'])}")
    return "\n".join(lines)


def work_markdown(work: dict, cited: dict, names: dict[str, str], known_pages: set[str]) -> str:
    """One work: heading, who, where and how long, why, and what belongs to it."""
    who = " ".join(str(each) for each in (cited["who"], cited["year"]) if each)
    place = f"[{cited['place']}]({work.get('url', cited['url'])})"
    time = duration(work["minutes"]).replace(" ", "\u00a0")
    about = [stars(work["priority"]), work["kind"], who, place, time]
    if work.get("checked") is False:
        about.append("citation not checked")
    rows = {
        "Insight": work["insight"],
        "Read": work["focus"],
        "First": ", ".join(f"[{names[key]}](#{anchor(key)})" for key in work["needs"]),
        "Runs in": chapters_markdown(work["runs_in"], known_pages),
        "Related": chapters_markdown(work["related"], known_pages),
        "Checked": claims_html(work.get("claims", [])),
        "State": state(work),
        "Corrected": work.get("corrected", ""),
    }
    details = "\n\n".join(f"{term}\n: {text}" for term, text in rows.items() if text)
    head = f"({anchor(work['key'])})=\n### {work['title']}"
    return f"{head}\n\n{{.ar-about}}\n{' · '.join(about)}\n\n{work['why']}\n\n{details}"


def chapters_markdown(chapters: list[str], known_pages: set[str], short: bool = False) -> str:
    """Links to chapters, by the title up to a colon if short; one not in the contents yet is named only."""
    shown = []
    for chapter in chapters:
        page, title = f"notebooks/{chapter}", chapter_title(chapter)
        if short:
            title = title.partition(":")[0]
        shown.append(f"[{title}](../{page}.ipynb)" if page in known_pages else title)
    return " · ".join(shown)


def claims_html(papers: list[str]) -> str:
    """How many of a paper's numbers the ledger computes again, with a link to the first of them."""
    found = [claim for claim in _ledger() if claim.paper in papers]
    if not found:
        return ""
    count = "one number" if len(found) == 1 else f"{len(found)} numbers"
    return f'<a href="claims.html#{found[0].id}">{count} in the ledger</a>'


@cache
def _ledger():
    return claims.table().claims


def state(work: dict) -> str:
    """What became of it, where that is not plain from its kind."""
    note = work.get("state_note", "")
    if work["state"] == "current":
        return note
    between = " " if note.startswith("by ") else ": "
    return between.join(filter(None, (work["state"], note)))


def card_markdown(known_pages: set[str]) -> str:
    """The card: concept, primary resource, time, and the chapter that runs it."""
    stored, cited = reading_list(), citations()
    names = {work["key"]: work["name"] for work in stored["works"]}
    lines = ["| Concept | Read | Time | Runs in |", "|---|---|---|---|"]
    for row in stored["quick_reference"]:
        key = row["key"]
        who = " ({who} {year})".format(**cited[key]) if cited[key]["year"] else ""
        part = f", {row['part']}" if row["part"] else ""
        chapters = [row["chapter"]] if row["chapter"] else []
        cells = (
            row["concept"],
            f"[{names[key]}](#{anchor(key)}){who}{part}",
            duration(row["minutes"]),
            chapters_markdown(chapters, known_pages, short=True) or "–",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([":::{div} ar-card", *lines, ":::"])


def data_html(stored: dict, cited: dict[str, dict]) -> str:
    """What the script needs: of each work its topic, priority, time, year, chapters, needs and BibTeX."""
    entries = bibtex()
    works = [
        {
            "key": work["key"],
            "name": work["name"],
            "title": work["title"],
            "kind": work["kind"],
            "topic": work["topic"],
            "priority": work["priority"],
            "minutes": work["minutes"],
            "year": cited[work["key"]]["year"],
            "chapters": work["runs_in"] + work["related"],
            "needs": work["needs"],
            "bibtex": entries[work["key"]],
        }
        for topic in stored["topics"]
        for work in stored["works"]
        if work["topic"] == topic
    ]
    used = {chapter for work in works for chapter in work["chapters"]}
    data = {
        "topics": stored["topics"],
        "chapters": {chapter: chapter_title(chapter) for chapter in in_order_of_contents(used)},
        "works": works,
    }
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return f'```{{raw}} html\n<script type="application/json" id="ar-reading-data">{text}</script>\n```'


def in_order_of_contents(chapters: set[str]) -> list[str]:
    """Chapters as the book's contents order them; those not in it yet come last."""
    contents = (ROOT / "_toc.yml").read_text(encoding="utf-8")
    places = {page: place for place, page in enumerate(re.findall(r"file: notebooks/(\S+)", contents))}
    return sorted(chapters, key=lambda chapter: (places.get(chapter, len(places)), chapter))


# ---- Sphinx ----


def fill_in(app, docname: str, source: list[str]) -> None:
    """Put list or card where a page asks for it, and read the page again when the file has changed."""
    for comment, made in ((LIST, list_markdown), (CARD, card_markdown)):
        if comment in source[0]:
            source[0] = source[0].replace(comment, made(app.env.found_docs))
            for file in (WORKS, BIBLIOGRAPHY, __file__):
                app.env.note_dependency(str(file))


def add_files(app, pagename, templatename, context, doctree) -> None:
    """Style both pages; the list gets its script."""
    if pagename in ("book/reading_list", "book/quick_reference"):
        app.add_css_file("reading_list.css", priority=900)
    if pagename == "book/reading_list":
        app.add_js_file("reading_list.js", defer="defer")


def setup(app) -> None:
    """Fill in pages as they are read."""
    app.connect("source-read", fill_in)
    app.connect("html-page-context", add_files)
