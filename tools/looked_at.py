"""What does a file of this repository look at? What its Python imports and names, and what that looks at.

Read from the text, without running it: `import` and `from`, at the top, in a function, in a cell or in a
program in a string; and paths, from any folder that the file is in, in one piece ("papers/*.yaml") or in
several (HERE / "papers" / f"{key}.yaml"). What is put in at run time counts as anything, and a folder as all
that is in it. Two packages import by name, and the ledger reads all its files: LAZY, IMPORTS_ONLY and LEDGER.
"""

import ast
import contextlib
import functools
import json
import os
import re
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLACES = ("", "tools", "book/_ext", "tests/support")  # where imports are found (pyproject.toml: pythonpath)
IMPORT = re.compile(
    r"""(?m)^[ \t>"]*(?:from[ ]+(\.*)([\w.]*)[ ]+import[ ]+(\([^)]*\)|[\w, ]+)|import[ ]+([\w., ]+))"""
)
HIDDEN = re.compile(
    r"(^|/)(\.\w|\.\.|_build/|__pycache__/|node_modules/)|^tests/stamps\.json$|^book/_static/vendor/"
)  # made from others
LAZY = {  # they import what is asked for: a notebook says check.zero and show("zero"), a test any word
    "allranks/check": r"\bcheck\.(\w+)",
    "allranks/explorers": r"""["'](\w+)["']|\bexplorers\.(\w+)""",
}
DECIDES = ("tools/stamps.py", "tools/looked_at.py")  # what runs, and not what comes of it
IMPORTS_ONLY = (  # what else they name, they open for others, or do not open
    "allranks/claims/expressions.py",
    *DECIDES,
    *(f"{package}/__init__.py" for package in LAZY),
)
PYTHON = (".py", ".ipynb", ".yaml")  # where it is read: answers to the labs are YAML
RUN = re.compile(r"""-m[\\"', ]+([\w.]+)|["'](allranks[\w.]*)["']""")  # a module as a program
# Who writes an id of the ledger, "zero-table1-…", looks at the files with such ids, a test at all of them.
# What an entry comes to, tests/arithmetic/test_claims.py always compares with what the notebooks show of it.
LEDGER = "allranks/claims/papers/"
IDS = re.compile(r"(?m)^ *- (?:id|table): ([a-z0-9.]+)")


def files(patterns, root=ROOT):
    """The files that the patterns name, each once, in order; a pattern that names none is an error."""
    found = set()
    for pattern in patterns:
        named = {path for path in root.glob(pattern) if path.is_file()}
        if not named:
            raise ValueError(f"stamps: no file is called {pattern}: correct INPUTS in tools/stamps.py")
        found |= named
    return sorted(path for path in found if "__pycache__" not in path.parts)


