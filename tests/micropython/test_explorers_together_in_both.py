"""Explorers share one interpreter on a page, so each must work whichever others were loaded before it."""

import json
from pathlib import Path

import pytest
from allranks_book.compiled import compiled
from allranks_book.shipped import python_files
from conftest import MicroPython

from allranks import explorers
from allranks.explorers.frame.page import answer

FILES = {name: compiled(python_files(name)) for name in explorers.NAMES}
HEAP = 32  # MiB, as in explorers.js
NAMES = list(explorers.NAMES)
ORDERS = [NAMES, NAMES[::-1], [*NAMES[3:], *NAMES[:3]]]


@pytest.mark.parametrize("name", explorers.NAMES)
def test_a_script_holds_every_package_that_it_imports_from(name):
    folders = {path.rpartition("/")[0] for path in FILES[name]}
    assert {f"{folder}/__init__.mpy" for folder in folders} <= set(FILES[name])


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: f"{order[0]} first")
def test_every_explorer_answers_whichever_came_before_it(order):
    running = MicroPython(heap=HEAP, files=[])
    try:
        for name in order:
            for path, code in FILES[name].items():
                written = running.ask(statements=writing(path, code))
                assert "error" not in written, written
            started = running.ask(statements="canonical.load('explorers.frame.page')")
            assert "error" not in started, started
            question = json.dumps({"explorer": name, "settings": {}, "narrow": False})
            there = running.ask(expression=f"explorers.frame.page.answer({question!r})")
            assert "value" in there, (name, there)
            assert json.loads(there["value"]) == json.loads(answer(question)), name
    finally:
        running.close()


def writing(path, code):
    """Statements that write a file of the package, and the folders above it."""
    folders = [part for part in Path("/lib", path).parents if part.parts[:2] == ("/", "lib")][::-1]
    return "\n".join(
        [
            "import os",
            *(f"try:\n os.mkdir({str(folder)!r})\nexcept OSError:\n pass" for folder in folders),
            f"with open('/lib/{path}', 'wb') as file:\n file.write({code!r})",
        ]
    )
