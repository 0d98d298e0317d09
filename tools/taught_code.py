"""Is the code a chapter teaches the code the package runs?

A cell tagged `same-as:allranks.module.name` defines `name`; its syntax tree, without docstrings, must be
that of `name` in the package; `same-as:allranks.module.Class.name` compares with a method. A cell may carry
several such tags, and a notebook several such cells.
"""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PREFIX = "same-as:"
DEFINITION = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def differences(notebook, root=ROOT):
    """Yield (cell id, what) for every tagged definition that is not the package's."""
    for cell in notebook.cells:
        for tag in cell.metadata.get("tags", []):
            if tag.startswith(PREFIX) and (what := _difference(cell.source, tag.removeprefix(PREFIX), root)):
                yield cell.id, what


def _difference(source, dotted_name, root):
    module, _, name = dotted_name.rpartition(".")
    path, classes = _module_path(module, root), []
    if path is None and module.rpartition(".")[2][:1].isupper():
        module, _, owner = module.rpartition(".")
        path, classes = _module_path(module, root), [owner]
    taught = _definition(source, name)
    if taught is None:
        return f"is tagged {PREFIX}{dotted_name} but does not define {name}"
    if path is None:
        return f"is tagged {PREFIX}{dotted_name}, but there is no module {module or '(none named)'}"
    packaged = _definition(path.read_text(encoding="utf-8"), *classes, name)
    if packaged is None:
        return f"is tagged {PREFIX}{dotted_name}, but {module} does not define {name}"
    if ast.dump(taught) != ast.dump(packaged):
        return f"teaches another {name} than {dotted_name}; make one equal to the other"
    return None


def _module_path(module, root):
    stem = root.joinpath(*module.split("."))
    return next(
        (path for path in (stem.with_suffix(".py"), stem / "__init__.py") if module and path.is_file()), None
    )


def _definition(source, *names):
    """What the last of `names` is in what those before it are; None if there is no such definition."""
    found = ast.parse(source)
    for name in names:
        nodes = [] if found is None else found.body
        found = next((node for node in nodes if isinstance(node, DEFINITION) and node.name == name), None)
    return found and _without_docstrings(found)


def _without_docstrings(tree):
    for node in ast.walk(tree):
        if isinstance(node, DEFINITION) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return tree
