"""What does a reader see first? The question: a page folds imports and the code of its opening picture."""

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
    """Put each cell that imports and shows nothing, and the code of an opening, into a box that one opens."""
    if app.builder.format != "html":
        return
    for cell in list(doctree.findall(lambda node: "cell_index" in getattr(node, "attributes", ()))):
        source = next(cell.findall(nodes.literal_block), None)
        if "tag_opening" in cell["classes"]:
            code = cell.pop(0)  # below its picture
            cell.extend([_opens("How this picture is drawn"), code, _closes()])
        elif source is not None and len(cell) == 1 and (name := summary(source.astext())):
            at = cell.parent.index(cell)
            cell.parent.insert(at + 1, _closes())
            cell.parent.insert(at, _opens(name))


def _opens(summary: str) -> nodes.raw:
    return nodes.raw("", f'<details class="ar-imports"><summary>{summary}</summary>\n', format="html")


def _closes() -> nodes.raw:
    return nodes.raw("", "</details>\n", format="html")


def setup(app) -> None:
    """Fold when a page is written."""
    app.connect("doctree-resolved", fold)
