"""The arithmetic gives the same in MicroPython, which runs it in the pages, as in CPython."""

import importlib
import json
import math
import re
import sys
from inspect import Parameter, Signature, signature

import canonical
import pytest
from arithmetic import FILES, FUNCTIONS, MODULES, TABLES
from hypothesis import HealthCheck, given, settings
from strategies import call, missing

# MicroPython rounds big integers more than once where it makes them floats: a last digit may differ.
# From 3.12 on CPython's sum() of floats is more exact than before, and than MicroPython's.
TOLERANCE = {"rel_tol": 1e-15} if sys.version_info < (3, 12) else {"rel_tol": 1e-12, "abs_tol": 1e-12}

EXAMPLES = {  # else a fifth of the profile's
    "inference.code_requests": 3,  # an answer of a thousand parts takes seconds
    "schedules.bubble_seconds": 100,  # most draws are refused: their schedule has no closed form
}

for module in MODULES:
    canonical.load(module)


def as_read(message):
    """A sentence with its numbers to 12 digits: MicroPython may write another last digit of a float."""
    return re.sub(r"-?\d+\.\d+(e[-+]?\d+)?", lambda number: f"{float(number[0]):.12g}", message)


def difference(page, here, where="the result"):
    """What a result of MicroPython and one of CPython, in canonical form, differ in; None if nothing."""
    if isinstance(here, dict) and isinstance(page, dict) and page.keys() == here.keys():
        if isinstance(here.get("float"), list) and isinstance(page["float"], list):
            page, here = math.ldexp(*page["float"]), math.ldexp(*here["float"])
            if math.isclose(page, here, **TOLERANCE):
                return None
        else:
            found = (difference(page[key], here[key], f"{where}, {key}") for key in here)
            return next(filter(None, found), None)
    if isinstance(here, list) and isinstance(page, list) and len(page) == len(here):
        found = (difference(*both, f"{where}[{index}]") for index, both in enumerate(zip(page, here)))
        return next(filter(None, found), None)
    if isinstance(here, str) and isinstance(page, str):
        same = as_read(page) == as_read(here)
    else:
        same = type(page) is type(here) and page == here
    return None if same else f"{where} is {page!r} in MicroPython and {here!r} in CPython"


def compare(micropython, expression):
    """Evaluate in both, assert that they agree, and return CPython's answer."""
    page, here = micropython.ask(expression=expression), json.loads(canonical.answer(expression))
    if here.get("error") not in (None, "ValueError"):
        here, page = {"error": here["error"]}, {"error": page.get("error")}
    assert difference(page, here) is None, expression
    return here


@pytest.mark.parametrize("module", FILES.values())
def test_both_import_it(micropython, module):
    importlib.import_module(f"allranks.{module}")
    answer = micropython.ask(statements=f"canonical.load({module!r})")
    assert "error" not in answer, answer["message"]


@pytest.mark.parametrize("table", TABLES)
def test_a_table_is_the_same(micropython, table):
    assert "value" in compare(micropython, table)


@pytest.mark.hypothesis
@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_function_gives_the_same(micropython, function):
    shape = signature(FUNCTIONS[function])
    assert missing(function, shape) == [], f"give {function}'s parameters a strategy in strategies.py"
    answers = []
    examples = EXAMPLES.get(function, settings.default.max_examples // 5)

    @settings(max_examples=examples, suppress_health_check=list(HealthCheck))
    @given(call(function, shape))
    def compare_some(expression):
        answers.append(compare(micropython, expression))

    compare_some()
    values = [answer for answer in answers if "value" in answer]
    assert len(values) >= 3 or not shape.parameters, f"of {len(answers)} calls {len(values)} were answered"


@pytest.mark.parametrize(
    "page, here, named",
    [
        ({"value": [1, 2]}, {"value": [1, 3]}, "the result, value[1] is 2 in MicroPython and 3 in CPython"),
        ({"value": 1}, {"value": True}, "value is 1 in MicroPython and True in CPython"),
        ({"value": [1]}, {"value": [1, 2]}, "value is [1] in MicroPython"),
        ({"value": 1}, {"value": canonical.canonical(1.0)}, "value is 1 in MicroPython"),
        ({"value": canonical.canonical(0.1)}, {"value": canonical.canonical(0.2)}, "0.1 in MicroPython"),
        ({"error": "TypeError", "message": "no"}, {"value": 0}, "TypeError"),
    ],
)
def test_a_difference_is_named(page, here, named):
    assert difference(here, here) is None
    assert named in difference(page, here)


def test_a_parameter_without_a_strategy_is_named():
    names = ["nbytes", "colour", "flag"]
    shape = Signature([Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in names])
    assert missing("memory.paint", shape) == ["colour", "flag"]
