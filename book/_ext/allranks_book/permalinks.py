"""Which address does one formula, table, output or published number have, and where does a reader get it?

An address is made of the cell's name, which a notebook keeps (tools/normal_form.py), and not of running
numbers of the page: `ranks.html#CELL-cell`, `#CELL-eq-1`, `#CELL-table-1`; on a page that is no notebook the
heading takes the cell's place. Headings, exercises, glossary entries and published numbers have ids already.
A small link beside each (`headerlink`, as for headings) shows the address; `permalinks.js` copies it. An
explorer has `#explorer-NAME` and its own *Copy link*, which holds the settings too.
"""

from __future__ import annotations

import html
import json
import re
from collections import Counter
from pathlib import Path

from docutils import nodes
from sphinx.util import logging

logger = logging.getLogger(__name__)
LINES_OF_A_CELL = 10_000  # myst-nb counts lines so: cell n of a notebook starts at (n + 1) · 10,000
CAPTION_LINK = re.compile(r'<a class="headerlink" href="#id\d+" title="Link to this image">[^<]*</a>')
KINDS = {nodes.math_block: ("eq", "formula"), nodes.table: ("table", "table")}


# ---- addresses ----


def cell_names(notebook: Path) -> list[str]:
    """The ids of a notebook's cells, in order."""
    return [cell["id"] for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]]


def place(node: nodes.Node, names: list[str]) -> str:
    """The name of the cell that holds a node; on a page without cells, the id of its section."""
    while node.parent is not None:
        if names and (node.line or 0) >= LINES_OF_A_CELL:
            return names[node.line // LINES_OF_A_CELL - 1]
        if not names and isinstance(node, nodes.section):
            return node["ids"][0]
        node = node.parent
    return "page"


def add_links(app, doctree, docname: str) -> None:
    """Give every displayed formula, table and code cell its id, and a link to it what has one to show."""
    if app.builder.format != "html":
        return
    source = Path(app.env.doc2path(docname))
    names = cell_names(source) if source.suffix == ".ipynb" else []
    counts = Counter()
    for kind, (suffix, words) in KINDS.items():
        for node in list(doctree.findall(kind)):
            name = f"{place(node, names)}-{suffix}"
            counts[name] += 1
            wrap(node, f"{name}-{counts[name]}", words)
    for cell in doctree.findall(lambda node: isinstance(node, nodes.container) and "cell_index" in node):
        anchor = f"{names[cell['cell_index']]}-cell"
        cell["ids"].append(anchor)
        outputs = [part for part in cell if part.get("nb_element") == "cell_code_output"]
        if outputs and "ar-explorer" not in outputs[0].astext():
            outputs[0].insert(0, link(anchor, "output"))
            outputs[0]["classes"].append("ar-linkable")


def wrap(node: nodes.Element, anchor: str, words: str) -> None:
    """Put `node` into a box that has the id and the link."""
    box = nodes.container(ids=[anchor], classes=["ar-linkable"])
    node.replace_self(box)
    box += [link(anchor, words), node]


def link(anchor: str, words: str) -> nodes.raw:
    """The link to a place of this page."""
    return nodes.raw("", link_html(anchor, words) + "\n", format="html")


def link_html(anchor: str, words: str) -> str:
    """The link as HTML, looking and named like that of a heading."""
    title = f"Link to this {words}"
    return f'<a class="headerlink" href="#{html.escape(anchor)}" title="{title}">#</a>'


def check_ids(app, pagename: str, templatename: str, context: dict, doctree) -> None:
    """Warn where an address of ours is the id of two places: its link would lead to the first of them."""
    ours = set(re.findall(r'href="#([^"]+)" title="Link to this', context.get("body", "")))
    for name, count in Counter(re.findall(r"""\bid=["']([^"']+)""", context.get("body", ""))).items():
        if count > 1 and name in ours:
            logger.warning("%s: two places have the id %r; rename the cell or the heading", pagename, name)


def one_link_an_output(app, pagename: str, templatename: str, context: dict, doctree) -> None:
    """Take Sphinx's own link from each caption: its number changes, and the output has ours."""
    context["body"] = CAPTION_LINK.sub("", context.get("body", ""))


def setup(app) -> None:
    """Add ids and links when a page is written."""
    app.connect("doctree-resolved", add_links)
    app.connect("html-page-context", one_link_an_output)
    app.connect("html-page-context", check_ids, priority=600)
    app.add_css_file("permalinks.css", priority=900)
    app.add_js_file("permalinks.js", defer="defer")
