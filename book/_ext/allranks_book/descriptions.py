"""What does a search engine or a shared link say about a page?

A page may say it itself (`myst: html_meta: description`).
Otherwise it is the page's first paragraph that holds no formula.
"""

from __future__ import annotations

import html

from docutils import nodes

LONGEST = 200


def described(doctree) -> str:
    """The first paragraph of at least 40 characters that holds no formula, cut at a word; may be empty."""
    for paragraph in doctree.findall(nodes.paragraph):
        text = " ".join(paragraph.astext().split())
        if len(text) >= 40 and not any(paragraph.findall(nodes.math)):
            return text if len(text) <= LONGEST else text[:LONGEST].rsplit(" ", 1)[0] + " …"
    return ""


def add_description(app, pagename, templatename, context, doctree) -> None:
    """Give a page that does not describe itself a description."""
    metatags = context.get("metatags", "")
    if doctree is None or 'name="description"' in metatags:
        return
    if text := described(doctree):
        context["metatags"] = f'{metatags}\n<meta name="description" content="{html.escape(text)}" />'


def setup(app) -> None:
    """Describe each page when its template is filled in."""
    app.connect("html-page-context", add_description)
