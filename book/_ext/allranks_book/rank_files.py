"""Which Python does a page need to run ranks? The simulator, its own torch, and the checks of exercises.

`page_python` beside this package holds what takes the place of torch and of the package's kernel side; it
overrides files of the package with the same path.
"""

from __future__ import annotations

import ast
from pathlib import Path

from allranks_book.shipped import PACKAGE, ROOT, bare, found_at, imports

STAND_INS = ROOT / "book" / "_ext" / "page_python"
CHECKS = (  # the chapters whose exercises, or some of them, a page can check
    "ranks",
    "all_reduce",
    "context_parallel",
    "cost_of_a_collective",
    "fewer_rounds",
    "one_f_one_b",
    "parallelism_strategies",
)
REAL = PACKAGE / "launch"  # real ranks: `launch` is one of the stand-ins' names
WANTED = ("ranks/replay", "explorers/space_time", "collectives/__init__", "schedules/__init__")


def python_files() -> dict[str, str]:
    """Path → bare source of every Python file that a page with ranks needs."""
    own = {path.relative_to(STAND_INS).as_posix(): path for path in sorted(STAND_INS.rglob("*.py"))}
    files = {path: bare(source.read_text(encoding="utf-8")) for path, source in own.items()}
    files["allranks/explorers/__init__.py"] = ""  # the explorers themselves stay out
    wanted = [PACKAGE / f"{each}.py" for each in WANTED]
    wanted += [PACKAGE / "check" / f"{each}.py" for each in CHECKS]
    while wanted:
        path = wanted.pop()
        key = path.relative_to(ROOT).as_posix()
        if key not in files:
            source = path.read_text(encoding="utf-8")
            files[key] = bare(source)
            wanted += [file for each in needed(ast.parse(source), path) for file in found_at(each)]
    return files


def needed(tree: ast.Module, path: Path):
    """The module files or package folders of ours that a source imports, relatively or by name."""
    yield from imports(tree, path)
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and not node.level and node.module.split(".")[0] == "allranks":
            base = ROOT.joinpath(*node.module.split("."))
            found = [base, *(base / alias.name for alias in node.names)]
            yield from (module for module in found if module != REAL)


def write(folder: Path) -> None:
    """Write the files below `folder`."""
    for path, source in python_files().items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source, encoding="utf-8")
