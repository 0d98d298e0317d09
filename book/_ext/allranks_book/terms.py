"""Where does a word of the glossary stand in a chapter, and how does its entry get beside it?

The first use of each term in the running text of a chapter becomes a link to its entry, as `{term}` would
make it; `terms.js` shows the entry at the link, and a citation's entry in the bibliography the same way.
Headings, code, formulas, tables and links stay as they are, and so does a term that the page has set in bold
before: there the page itself defines it. The entries are the pages' own, collected in one script,
`_static/cards.js`, which a page loads when a reader first points at such a link.

A comment above a term in `glossary.md` says which words lead to it, beside the term and its plural:
`.. also: shard, sharded` adds some, `.. only: pipeline stage` replaces them, `.. only:` means none.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.util import logging

logger = logging.getLogger(__name__)
BOOK = Path(__file__).resolve().parents[2]
GLOSSARY = BOOK / "glossary.md"
CHAPTERS = re.compile(r"notebooks/(?!reference/)")
RULE = re.compile(r"\.\. (also|only):(.*)")
LEFT_ALONE = (
    addnodes.pending_xref,
    nodes.FixedTextElement,
    nodes.emphasis,
    nodes.image,
    nodes.literal,
    nodes.math,
    nodes.math_block,
    nodes.raw,
    nodes.reference,
    nodes.table,
    nodes.title,
)
SET_APART = {"instructor", "solution", "cell", "bibtex-citation"}
DEFINITION = re.compile(
    r'<dt id="(term-[^"]+)">(.*?)<a class="headerlink".*?</dt>\s*<dd>(.*?)</dd>', re.DOTALL
)
CITED = re.compile(r'<div class="citation" id="([^"]+)".*?</span>\s*<p>(.*?)</p>\s*</div>', re.DOTALL)


# ---- the words that lead to a term ----


def forms(glossary: str) -> dict[str, str]:
    """Each word or phrase that leads to a term → the term, as the comments of the glossary's source say."""
    listed = glossary.partition(":::{glossary}")[2].partition("\n:::")[0]
    found, rule, given = {}, "", []
    for line in listed.splitlines():
        if asked := RULE.match(line):
            rule, given = asked[1], [form.strip() for form in asked[2].split(",") if form.strip()]
        elif line and not line[0].isspace():
            own = [] if rule == "only" else [line.strip(), plural(line.strip())]
            found.update(dict.fromkeys([*own, *given], line.strip()))
            rule, given = "", []
    return found


def plural(term: str) -> str:
    """The plural as English makes it of the last word."""
    if re.search(r"(s|x|z|ch|sh)$", term):
        return f"{term}es"
    return f"{term[:-1]}ies" if re.search(r"[^aeiou]y$", term) else f"{term}s"


def pattern(words: dict[str, str]) -> re.Pattern:
    """Finds whole words only, the longest first; a small letter at the start may be a capital."""
    alternatives = []
    for form in sorted(words, key=len, reverse=True):
        first = f"[{form[0]}{form[0].upper()}]" if form[0].islower() else re.escape(form[0])
        alternatives.append(first + re.escape(form[1:]).replace(r"\ ", r"\s+"))
    return re.compile(rf"(?<![\w./=–-])(?:{'|'.join(alternatives)})(?![\w=–-]|\.\w)")


def term_of(found: str, words: dict[str, str]) -> str:
    """The term that a found word leads to."""
    form = " ".join(found.split())
    return words.get(form) or words[form[0].lower() + form[1:]]


# ---- marks in the text ----


def mark(app, doctree) -> None:
    """Make the first use of each term in a chapter a link to the glossary."""
    docname = app.env.docname
    if not CHAPTERS.match(docname):
        return
    app.env.note_dependency(str(GLOSSARY))
    words = forms(GLOSSARY.read_text(encoding="utf-8"))
    marked(doctree, words, pattern(words), docname, set())


def marked(node: nodes.Element, words: dict, finder: re.Pattern, docname: str, seen: set[str]) -> None:
    """Go through a node in reading order; `seen` holds the terms that need no further mark."""
    for child in list(node.children):
        if isinstance(child, addnodes.pending_xref) and child.get("reftype") == "term":
            seen.add(child["reftarget"])
        elif isinstance(child, nodes.strong):
            seen.update(term_of(found, words) for found in finder.findall(child.astext()))
        elif isinstance(child, nodes.Text):
            parts = list(with_links(str(child), words, finder, docname, seen))
            if len(parts) > 1:
                node.replace(child, parts)
        elif not isinstance(child, LEFT_ALONE) and not SET_APART & set(child.get("classes", ())):
            marked(child, words, finder, docname, seen)


def with_links(text: str, words: dict, finder: re.Pattern, docname: str, seen: set[str]):
    """The text in pieces: what stays, and a link for each term that is not in `seen` yet."""
    start = 0
    for found in finder.finditer(text):
        term = term_of(found[0], words)
        if term not in seen:
            seen.add(term)
            yield nodes.Text(text[start : found.start()])
            yield link(found[0], term, docname)
            start = found.end()
    yield nodes.Text(text[start:])


def link(shown: str, term: str, docname: str) -> addnodes.pending_xref:
    """What `{term}` makes: Sphinx resolves it when it writes the page."""
    about = {"refdomain": "std", "reftype": "term", "reftarget": term, "refexplicit": True, "refwarn": True}
    return addnodes.pending_xref(
        "", nodes.inline("", shown, classes=["xref", "std", "std-term"]), refdoc=docname, **about
    )


# ---- the entries ----


def cards(glossary: str, bibliography: str) -> dict[str, str]:
    """Page and fragment of each entry → what its card shows, taken from the finished pages."""
    found = {}
    for anchor, term, text in DEFINITION.findall(glossary):
        found[f"glossary.html#{anchor}"] = f"<b>{term}</b> {text.strip()}"
    for anchor, text in CITED.findall(bibliography):
        found[f"bibliography.html#{anchor}"] = text.strip()
    return found


def write_cards(app, exception) -> None:
    """Write the script with all entries, once both pages are finished."""
    if exception or app.builder.format != "html":
        return
    pages = [Path(app.outdir, "book", f"{page}.html") for page in ("glossary", "bibliography")]
    found = cards(*(page.read_text(encoding="utf-8") for page in pages))
    if not (any(key.startswith("glossary") for key in found) and any("#id" in key for key in found)):
        logger.warning("the glossary or the bibliography has no entries, has its HTML changed?")
    script = f"window.allRanksCards={json.dumps(found, ensure_ascii=False, separators=(',', ':'))};\n"
    Path(app.outdir, "_static", "cards.js").write_text(script, encoding="utf-8")


def setup(app) -> None:
    """Mark terms when a page is read, and collect the entries when all pages are written."""
    app.connect("doctree-read", mark)
    app.connect("build-finished", write_cards, priority=950)
    app.add_css_file("terms.css", priority=900)
    app.add_js_file("terms.js", defer="defer")
