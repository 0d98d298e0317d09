"""What of a handed-in notebook is graded? Its definitions; nothing here runs a line of it, or needs torch.

Imports, functions, classes and constants at the top level of the code cells count. Demonstrations, calls of
checks, magics and stored outputs do not.
"""

import ast
import hashlib
import json
import re
import threading
from pathlib import Path

import allranks

MOST_BYTES = 20_000_000  # of a notebook, outputs included; a lab has 0.1 MB
MOST_CODE = 500_000  # letters in code cells; the longest lab has 9,000
DEFINITIONS = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
CONSTANT = (
    ast.Constant, ast.Tuple, ast.List, ast.Set, ast.Dict, ast.Name, ast.Attribute, ast.UnaryOp, ast.unaryop,
    ast.BinOp, ast.operator, ast.expr_context,
)  # fmt: skip
CHECK = re.compile(r"(?:\w+\.)*(lab_\d\d)\.(\w+)")
PARSING = threading.Lock()  # CPython counts how deep the trees of all threads are in one number
UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)


class NotGradable(Exception):
    """A file that is not a submission of one lab; the message says why, and what to do."""


def labs():
    """The names of the labs that this version can grade: `["lab_01", …]`."""
    folder = Path(allranks.__file__).parent / "check"
    return sorted(path.name for path in folder.glob("lab_[0-9][0-9]"))


def read(path):
    """Return a submission: `{"lab", "cells", "calls", "notes", "sha256"}`, or raise NotGradable.

    `cells` lists (number, source) of the code cells that can be parsed. `calls` has for each check the names
    of the functions that the notebook's last call gives to it; None for what is not a name.
    """
    content = _content(path)
    cells, notes, calls, groups = [], [], {}, {}
    for number, source in _sources(content):
        try:
            tree, source = parsed(source)
        except UNREADABLE as error:
            notes.append(f"code cell {number} was left out: {type(error).__name__}: {error}")
            continue
        cells.append((number, source))
        groups |= _groups(tree)
        for lab, check, names in _calls(tree, groups):
            calls.setdefault(lab, {})[check] = names
    if len(calls) > 1:
        raise NotGradable(f"has checks of {' and '.join(sorted(calls))}: hand in one notebook for each lab")
    if not calls:
        why = f" ({'; '.join(notes)})" if notes else ""
        raise NotGradable(f"is not a lab: no code cell calls check.lab_…; hand in the lab's notebook{why}")
    lab = next(iter(calls))
    if lab not in labs():
        raise NotGradable(f"calls checks of {lab}; this version of allranks has {', '.join(labs())}")
    digest = hashlib.sha256(content).hexdigest()
    return {"lab": lab, "cells": cells, "calls": calls[lab], "notes": notes, "sha256": digest}


def parsed(source):
    """Return the syntax tree of a code cell, and the cell without magics: `%…`, `!…`, or all if `%%…`."""
    if source.lstrip().startswith("%%"):
        source = ""
    with PARSING:
        try:
            return ast.parse(source), source
        except SyntaxError:
            lines = ["" if re.match(r"\s*[%!?]", line) else line for line in source.split("\n")]
            source = "\n".join(lines)
            return ast.parse(source), source


def definitions(tree):
    """The statements of a cell that define something, and call nothing at the top level."""
    return [node for node in tree.body if isinstance(node, DEFINITIONS) or _is_constant(node)]


def needed(statements, wanted):
    """The set of those `statements` (definitions) that the name `wanted` needs, directly or through others.

    All of them, if code looks names up by text.
    """
    binds = {node: _bound(node) for node in statements}
    uses = {node: {part.id for part in ast.walk(node) if isinstance(part, ast.Name)} for node in statements}
    if any(uses[node] & {"globals", "eval", "exec", "vars"} for node in statements):
        return set(statements)
    found, names = set(), {wanted, "*"}
    while more := {node for node in statements if binds[node] & names} - found:
        found |= more
        names |= set().union(*(uses[node] for node in more))
    return found


def _bound(node):
    """The names that a definition binds; `*` for those that nobody can list."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    if isinstance(node, ast.Assign | ast.AnnAssign):
        return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    return {node.name}


def without_outputs(path):
    """The notebook's bytes without outputs and execution counts: what a student hands in."""
    notebook = json.loads(_content(path))
    for cell in notebook["cells"]:
        if isinstance(cell, dict) and cell.get("cell_type") == "code":
            cell |= {"outputs": [], "execution_count": None}
    return json.dumps(notebook, ensure_ascii=False, indent=1).encode("utf-8", "replace") + b"\n"


def _content(path):
    path = Path(path)
    if not path.is_file():
        raise NotGradable("is not a file: give a notebook, or a folder of notebooks")
    if path.stat().st_size > MOST_BYTES:
        megabytes = path.stat().st_size / 1e6
        raise NotGradable(
            f"has {megabytes:.0f} MB, at most {MOST_BYTES // 10**6} are read: clear its outputs"
        )
    return path.read_bytes()


def _sources(content):
    """(number, source) of each code cell; numbers begin at 1."""
    if not content.strip():
        raise NotGradable("is empty: 0 bytes of notebook")
    try:
        notebook = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise NotGradable(f"is not a notebook: it is not JSON ({type(error).__name__})") from None
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list):
        raise NotGradable("is not a notebook of format 4: it has no list of cells; save it again in Jupyter")
    code = [cell for cell in cells if isinstance(cell, dict) and cell.get("cell_type") == "code"]
    sources = [cell.get("source", "") for cell in code]
    texts = ["".join(map(str, source)) if isinstance(source, list) else str(source) for source in sources]
    if sum(map(len, texts)) > MOST_CODE:
        raise NotGradable(f"has {sum(map(len, texts)):,} characters of code; at most {MOST_CODE:,} are read")
    return list(enumerate(texts, 1))


def _is_constant(node):
    if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
        return False
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    names = [name for target in targets for name in getattr(target, "elts", [target])]
    value = [] if isinstance(node.value, ast.Lambda) else ast.walk(node.value)
    return all(isinstance(name, ast.Name) for name in names) and all(isinstance(p, CONSTANT) for p in value)


def _groups(tree):
    """Names given to several functions at once, as in `parts = save, load`."""
    return {
        target.id: [getattr(element, "id", None) for element in node.value.elts]
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple | ast.List)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _calls(tree, groups):
    """(lab, check, names) of each call such as `check.lab_02.loader(make_loader, in_epoch)`."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        found = CHECK.fullmatch(_dotted(node.func))
        if found:
            names = []
            for argument in node.args:
                if isinstance(argument, ast.Starred):
                    names += groups.get(getattr(argument.value, "id", None), [None])
                else:
                    names.append(getattr(argument, "id", None))
            yield *found.groups(), names


def _dotted(node):
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join(reversed([*parts, getattr(node, "id", "")])).lstrip(".")
