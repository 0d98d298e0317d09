"""Which sections may a reader leave out? Those named *Deeper*: a page folds them below their title."""

from __future__ import annotations

from docutils import nodes

OPENS = '<details class="ar-deeper"><summary>Show this section</summary>\n'


def fold(app, doctree, docname: str) -> None:
    """Put what stands below a title "Deeper: …" into a box that its reader opens.

    A section with a lecturer's note stays open: it is on the way that a lecture takes.
    """
    if app.builder.format != "html":
        return
    for section in list(doctree.findall(nodes.section)):
        at = section.first_child_matching_class(nodes.title)
        notes = any("instructor" in box["classes"] for box in section.findall(nodes.Admonition))
        if at is not None and section[at].astext().startswith("Deeper") and not notes:
            section.insert(at + 1, nodes.raw("", OPENS, format="html"))
            section.append(nodes.raw("", "</details>\n", format="html"))


def setup(app) -> None:
    """Fold when a page is written."""
    app.connect("doctree-resolved", fold)
