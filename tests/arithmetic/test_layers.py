"""The package has three layers, and imports go one way: presentation → torch → arithmetic."""

import ast
import importlib
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest
from layers import ARITHMETIC, LAYER, PACKAGE

# MicroPython, which runs the arithmetic in the page, has no such modules.
NOT_IN_THE_PAGE = {"dataclasses", "typing", "__future__", "fractions"}

pytestmark = pytest.mark.stamped(None)  # they look at every module
FILES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py") if path.name != "__init__.py")
FILES += sorted(path.relative_to(PACKAGE) for path in PACKAGE.glob("*/**/__init__.py"))


def module_of(file):
    """The name directly below the package: the module, or the subpackage, that `file` belongs to."""
    return Path(file).parts[0].removesuffix(".py")


def imports(source, file):
    """The absolute dotted name of everything that the source of allranks/`file` imports."""
    package = ["allranks", *Path(file).parent.parts]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            base = [*base, *(node.module.split(".") if node.module else [])]
            yield from (".".join([*base, alias.name]) for alias in node.names)


def violations(source, file):
    """What is wrong with the imports of allranks/`file`."""
    own = module_of(file)
    for name in imports(source, file):
        first, _, rest = name.partition(".")
        other = rest.partition(".")[0]
        if first == "allranks" and other in LAYER and LAYER[other] > LAYER[own]:
            yield f"{own} imports {other}, which is of a higher layer"
        if first == "allranks" and own == "parallel" and other not in ("", "parallel", "private"):
            yield f"parallel imports {other}: its modules import nothing else of ours"
        if first != "allranks" and LAYER[own] == ARITHMETIC:
            if first not in sys.stdlib_module_names:
                yield f"{own} imports {first}, which is not of the standard library"
            if first in NOT_IN_THE_PAGE:
                yield f"{own} imports {first}, which MicroPython does not have"


@pytest.mark.parametrize("package", sorted({file.parent for file in FILES if file.parent.parts}), ids=str)
def test_no_export_has_the_name_of_a_submodule(package):
    # Which of the two `package.name` is would depend on what was imported last.
    exported = importlib.import_module(".".join(["allranks", *package.parts]))
    for module in pkgutil.iter_modules(exported.__path__):
        value = vars(exported).get(module.name)
        assert value is None or inspect.ismodule(value), f"{package}.{module.name} is a module and {value!r}"


def test_importing_the_package_does_not_import_torch():
    shown = "import sys, allranks; print('torch' in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", shown], capture_output=True, text=True, check=True, timeout=60
    )
    assert result.stdout == "False\n"


@pytest.mark.parametrize("file", FILES, ids=str)
def test_a_module_belongs_to_a_layer(file):
    assert module_of(file) in LAYER, f"add {module_of(file)} to the table of layers in allranks/__init__.py"


@pytest.mark.parametrize("file", [file for file in FILES if module_of(file) in LAYER], ids=str)
def test_imports_go_one_way(file):
    assert list(violations((PACKAGE / file).read_text(encoding="utf-8"), file)) == []


@pytest.mark.parametrize(
    "file, source, complaint",
    [
        ("memory.py", "from allranks import plots", "plots, which is of a higher layer"),
        ("memory.py", "from allranks.trace import trace", "trace, which is of a higher layer"),
        ("memory.py", "from . import launch", "launch, which is of a higher layer"),
        ("launch/world.py", "from ..check import equal", "check, which is of a higher layer"),
        ("launch/world.py", "def late():\n    import allranks.plots", "plots, which is of a higher layer"),
        ("parallel/tensor.py", "from ..trace import trace", "import nothing else of ours"),
        ("memory.py", "import numpy as np", "numpy, which is not of the standard library"),
        ("memory.py", "from dataclasses import dataclass", "MicroPython does not have"),
    ],
)
def test_an_import_the_wrong_way_is_named(file, source, complaint):
    assert [complaint in what for what in violations(source, file)] == [True]


@pytest.mark.parametrize(
    "file, source",
    [
        ("plots.py", "import matplotlib\nfrom . import trace, memory"),
        ("launch/world.py", "import torch\nfrom .ranks import Rank\nfrom .. import memory"),
        ("memory.py", "import math\nfrom .transformer import Shape"),
        ("parallel/tensor.py", "import torch\nfrom .ring import ring"),
    ],
)
def test_an_import_the_right_way_is_fine(file, source):
    assert list(violations(source, file)) == []
