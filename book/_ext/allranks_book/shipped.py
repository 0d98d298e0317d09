"""Which Python travels with an explorer? Every file whose names it uses, without words for readers.

A package here, `allranks.inference` say, is a list of what its modules offer. A page that asked it would get
all of them, so that here a name comes from the module that defines it, and the list itself travels empty.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "allranks"
FRAME = ("__init__", "frame/page", "frame/controls", "frame/svg")


def python_files(name: str) -> dict[str, str]:
    """Path → bare source of every Python file that the explorer `name` needs."""
    files, wanted = (
        {"allranks/__init__.py": ""},
        [PACKAGE / "explorers" / f"{each}.py" for each in (*FRAME, name)],
    )
    while wanted:
        path = wanted.pop()
        key = path.relative_to(ROOT).as_posix()
        if key in files:
            continue
        if is_list(path):
            files[key] = ""
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        asked = Asked(tree, path).visit(tree)
        tree.body = [part for statement in asked.body for part in straight(statement, path)]
        files[key] = ast.unparse(stripped(tree))
        wanted += [needed for module in imports(tree, path) for needed in found_at(module)]
    return files


@cache
def is_list(path: Path) -> bool:
    """Whether a file only gathers the names of other modules of ours."""
    if path.name != "__init__.py" or not path.exists():
        return False
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return all(
        _is_text(each) or _lists_names(each) or (isinstance(each, ast.ImportFrom) and each.level)
        for each in body
    )


class Asked(ast.NodeTransformer):
    """Of a file that imports such a list as a whole, takes `collectives.cost` as a name imported from it."""

    def __init__(self, tree: ast.Module, path: Path):
        self.lists = {}
        for statement in tree.body:
            if isinstance(statement, ast.ImportFrom) and statement.level and not statement.module:
                base = path.parents[statement.level - 1]
                found = [each.name for each in statement.names if is_list(base / each.name / "__init__.py")]
                self.lists.update(dict.fromkeys(found, statement))
        self.wanted = {name: set() for name in self.lists}

    def visit_Attribute(self, node):
        """`collectives.cost` as `collectives_cost`."""
        self.generic_visit(node)
        if not isinstance(node.value, ast.Name) or node.value.id not in self.lists:
            return node
        self.wanted[node.value.id].add(node.attr)
        return ast.Name(f"{node.value.id}_{node.attr}", ast.Load())

    def visit_Module(self, node):
        """The file, with an import for each such name."""
        self.generic_visit(node)
        for name, statement in self.lists.items():
            statement.names = [each for each in statement.names if each.name != name]
            wanted = [ast.alias(each, f"{name}_{each}") for each in sorted(self.wanted[name])]
            node.body.insert(node.body.index(statement), ast.ImportFrom(name, wanted, statement.level))
        node.body = [each for each in node.body if not isinstance(each, ast.ImportFrom) or each.names]
        return node


def straight(statement: ast.stmt, path: Path):
    """A statement of the file at `path`; what it imports from such a list, it imports from its makers."""
    ours = isinstance(statement, ast.ImportFrom) and statement.level and statement.module
    if not ours or not is_list(listing(statement, path)):
        yield statement
        return
    up = len(path.relative_to(PACKAGE).parts)
    for alias in statement.names:
        module = defined_in(listing(statement, path), alias.name)
        dotted = ".".join(module.relative_to(PACKAGE).with_suffix("").parts)
        yield ast.ImportFrom(dotted, [alias], up)


def listing(statement: ast.ImportFrom, path: Path) -> Path:
    """The `__init__` of the package that a relative import of the file at `path` asks, if it asks one."""
    return path.parents[statement.level - 1].joinpath(*statement.module.split("."), "__init__.py")


@cache
def defined_in(init: Path, name: str) -> Path:
    """The module that makes the `name` which the list `init` offers."""
    for statement in ast.parse(init.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.ImportFrom) and name in [alias.name for alias in statement.names]:
            further = listing(statement, init)
            if is_list(further):
                return defined_in(further, name)
            return further if further.exists() else further.parent.with_suffix(".py")
    raise ImportError(f"{init} offers no {name}")


def imports(tree: ast.Module, path: Path):
    """The module files or package folders of ours that a source at `path` imports when it is loaded."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.level:
            base = path.parents[node.level - 1]
            if node.module:
                yield base.joinpath(*node.module.split("."))
            else:
                yield from (base / alias.name for alias in node.names)


def found_at(module: Path):
    """The files that Python runs to import a module: the `__init__` of each package above it, then its own.

    Every script must hold all of them. Explorers on one page share an interpreter, so a package that one of
    them brought without its `__init__` would stay empty for the next.
    """
    packages = [folder for folder in (module, *module.parents) if PACKAGE in folder.parents]
    for path in (*(folder / "__init__.py" for folder in packages), module.with_suffix(".py")):
        if path.exists():
            yield path


def bare(source: str) -> str:
    """The program of `source`, without its comments, its docstrings and the list of its public names."""
    return ast.unparse(stripped(ast.parse(source)))


def stripped(tree: ast.Module) -> ast.Module:
    """`tree` without docstrings and the list of public names."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [each for each in body if not (_is_text(each) or _lists_names(each))] or [ast.Pass()]
    return tree


def _is_text(node):
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _lists_names(node):
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
