"""The answers of a solved lab: what its notebook defines, without running its checks."""

import ast
import linecache
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parent.parent
DEFINITIONS = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)


def answers(slug):
    """Return what the cells of `notebooks/labs/<slug>_solved.ipynb` define: a dictionary of names.

    Imports, functions, classes, and settings (names in capital letters). `inspect` finds their sources.
    """
    notebook = nbformat.read(ROOT / "notebooks" / "labs" / f"{slug}_solved.ipynb", as_version=4)
    names = {"__name__": "__main__"}  # so that functions travel to ranks by value
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        tree = ast.parse(cell.source)
        tree.body = [node for node in tree.body if isinstance(node, DEFINITIONS) or _is_setting(node)]
        name = f"<{slug}, {cell.id}>"
        linecache.cache[name] = len(cell.source), None, cell.source.splitlines(keepends=True), name
        exec(compile(tree, name, "exec"), names)
    return names


def _is_setting(node):
    return isinstance(node, ast.Assign) and all(
        isinstance(target, ast.Name) and target.id.isupper() for target in node.targets
    )
