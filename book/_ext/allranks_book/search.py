"""What does the search page search? Every section of every page, as a reader sees its words.

Sphinx's own index cuts `all-reduce` at the hyphen, takes ZeRO for zero, leaves formulas as TeX and shows no
excerpt from a disk. This one is the text itself, by page and section: prose with formulas written in one
line, and the names in the code; what the code printed and solutions stay out. `search.js` reads through all
of it at each key, which takes milliseconds at this size, so nothing is stemmed and no library keeps an index.
(MiniSearch 7.2, tried on these sections: of the fifteen queries of test_search.py it answers eleven, with a
tokenizer of ours fourteen, for 86 kB of script and an index 40 % larger. Pagefind needs a server: its #202.)
"""

from __future__ import annotations

import html
import json
import re
from functools import cache
from pathlib import Path

from docutils import nodes
from sphinx import addnodes

from allranks_book.reading import citations

GREEK = {"alpha": "α", "beta": "β", "gamma": "γ", "Psi": "Ψ", "lambda": "λ", "sigma": "σ", "pi": "π"}
SIGNS = {"cdot": "·", "times": "×", "le": "≤", "leq": "≤", "ge": "≥", "geq": "≥", "ne": "≠", "approx": "≈"}
FUNCTIONS = {"log", "lg", "ln", "max", "min", "exp", "sum", "sqrt", "softmax"}
FRACTION = re.compile(r"\\[dt]?frac\s*(?:\{([^{}]*)\}|(\d))\s*(?:\{([^{}]*)\}|(\d))")
NO_WORDS = re.compile(r"<(script|svg|style|form)\b.*?</\1>|<[^>]+>", re.DOTALL)
NAME = re.compile(r"[A-Za-z_][\w.]{3,}")
ENTRY = re.compile(r"<tr id='([^']+)'[^>]*><td>(.*?)(?=<tr|</table)", re.DOTALL)
LEFT_OUT = (nodes.Text, nodes.comment, nodes.meta, nodes.system_message, nodes.target)


# ---- words ----


def in_one_line(latex: str) -> str:
    r"""A formula as one would type it: `2\frac{p-1}{p}` is `2(p-1)/p`."""
    text = latex.replace(r"\left", "").replace(r"\right", "")
    while (shorter := FRACTION.sub(fraction, text)) != text:
        text = shorter
    text = re.sub(r"\\([A-Za-z]+)", named, text)
    text = re.sub(r"\\.|[{}~&]", " ", text)
    return re.sub(r"\s*([-+*/=()·×^_,])\s*", r"\1", " ".join(text.split()))


def named(command: re.Match) -> str:
    """What a command of TeX stands for; layout stands for nothing."""
    name = command[1]
    return GREEK.get(name) or SIGNS.get(name) or (name if name in FUNCTIONS else " ")


def fraction(found: re.Match) -> str:
    """One fraction with a slash, and brackets around what has more than one part."""
    over, under = found[1] or found[2], found[3] or found[4]
    return "/".join(part if re.fullmatch(r"\\?\w+", part) else f"({part})" for part in (over, under))


def words(node: nodes.Node) -> str:
    """The text of a paragraph or title, with its formulas in one line."""
    if isinstance(node, nodes.math):
        return in_one_line(node.astext())
    if isinstance(node, nodes.raw):
        return ""
    if isinstance(node, nodes.Text):
        return str(node)
    if isinstance(node, addnodes.pending_xref) and node.get("refdomain") == "cite":
        return ", ".join(map(cited, node["reftarget"].split(",")))
    return "".join(map(words, node.children))


def cited(key: str) -> str:
    """Who and when, as a citation on the page says it."""
    work = known_works()[re.sub(r"\{[^}]*\}", "", key).strip()]  # without `{§ 3.1}`, the place in the work
    return f"{work['who']} {work['year'] or ''}".strip()


@cache
def known_works() -> dict[str, dict]:
    """The bibliography, read once."""
    return citations()


def plain(markup: str) -> str:
    """The words of HTML."""
    return html.unescape(NO_WORDS.sub(" ", markup))


