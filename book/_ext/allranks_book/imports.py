"""What does a reader see first? The question: a page folds the list of imports, the notebook shows it."""

from __future__ import annotations

import ast

from docutils import nodes

OPENS = '<details class="ar-imports"><summary>Imports</summary>\n'


def only_imports(source: str) -> bool:
    """Whether a cell's source imports, and does nothing else."""
    try:
        statements = ast.parse(source).body
    except SyntaxError:  # a magic, or an error that is the lesson
        return False
    return bool(statements) and all(isinstance(one, ast.Import | ast.ImportFrom) for one in statements)


def fold(app, doctree, docname: str) -> None:
    """Put each cell that only imports into a box that its reader opens."""
    if app.builder.format != "html":
        return
    for cell in list(doctree.findall(lambda node: "cell_index" in getattr(node, "attributes", ()))):
        source = next(cell.findall(nodes.literal_block), None)
        if source is not None and len(cell) == 1 and only_imports(source.astext()):
            at = cell.parent.index(cell)
            cell.parent.insert(at + 1, nodes.raw("", "</details>\n", format="html"))
            cell.parent.insert(at, nodes.raw("", OPENS, format="html"))


def setup(app) -> None:
    """Fold when a page is written."""
    app.connect("doctree-resolved", fold)
