"""What of the arithmetic do the tests run in MicroPython? Every public function, method and table.

Public is what a module defines, and what a package's __init__ offers, without a leading underscore.
"""

import contextlib
import importlib
import inspect

from layers import ARITHMETIC, LAYER, PACKAGE


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


TOP = [name for name in MODULES if "." not in name]


def public(module):
    """The names that a module, or the __init__ of a package, offers; not what it imported from elsewhere."""
    for name, value in vars(MODULES[module]).items():
        origin = getattr(value, "__module__", None) or f"allranks.{module}"
        own = origin == f"allranks.{module}" or origin.startswith(f"allranks.{module}.")
        if not name.startswith("_") and not inspect.ismodule(value) and own:
            yield f"{module}.{name}", value


PUBLIC = {name: value for module in TOP for name, value in public(module)}
TABLES = [name for name, value in PUBLIC.items() if not callable(value)]
FUNCTIONS = {name: value for name, value in PUBLIC.items() if inspect.isfunction(value)}
FUNCTIONS |= {
    f"{owner}.{name}": value
    for owner, each in PUBLIC.items()
    if inspect.isclass(each)
    for name, value in vars(each).items()
    if inspect.isfunction(value) and not name.startswith("_")
}