# ---- sections ----


class Section:
    """One place that a result can lead to: its anchor and heading, its prose and the names in its code."""

    def __init__(self, anchor: str, heading: str):
        self.anchor, self.heading = anchor, heading
        self.prose: list[str] = []
        self.code: list[str] = []

    def stored(self) -> list[str]:
        """What the index holds of it."""
        prose = (" ".join(text.split()) for text in self.prose)
        names = dict.fromkeys(name for code in self.code for name in NAME.findall(code))
        return [self.anchor, self.heading, " ".join(filter(None, prose)), " ".join(names)]


def sections(doctree: nodes.document) -> list[Section]:
    """The sections of a page in order; each term, symbol and published number is a section of its own."""
    found = [Section("", "")]
    for child in doctree.children:
        read(child, found)
    return found


def read(node: nodes.Element, found: list[Section]) -> None:
    """Add what a node says to the last section found, or begin the next one."""
    if isinstance(node, nodes.section) and node["names"]:
        found.append(Section(node["ids"][0], ""))
        for child in node.children:
            read(child, found)
    elif isinstance(node, nodes.title) and isinstance(node.parent, nodes.section):
        found[-1].heading = found[-1].heading or words(node)
    elif isinstance(node, nodes.term) and any(name.startswith("term-") for name in node["ids"]):
        found.append(Section(node["ids"][0], words(node)))
    elif isinstance(node, nodes.row) and node.children[0].astext().startswith("\\"):
        symbol, *meaning = map(words, node.children)
        found.append(Section(found[-1].anchor, symbol))
        found[-1].prose.append(": ".join(filter(None, meaning)))
    elif isinstance(node, nodes.literal_block):
        if "output" not in node["classes"]:
            found[-1].code.append(node.astext())
    elif isinstance(node, nodes.raw):
        entries = ENTRY.findall(node.astext())
        for anchor, row in entries:
            found.append(Section(anchor, ""))
            found[-1].prose.append(plain(row.replace("<td>", " · ")))
        if not entries:
            found[-1].prose.append(plain(node.astext()))
    elif isinstance(node, nodes.image):
        found[-1].prose.append(node.get("alt", ""))
    elif isinstance(node, nodes.math_block):
        found[-1].prose.append(in_one_line(node.astext()))
    elif isinstance(node, (nodes.paragraph, nodes.term)):
        found[-1].prose.append(words(node))
    elif not (isinstance(node, LEFT_OUT) or {"instructor", "solution"} & set(node.get("classes", ()))):
        for child in node.children:
            read(child, found)


# ---- the index ----


def kind(docname: str) -> str:
    """What sort of page it is, which the order of results respects."""
    if docname.startswith("notebooks/labs/"):
        return "solved" if docname.endswith("_solved") else "lab"
    if docname.startswith("notebooks/") and not docname.startswith("notebooks/reference/"):
        return "chapter"
    return docname.rpartition("/")[2]


def write_index(app, exception) -> None:
    """Write the text of the whole book as one script, which the search page loads with the first word."""
    if exception or app.builder.format != "html":
        return
    pages = []
    for docname in sorted(app.env.found_docs):
        stored = [section.stored() for section in sections(app.env.get_doctree(docname))]
        title = app.env.titles[docname].astext()
        url = app.builder.get_target_uri(docname)
        pages.append([url, title, kind(docname), [section for section in stored if any(section)]])
    script = f"window.allRanksIndex={json.dumps(pages, ensure_ascii=False, separators=(',', ':'))};\n"
    Path(app.outdir, "searchindex.js").write_text(script, encoding="utf-8")


def use_own_search(app) -> None:
    """Leave Sphinx's index out of an HTML build."""
    if app.builder.format == "html":
        app.builder.search = False


def search_page(app):
    """The page `search.html`, from our template."""
    yield "search", {}, "search.html"


def setup(app) -> None:
    """Put our page and index in the place of Sphinx's."""
    app.connect("builder-inited", use_own_search)
    app.connect("html-collect-pages", search_page)
    app.connect("build-finished", write_index)
