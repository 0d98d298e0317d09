"""Which program is a cell? The cell, and before it what earlier cells define of the names that it uses.

A page without a kernel has no names from earlier cells: its reader sees, edits and runs the whole program.
Of an exercise, the program also has the helpers that its text names, as in "look at it with `try_out`".
"""

from __future__ import annotations

import ast
import json
import re
import symtable
from collections import namedtuple
from itertools import pairwise
from pathlib import Path

TAG = "run-in-page"
GIVEN = {"torch", "dist", "launch", "check", "collectives", "trace"}  # every program of a page has these

Program = namedtuple("Program", "name source is_whole stops")
Program.__doc__ = """name: the cell's id. is_whole: the cell alone, without other definitions than imports.

stops: the cell ends with an error, which is its lesson.
"""


def programs(notebook: Path) -> dict[int, Program]:
    """The programs of the tagged cells of a notebook, by the number of the cell."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    tagged = {i for i, cell in enumerate(cells) if TAG in cell["metadata"].get("tags", [])}
    return {i: program(cells, i) for i in tagged}


def program(cells: list[dict], index: int) -> Program:
    """The program of the cell at `index`, tagged or not."""
    own = "".join(cells[index]["source"])
    needed, taken, is_whole = free(own) | told_of(cells[:index]), [], True
    earlier = [(i, each) for i, each in enumerate(cells[:index]) if each["cell_type"] == "code"]
    for i, each in reversed(earlier):
        source = "".join(each["source"])
        for node in reversed(ast.parse(source).body):
            made = defined(node) & needed
            if made:
                is_import = isinstance(node, (ast.Import, ast.ImportFrom))
                text = narrowed(node, made) if is_import else segment(source, node)
                needed = (needed - made) | free(text)
                taken.append(((i, node.lineno), text))
                is_whole &= is_import
    parts = [text for _, text in sorted(taken)]
    source = parts[0] if parts else ""
    for before, part in pairwise(parts):
        both = part.startswith(("def ", "class ", "@")) or before.startswith(("def ", "class ", "@"))
        source += ("\n\n\n" if both else "\n") + part
    source = f"{source}\n\n\n{own}" if parts else own
    stops = "raises-exception" in cells[index]["metadata"].get("tags", [])
    return Program(cells[index]["id"], source, is_whole, stops)


def told_of(cells: list[dict]) -> set[str]:
    """The names in `code` of the exercise whose text is the last of these cells."""
    text = "".join(cells[-1]["source"]) if cells and cells[-1]["cell_type"] == "markdown" else ""
    return (
        set(re.findall(r"`(\w+)`", text.rpartition("{exercise-start}")[2]))
        if "{exercise-start}" in text
        else set()
    )


def defined(node: ast.stmt) -> set[str]:
    """The names that a definition, an import or an assignment gives the cells below; not those in GIVEN."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return {node.name}
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return {(alias.asname or alias.name).split(".")[0] for alias in node.names} - GIVEN
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        names = (each for each in ast.walk(node) if isinstance(each, ast.Name))
        return {each.id for each in names if isinstance(each.ctx, ast.Store)}
    return set()


def narrowed(node: ast.Import | ast.ImportFrom, wanted: set[str]) -> str:
    """An import, of these names only: a page lacks much of what the rest of a chapter imports."""
    names = [alias for alias in node.names if (alias.asname or alias.name).split(".")[0] in wanted]
    if isinstance(node, ast.Import):
        return ast.unparse(ast.Import(names))
    return ast.unparse(ast.ImportFrom(node.module, names, node.level))


def free(source: str) -> set[str]:
    """The names that a cell or a definition uses and does not define."""
    table = symtable.symtable(source, "cell", "exec")
    own = {each.get_name() for each in table.get_symbols() if each.is_assigned() or each.is_imported()}
    own |= {each.get_name() for each in table.get_symbols() if each.is_namespace()}
    return used(table) - own - GIVEN


def used(table: symtable.SymbolTable) -> set[str]:
    """The global names that are read in a scope or in those inside of it."""
    top = table.get_type() == "module"
    read = {each for each in table.get_symbols() if each.is_referenced() and (top or each.is_global())}
    return {each.get_name() for each in read}.union(*map(used, table.get_children()))


def segment(source: str, node: ast.stmt) -> str:
    """The lines of a statement."""
    first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])
    return "\n".join(source.split("\n")[first - 1 : node.end_lineno])
