"""What does a reader see first? The question: a page folds the list of imports, the notebook shows it."""

from __future__ import annotations

import ast

from docutils import nodes

DEFINES = ast.FunctionDef | ast.ClassDef


def summary(source: str) -> str | None:
    """What a folded cell is called; None for one that does not begin with imports, or defines something."""
    try:
        statements = ast.parse(source).body
    except SyntaxError:  # a magic, or an error that is the lesson
        return None
    imports = [one for one in statements if isinstance(one, ast.Import | ast.ImportFrom)]
    if statements[: len(imports)] != imports or not imports:
        return None
    others = statements[len(imports) :]
    if any(isinstance(one, DEFINES) for one in others) or len(others) > len(imports):
        return None
    return "Imports and settings" if others else "Imports"


def fold(app, doctree, docname: str) -> None:
    """Put each cell that imports, and shows nothing, into a box that its reader opens."""
    if app.builder.format != "html":
        return
    for cell in list(doctree.findall(lambda node: "cell_index" in getattr(node, "attributes", ()))):
        source = next(cell.findall(nodes.literal_block), None)
        if source is not None and len(cell) == 1 and (name := summary(source.astext())):
            opens = f'<details class="ar-imports"><summary>{name}</summary>\n'
            at = cell.parent.index(cell)
            cell.parent.insert(at + 1, nodes.raw("", "</details>\n", format="html"))
            cell.parent.insert(at, nodes.raw("", opens, format="html"))


def setup(app) -> None:
    """Fold when a page is written."""
    app.connect("doctree-resolved", fold)
