"""What does a page open with? Its question, a picture, and then the claim: the picture moves up before it.

In the notebook the imports stand between them. The code of such a picture is folded (the tag hide-input).
"""

from __future__ import annotations

from docutils import nodes


def lead(app, doctree, docname: str) -> None:
    """Put the first folded cell of a page, if it stands before the first heading, before the claim."""
    if app.builder.format != "html":
        return
    for claim in doctree.findall(lambda node: "claim" in getattr(node, "attributes", {}).get("classes", ())):
        page = claim.parent
        for cell in page.children[page.index(claim) :]:
            if isinstance(cell, nodes.section):
                return
            if "tag_hide-input" in cell.get("classes", ()):
                page.remove(cell)
                page.insert(page.index(claim), cell)
                return


def setup(app) -> None:
    """Move when a page is written."""
    app.connect("doctree-resolved", lead)
