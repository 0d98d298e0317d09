"""What does the first page show? An explorer, the map of the book, and the list of its pages.

A page without a notebook gets an explorer where it has the comment `<!-- explorer: name {settings} -->`; the
settings are JSON, and "in sight" in them names the controls that are not folded away. `<!-- map -->` becomes
the map and `<!-- contents -->` the list, both made from `_toc.yml`, `book/map.yaml` and the pages.
"""

from __future__ import annotations

import json
import os
import re

from allranks import explorers

from . import chapter_map, contents
from .explorers import SCRIPTS, figure_html

EXPLORER = re.compile(r"<!-- explorer: (\w+) ({.*?}) -->")
MAP, LIST = "<!-- map -->", "<!-- contents -->"


def fill_in(app, docname: str, source: list[str]) -> None:
    """Put explorers, map and list where a page asks for them."""
    text = source[0]
    if EXPLORER.search(text):
        app.env.metadata[docname]["explorers"] = True
        text = EXPLORER.sub(lambda found: explorer_html(found[1], json.loads(found[2])), text)
    for comment, made in ((MAP, map_html), (LIST, list_markdown)):
        if comment in text:
            text = text.replace(comment, made(docname))
            for page in (each for pages in contents.parts().values() for each in pages):
                app.env.note_dependency(str(contents.source(page.name)))
            app.env.note_dependency(str(contents.MAP))
            app.env.note_dependency(str(contents.CONTENTS))
    source[0] = text


def explorer_html(name: str, given: dict) -> str:
    """The explorer `name` at the settings `given`; it loads its Python when it is touched."""
    in_sight = given.pop("in sight", None)
    picture = explorers.draw(name, given)["svg"]
    return f"```{{raw}} html\n{figure_html(name, given, picture, in_sight)}\n```"


def map_html(docname: str) -> str:
    """The map, once for a page and once for a phone."""
    pages = [page for pages in contents.parts().values() for page in pages if page.at]
    start = os.path.dirname(docname)
    drawn = "".join(
        chapter_map.drawing(
            pages, contents.cuts(), columns, width, lambda page: f"{os.path.relpath(page.name, start)}.html"
        )
        for columns, width in ((6, 720), (2, 360))
    )
    return f'```{{raw}} html\n<nav class="ar-map" aria-label="Map of the book">{drawn}</nav>\n```'


def list_markdown(docname: str) -> str:
    """Every page of every part with what it shows."""
    start = os.path.dirname(docname)
    blocks = []
    for caption, pages in contents.parts().items():
        rows = []
        for page in pages:
            place = os.path.relpath(contents.source(page.name).relative_to(contents.ROOT), start)
            solved = "".join(
                f" [Solved]({os.path.relpath(contents.source(each).relative_to(contents.ROOT), start)})."
                for each in page.sections
            )
            rows.append(f"[{page.title}]({place})\n: {page.shows}{solved}")
        blocks.append(f"**{caption}**\n\n{{.ar-pages}}\n" + "\n\n".join(rows))
    return "\n\n".join(blocks)


def add_files(app, pagename, templatename, context, doctree) -> None:
    """Style the first page; a page with an explorer gets its script."""
    if pagename == app.config.root_doc:
        app.add_css_file("landing.css", priority=900)
    if app.env.metadata[pagename].get("explorers"):
        for script in SCRIPTS:
            app.add_js_file(script, defer="defer")


def setup(app) -> None:
    """Fill in pages as they are read."""
    app.add_css_file("print.css", priority=890)
    app.connect("source-read", fill_in)
    app.connect("html-page-context", add_files)
