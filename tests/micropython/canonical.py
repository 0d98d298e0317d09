"""How are the results of two Pythons compared? As JSON that both write in the same way.

This module runs in both. A tuple, a record or an iterator is a list; a float is its mantissa and exponent, so
that no digit is lost; an object is its public attributes and properties.
"""

import json
import math
import sys

names = {}


def load(module):
    """Import allranks.`module`; an expression finds it, or the package that holds it, by its name."""
    __import__("allranks." + module)
    top = module.partition(".")[0]
    names[top] = sys.modules["allranks." + top]


def properties(value):
    """The names of the public properties of an object."""
    known = dir(type(value))
    return [name for name in known if name[0] != "_" and isinstance(getattr(type(value), name), property)]


def pairs(value, attributes):
    """The value of each attribute, by name."""
    return [[name, canonical(getattr(value, name))] for name in sorted(attributes)]


def canonical(value):
    """Return what JSON can say of a result."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            return {"float": str(value)}
        mantissa, exponent = math.frexp(value)
        return {"float": [int(mantissa * 2**53), exponent - 53]}
    if isinstance(value, dict):
        return {"dict": sorted([[canonical(key), canonical(value[key])] for key in value], key=repr)}
    if isinstance(value, (set, frozenset)):
        return {"set": sorted([canonical(each) for each in value], key=repr)}
    if isinstance(value, (list, tuple)):
        listed = [canonical(each) for each in value]
        more = properties(value)
        return {"record": listed, "properties": pairs(value, more)} if more else listed
    if isinstance(value, type) or type(value) is type(load):
        return {"named": value.__name__}
    if hasattr(value, "__next__") or isinstance(value, range):
        return [canonical(each) for each in value]
    own = [name for name in value.__dict__ if name[0] != "_"]
    return {"object": type(value).__name__, "attributes": pairs(value, own + properties(value))}


def answer(expression):
    """Evaluate an expression over the loaded modules; return its value, or its error, as JSON."""
    try:
        return json.dumps({"value": canonical(eval(expression, names))})
    except Exception as error:
        return json.dumps({"error": type(error).__name__, "message": str(error)})
