"""What is the value of an expression over the arithmetic? Nothing else can be named in one."""

import ast
import importlib
import math
from importlib.util import find_spec

MODULES = (
    "transformer",
    "hardware",
    "collectives",
    "topology",
    "memory",
    "schedules",
    "simulate",
    "plan",
    "batches",
    "compression",
    "local_updates",
    "muon",
    "inference",
    "failures",
)
FUNCTIONS = {each.__name__: each for each in (abs, float, int, len, max, min, range, round, sorted, sum)}


def value(source, names=None):
    """The number that `source` stands for, with `names` given; ValueError if it is none or names too much."""
    known = {"math": math, **FUNCTIONS, **(names or {})}
    used, bound = _names(source)
    for name in sorted(used - bound - set(known)):
        if name not in MODULES:
            raise ValueError(
                f"the expression {source!r} names {name!r}; it may name the arithmetic"
                f" ({', '.join(MODULES)}), math, {', '.join(FUNCTIONS)}"
            )
        if find_spec(f"allranks.{name}") is None:
            raise ValueError(f"the expression {source!r} names {name!r}, which does not exist yet")
        known[name] = importlib.import_module(f"allranks.{name}")
    try:
        result = eval(compile(source.strip(), "<claim>", "eval"), {"__builtins__": {}, **known})
    except Exception as error:
        raise ValueError(f"the expression {source!r} fails: {type(error).__name__}: {error}") from error
    if isinstance(result, bool) or not isinstance(result, int | float):
        raise ValueError(f"the expression {source!r} gives {result!r}, which is not a number")
    return result


def _names(source):
    """The names that an expression uses, and those that its comprehensions bind."""
    try:
        tree = ast.parse(source.strip(), mode="eval")
    except SyntaxError as error:
        raise ValueError(f"the expression {source!r} is not Python: {error.msg}") from error
    used, bound = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.Attribute) and node.attr.startswith("_"):
            raise ValueError(f"the expression {source!r} names {node.attr!r}, which is private")
    return used, bound
