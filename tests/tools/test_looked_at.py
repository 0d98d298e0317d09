"""What a file imports and names is found in its text: compared with what processes do open."""

import json
import subprocess
import sys

import looked_at
import pytest

from allranks.claims import ledger

ROOT = looked_at.ROOT
WATCH = """
import os, sys

def watch(event, args):
    if event == "open" and isinstance(args[0], (str, bytes)):
        path = os.path.abspath(os.fsdecode(args[0]))
        os.write(3, (path + chr(10)).encode())

sys.addaudithook(watch)
"""
PROGRAMS = {  # each opens something in another way: by import, by name, by a name put together, lazily
    "lazily": "from allranks import check, explorers\ncheck.zero\nexplorers.draw('zero')",
    "measured": "from allranks import measured\nmeasured.results(measured.machines()[0])",
    "published": "from allranks import published\npublished.runs()",
    "recorded": "from allranks import recipes\nrecipes.recorded()",
    "serving": "from allranks.serving import checkpoint, recorded\ncheckpoint.load()\nrecorded.vllm()",
    "room": "from allranks import check\ncheck.debugging.room(1)",
    "claims": "from allranks import claims\nclaims.find('zero-gpt2').printed",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_a_program_opens_is_found_in_its_text(name, tmp_path):
    opened = tmp_path / "opened"
    watched = f"exec {sys.executable} -c \"$0\" 3> '{opened}'"
    subprocess.run(["bash", "-c", watched, WATCH + PROGRAMS[name]], check=True, cwd=ROOT, timeout=120)
    asker = tmp_path / "asker.py"
    asker.write_text(PROGRAMS[name], encoding="utf-8")
    found = {path.relative_to(ROOT).as_posix() for path in looked_at.all_of([asker]) if path != asker}
    seen = {source_of(line) for line in opened.read_text(encoding="utf-8").splitlines()}
    seen = {one for one in seen if one and not looked_at.HIDDEN.search(one)}
    assert "allranks/__init__.py" in seen, "it was watched"
    others = {one for one in seen if one.startswith(looked_at.LEDGER)} if name == "claims" else set()
    assert seen - others <= found
    assert bool(others) == (name == "claims")
    assert not others or "allranks/claims/papers/rajbhandari2020.yaml" in found, "the entry's own file"


def source_of(line):
    """The name of a file of this repository, the source of a compiled one; None for others."""
    if not line.startswith(f"{ROOT}/"):
        return None
    folder, _, compiled = line.removeprefix(f"{ROOT}/").partition("__pycache__/")
    name = folder + compiled.partition(".")[0] + ".py" if compiled else folder
    return name if (ROOT / name).is_file() else None


@pytest.fixture
def tree(tmp_path):
    for name in (
        "notebooks/labs/one.ipynb",
        "notebooks/labs/two.ipynb",
        "notebooks/words.md",
        "pkg/__init__.py",
        "pkg/__main__.py",
        "pkg/data/a.csv",
        "pkg/data/deep/b.csv",
        "pkg/data/.cache",
        "_build/labs/one.ipynb",
        "beside.yaml",
        "pkg/beside.yaml",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    "written, found",
    [
        ('open("notebooks/labs/one.ipynb")', {"notebooks/labs/one.ipynb"}),
        (
            'ROOT / "notebooks" / "labs" / f"{name}.ipynb"',
            {"notebooks/labs/one.ipynb", "notebooks/labs/two.ipynb"},
        ),
        ('Path("notebooks", "words.md")', {"notebooks/words.md"}),
        ('files(package).joinpath("data")', {"pkg/data/a.csv", "pkg/data/deep/b.csv"}),
        ('HERE / "data" / name', {"pkg/data/a.csv", "pkg/data/deep/b.csv"}),
        ('open("beside.yaml")', {"beside.yaml", "pkg/beside.yaml"}),
        ('run("""\n    import io\n    open("pkg/data/a.csv")\n""")', {"pkg/data/a.csv"}),
        ('Path(__file__).parents[1] / "notebooks" / "words.md"', {"notebooks/words.md"}),
        ('import_module(f"pkg.{name}")', {"pkg/__init__.py", "pkg/__main__.py"}),
        ('print("data")', set()),
        ('print(f"{a}/{b}", "*", "**/one.ipynb", "/", ".", "..")', set()),
        ('open("../beside.yaml")', {"beside.yaml"}),
    ],
)
def test_a_file_is_named_in_one_piece_or_in_several(written, found, tree):
    asker = tree / "pkg" / "asker.py"
    named = looked_at.named(written, asker, tree)
    assert {path.resolve().relative_to(tree.resolve()).as_posix() for path in named} == found


@pytest.mark.parametrize("written", ["!python -m pkg words", 'run([python, "-m", "pkg"])', "python -m pkg"])
def test_a_module_that_runs_as_a_program_is_imported(written, tree):
    found = looked_at.imported(written, tree / "pkg" / "asker.py", tree)
    assert found == {tree / "pkg" / "__init__.py", tree / "pkg" / "__main__.py"}


def test_answers_to_a_lab_are_python_in_yaml(tree):
    answers = tree / "beside.yaml"
    answers.write_text("right: |\n  from pkg import __main__\n", encoding="utf-8")
    assert looked_at.all_of([answers], root=tree)[1:] == [tree / "pkg/__init__.py", tree / "pkg/__main__.py"]


def test_a_notebook_is_read_without_the_lines_of_ipython(tree):
    cells = [
        {"cell_type": "markdown", "source": ["import pkg"]},
        {"cell_type": "code", "source": ["%matplotlib inline\n", "  !ls pkg/data/a.csv\n", "import pkg"]},
    ]
    page = tree / "notebooks" / "labs" / "one.ipynb"
    page.write_text(json.dumps({"cells": cells}), encoding="utf-8")
    assert looked_at.all_of([page], root=tree) == [page, tree / "pkg" / "__init__.py"]


def test_who_writes_an_id_of_the_ledger_looks_at_the_file_of_its_paper():
    files = looked_at.ledger(ROOT)
    for id, claim in ledger.entries().items():
        begun = [file.stem for file, begins in files.items() if id.partition("-")[0] in begins]
        assert any(stem.partition("-")[0] == claim.paper for stem in begun), id
