"""What of the arithmetic do the tests run in MicroPython? Every public function, method and table."""

import contextlib
import importlib
import inspect

from test_layers import ARITHMETIC, LAYER, PACKAGE


def module_files():
    """The files of the arithmetic, as paths inside the package, and the dotted name of the module in each."""
    found = {}
    for name in (name for name, layer in LAYER.items() if layer == ARITHMETIC):
        for path in [*PACKAGE.glob(f"{name}.py"), *sorted(PACKAGE.glob(f"{name}/**/*.py"))]:
            file = path.relative_to(PACKAGE)
            parts = file.parent.parts if file.name == "__init__.py" else [*file.parent.parts, file.stem]
            found[file.as_posix()] = ".".join(parts)
    return found


def imported(names):
    """The modules that can be imported; a test of its own names the others."""
    for name in names:
        with contextlib.suppress(Exception):
            yield name, importlib.import_module(f"allranks.{name}")


FILES = module_files()
MODULES = dict(imported(FILES.values()))


def called(module, name):
    """How an expression names it: memory.zero_bytes, or memory_states.name where memory does not have it."""
    package = module.partition(".")[0]
    same = getattr(MODULES.get(package), name, None) is getattr(MODULES[module], name)
    return f"{package if same else module.replace('.', '_')}.{name}"


def public(module):
    """The public names of a module, apart from modules and from what other packages define."""
    for name, value in vars(MODULES[module]).items():
        origin = getattr(value, "__module__", None) or ""
        foreign = callable(value) and not origin.startswith("allranks.")
        if not name.startswith("_") and not inspect.ismodule(value) and not foreign:
            yield name, value


def defined(module, what):
    """The public functions or classes (`what` tells) that a module itself defines: expression and object."""
    for name, value in public(module):
        if what(value) and value.__module__ == f"allranks.{module}":
            yield called(module, name), value


FUNCTIONS = {name: each for module in MODULES for name, each in defined(module, inspect.isfunction)}
CLASSES = {name: each for module in MODULES for name, each in defined(module, inspect.isclass)}
METHODS = {
    f"{name}.{method}": each
    for name, owner in CLASSES.items()
    for method, each in vars(owner).items()
    if inspect.isfunction(each) and not method.startswith("_")
}
TABLES = sorted(
    {called(module, name) for module in MODULES for name, value in public(module) if not callable(value)}
)