def code(path):
    """The text of a file, or of a notebook's code."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".ipynb":
        return text
    cells = (cell["source"] for cell in json.loads(text)["cells"] if cell["cell_type"] == "code")
    return "\n".join("".join(source) for source in cells)


@functools.cache
def modules(name, beside, root):
    """The files of a module of that name and of the packages around it, if it is of this repository."""
    for place in (beside, *(root / place for place in PLACES)):
        found = []
        for count in range(1, name.count(".") + 2):
            path = place.joinpath(*name.split(".")[:count])
            choices = (path.with_name(f"{path.name}.py"), path / "__init__.py")
            found += [one for one in choices if one.is_file()]
        if found:
            return found
    return []


def imported(text, path, root):
    """The files of this repository that the Python in a text imports, wherever in it."""
    names = set()
    for dots, module, listed, plain in IMPORT.findall(text):
        around = path.parents[len(dots) - 1].relative_to(root).parts if dots else ()
        base = ".".join([*around, *([module] if module else [])])
        names |= {base, *(f"{base}.{one}" for one in re.findall(r"\w+", listed))} - {""}
        names |= set(re.findall(r"[\w.]+", plain))
    for program in RUN.finditer(text):
        name = program[program.lastindex]
        names |= {name, f"{name}.__main__"}
    found = {file for name in names for file in modules(name, path.parent, root)}
    if path.is_relative_to(root / "allranks"):
        return found
    return found | lazily_imported(found, text, path, root)


def lazily_imported(found, text, path, root):
    """The modules of the packages of LAZY that a text asks for, if it imports them."""
    names = set()
    for package, asked in LAZY.items():
        if root / package / "__init__.py" in found:
            asked = r"(\w+)" if path.is_relative_to(root / "tests") else asked
            words = {match[match.lastindex] for match in re.finditer(asked, text)}
            names |= {f"{package.replace('/', '.')}.{word}" for word in words}
    return {file for name in names for file in modules(name, root, root)}


def named(text, path, root):
    """The files of this repository that the Python in a text names, from any folder that the file is in."""
    found = set()
    around = [folder for folder in path.parents if folder.is_relative_to(root)] or [root]
    text = re.sub(r"(?m)^\s*[%!].*$", "", text) if path.suffix == ".ipynb" else text  # lines for IPython
    for pattern in set(patterns(ast.parse(text))):
        for base in around:
            for one in base.glob(pattern) if "*" in pattern else [base / pattern]:
                found |= within(one, root)
    return found


@functools.cache
def within(path, root):
    """A file, or the files of a folder, without those that are built or installed and those of the ledger."""
    found = path.rglob("*") if path.is_dir() else [path]
    names = {os.path.relpath(file, root): file for file in found if file.is_file()}
    return {root / name for name in names if not name.startswith(LEDGER) and not HIDDEN.search(name)}


def patterns(tree):
    """The paths that a tree of Python writes, relative to something, `*` for what is put in at run time."""
    inner = set()
    for node in ast.walk(tree):  # the outer one first
        inner |= {node.left} if isinstance(node, ast.BinOp) and isinstance(node.left, ast.BinOp) else set()
        text = "" if node in inner else "/".join(pieces(node))
        if isinstance(node, ast.Constant) and "\n" in text and "import" in text:
            with contextlib.suppress(SyntaxError):  # a program
                yield from patterns(ast.parse(textwrap.dedent(text)))
        a_path = isinstance(node, ast.BinOp | ast.Call) or re.search("[./]", text)
        if a_path and re.fullmatch(r"(?!/|\*+/)(?=.*\w\w)(?!.*(\*\*[^/]|[^/]\*\*))[\w.*/-]+", text):
            yield text
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            module = "".join(pieces(node.args[0])).replace(".", "/")
            yield from [f"{module}.py", f"{module}/**/*.py"] if re.search(r"\w\w", module) else []


def pieces(node):
    """The pieces of the path that a string, `HERE / "a" / "b"` or `Path("a", "b")` stands for."""
    match node:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.JoinedStr(values=values):
            text = "".join(one.value if isinstance(one, ast.Constant) else "*" for one in values)
            return [re.sub(r"\*+", "*", text)]
        case ast.BinOp(op=ast.Div(), left=left, right=right):
            return [*pieces(left), *(pieces(right) or ["*"])]
        case ast.Call(func=ast.Name("Path") | ast.Attribute(attr="joinpath" | "Path"), args=args):
            return [piece for one in args for piece in pieces(one) or ["*"]]
    return []


@functools.cache
def ledger(root):
    """The files of the ledger, each with what its ids begin with."""
    return {file: {*IDS.findall(file.read_text(encoding="utf-8"))} for file in (root / LEDGER).glob("*.yaml")}


@functools.cache
def imports(path, root=ROOT):
    """The files of this repository that one of its files imports."""
    return imported(code(path), path, root)


@functools.cache
def looks_at(path, root=ROOT):
    """The files of this repository that one of its files imports or names."""
    text = code(path)
    found = imported(text, path, root)
    if (root / LEDGER).parent / "__init__.py" in found:
        begun = set(re.findall(r"""["']([a-z0-9.]+)-""", text))
        all_files = path.is_relative_to(root / "tests")
        found |= {file for file, ids in ledger(root).items() if ids & begun or all_files}
    if path.suffix == ".yaml" or path in {root / name for name in IMPORTS_ONLY}:
        return found
    return found | named(text, path, root)


def all_of(found, look=looks_at, root=ROOT):
    """Files, and all that their Python looks at, and what that does, in order; `look` may be `imports`."""
    found, waiting = set(found), [path for path in found if path.suffix in PYTHON]
    while waiting:
        new = look(waiting.pop(), root) - found
        found |= new
        waiting += [path for path in new if path.suffix in PYTHON]
    return sorted(found)
