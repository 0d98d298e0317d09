"""Answers to a lab: what its solved notebook defines, and those that are wrong for every task.

That the solved answers are right, one by one and at the milestone, nbval shows with the solved notebooks.
"""

import ast
import linecache
import os
import sys
import time
from pathlib import Path

import cloudpickle
import nbformat

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # ranks need not import this file
ROOT = Path(__file__).resolve().parents[2]
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


def nothing(*_, **__):
    pass


def crash(*_, **__):
    raise KeyError("no")


def leave(*_, **__):
    os._exit(0)


def hang(*_, **__):
    time.sleep(60)


def give_back(*given, **__):
    return given[0] if given else None


def wrong(tasks, *others):
    """Pairs (task, answer): what does nothing, or nothing useful, for every task; what never runs for one."""
    first, *rest = tasks
    everywhere = [nothing, give_back, *others]
    pairs = [(first, answer) for answer in [None, ..., 3, crash, leave, *everywhere]]
    return pairs + [(task, answer) for task in rest for answer in everywhere]
