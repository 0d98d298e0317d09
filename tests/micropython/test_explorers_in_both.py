"""An explorer draws the same picture and says the same words in a kernel and in the page, at every setting.

MicroPython gets here the very files that the page ships: byte code, without comments and docstrings.
"""

import json
import random

import pytest
from allranks_book.compiled import compiled
from allranks_book.shipped import python_files
from conftest import MicroPython

from allranks import explorers
from allranks.explorers.frame import controls
from allranks.explorers.frame.page import answer

RANDOM_SETTINGS = 25


@pytest.fixture(scope="module", params=explorers.NAMES)
def explorer(request, tmp_path_factory):
    """The name of an explorer, and a MicroPython that has what the page gives it."""
    folder = tmp_path_factory.mktemp(request.param)
    shipped = compiled(python_files(request.param))
    files = {path.removeprefix("allranks/"): code for path, code in shipped.items()}
    for path, code in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(code)
    running = MicroPython(package=folder, files=files)
    started = running.ask(statements="canonical.load('explorers.frame.page')")
    assert "error" not in started, started
    yield request.param, running
    running.close()


def drawn_at(control, rng):
    """A random value that `control` allows."""
    if isinstance(control, (controls.Choice, controls.Scale)):
        return rng.choice(control.options)[0]
    if isinstance(control, controls.Toggle):
        return rng.choice([False, True])
    return (
        rng.randint(control.low, control.high)
        if isinstance(control, controls.Integer)
        else rng.randint(0, 12)
    )


def test_both_pythons_show_the_same(explorer):
    name, micropython = explorer
    rng = random.Random(name)
    shown = 0
    for turn in range(RANDOM_SETTINGS):
        given = {control.name: drawn_at(control, rng) for control in explorers.explorer(name).CONTROLS}
        question = json.dumps({"explorer": name, "settings": given if turn else {}, "narrow": turn % 2 == 1})
        here = json.loads(answer(question))
        there = micropython.ask(expression=f"explorers.frame.page.answer({question!r})")
        assert "value" in there, (given, there)
        assert json.loads(there["value"]) == here, given
        shown += "svg" in here
    assert shown > RANDOM_SETTINGS / 3, "too many random settings are refused to say much"


def test_a_setting_that_is_not_allowed_is_refused_in_the_same_words(explorer):
    name, micropython = explorer
    control = explorers.explorer(name).CONTROLS[0]
    question = json.dumps({"explorer": name, "settings": {control.name: "nonsense"}, "narrow": False})
    here = json.loads(answer(question))["refusal"]
    assert here.startswith(control.name)
    assert (
        json.loads(micropython.ask(expression=f"explorers.frame.page.answer({question!r})")["value"])[
            "refusal"
        ]
        == here
    )
