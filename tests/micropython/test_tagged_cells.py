"""A tagged cell gives in the page, in both Pythons, what the notebook stores from real ranks."""

import json
import re
from pathlib import Path

import pytest
from allranks_book.programs import TAG, program
from page_python import InCPython, InMicroPython
from page_python import program as question

ROOT = Path(__file__).parents[2]
CHECKED = ("ranks", "all_reduce", "fewer_rounds")  # chapters whose exercises and solutions are all run
A_CHECK = re.compile(r"check\.\w+\.\w+\(")


def cells():
    """(notebook, cell number) of each tagged cell, of its solution, and of all exercises of CHECKED."""
    for notebook in sorted((ROOT / "notebooks").rglob("*.ipynb")):
        found = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        checks = [A_CHECK.findall("".join(cell["source"])) for cell in found]
        tagged = [TAG in cell["metadata"].get("tags", []) for cell in found]
        solved = set().union(*(names for names, is_tagged in zip(checks, tagged, strict=True) if is_tagged))
        for i, cell in enumerate(found):
            checked = checks[i] and (notebook.stem in CHECKED or solved.intersection(checks[i]))
            if tagged[i] or (checked and cell["cell_type"] == "code"):
                yield pytest.param(notebook, i, id=f"{notebook.stem}-{cell['id']}")


@pytest.fixture(scope="module")
def pythons(tmp_path_factory):
    """Both Pythons, with what a page has."""
    both = InCPython(tmp_path_factory.mktemp("c")), InMicroPython(tmp_path_factory.mktemp("m"))
    yield both
    for each in both:
        each.close()


def stored(cell):
    """(what a cell printed and showed, the exception that ended it or None)."""
    text, exception = "", None
    for output in cell["outputs"]:
        if output["output_type"] == "stream":
            text += "".join(output["text"])
        elif output["output_type"] == "execute_result":
            text += "".join(output["data"]["text/plain"]) + "\n"
        elif output["output_type"] == "error":
            exception = f"{output['ename']}: {output['evalue']}"
    return text, exception


@pytest.mark.parametrize("notebook, index", list(cells()))
def test_the_page_gives_the_stored_output(pythons, notebook, index):
    all_cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    expected = stored(all_cells[index])
    for python in pythons:
        told = python.ask(**question(program(all_cells, index).source))
        assert (told["printed"], told["exception"]) == expected, told["failure"]


def test_an_exercise_has_the_helpers_that_its_text_names():
    texts = ["{exercise-start}\nLook with `look`.\n{exercise-end}", "{solution-start}\nWith `look`."]
    code = ["def look(f):\n    return f()", "def f():\n    pass\ncheck.a.b(f)"]
    cells = [
        {"id": str(i), "cell_type": kind, "metadata": {}, "source": [source]}
        for i, (kind, source) in enumerate(
            [
                ("code", code[0]),
                ("markdown", texts[0]),
                ("code", code[1]),
                ("markdown", texts[1]),
                ("code", code[1]),
            ]
        )
    ]
    assert program(cells, 2).source == f"{code[0]}\n\n\n{code[1]}"
    assert program(cells, 4).source == code[1]
