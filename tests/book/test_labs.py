"""A lab is its solved notebook without the reader's lines, and cannot drift from it."""

import ast
from pathlib import Path

import labs
import nbformat
import pytest
from nb import check, run

ROOT = Path(__file__).resolve().parents[2]
SOLVED = '''def double(x):
    """Twice x."""
    # ↓ yours
    y = x + x

    return y
    # ↑ yours'''
LAB = '''def double(x):
    """Twice x."""
    # ↓ yours
    ...
    # ↑ yours'''
TEXTS = """# Lab 07: twice, solved

*You need*: nothing. *Runs in* 1 s, no GPU."""
HINTS = "".join(f":::{{dropdown}} Hint {n}\nAdd.\n:::\n\n" for n in (1, 2, 3))


def notebook():
    new = nbformat.v4
    cells = [
        new.new_markdown_cell(TEXTS, id="title"),
        new.new_markdown_cell(f"## Task 1: twice\n\n{HINTS}", id="task"),
        new.new_code_cell(SOLVED, id="double"),
        new.new_code_cell("double(2)\ncheck.lab_07.double(double)", id="check"),
        new.new_markdown_cell("It is the sum.", id="why", metadata={"tags": ["only-solved"]}),
        new.new_code_cell("check.lab_07.milestone(double)", id="milestone"),
    ]
    return new.new_notebook(cells=cells)


def test_a_lab_has_three_dots_where_the_reader_writes():
    lab = labs.lab_of(notebook())
    assert [cell.id for cell in lab.cells] == ["title", "task", "double", "check", "milestone"]
    assert lab.cells[0].source.startswith("# Lab 07: twice\n")
    assert lab.cells[2].source == LAB


def test_two_places_of_one_cell_are_both_the_readers():
    source = "a = [\n# ↓ yours\n1,\n# ↑ yours\n]\n# ↓ yours\nb = 1\n# ↑ yours"
    made = notebook()
    made.cells[2].source = source
    expected = "a = [\n# ↓ yours\n...\n# ↑ yours\n]\n# ↓ yours\n...\n# ↑ yours"
    assert labs.lab_of(made).cells[2].source == expected


def test_a_lab_without_changes_has_not_drifted():
    assert list(labs.drift(labs.lab_of(notebook()), notebook())) == []


def test_a_changed_cell_of_a_lab_is_named():
    lab = labs.lab_of(notebook())
    lab.cells[2].source += "\n"
    assert [name for name, _ in labs.drift(lab, notebook())] == ["double"]


def test_a_missing_cell_of_a_lab_is_noticed():
    lab = labs.lab_of(notebook())
    del lab.cells[3]
    assert "other cells" in next(labs.drift(lab, notebook()))[1]


def test_a_solved_lab_has_all_parts():
    assert list(labs.missing_parts(notebook())) == []


@pytest.mark.parametrize(
    "cell, before, after, what",
    [
        (0, ", solved", "", "a title"),
        (0, "You need", "Needed", "*You need*"),
        (1, "## Task 1", "## Part 1", None),
        (1, "Hint 2", "Help 2", "three hints"),
        (2, "# ↓ yours", "# yours", "lines of the reader's"),
        (3, "check.lab_07", "try_it", "a check for each task"),
        (5, ".milestone", ".all", "a milestone"),
    ],
)
def test_a_missing_part_is_named(cell, before, after, what):
    made = notebook()
    made.cells[cell].source = made.cells[cell].source.replace(before, after)
    assert any((what or "a task") in said for _, said in labs.missing_parts(made))


def test_a_task_has_the_name_of_its_heading_in_the_milestone():
    made = notebook()
    made.cells[5].outputs = [nbformat.v4.new_output("stream", text="✓ two times\n✓ It is twice.\n")]
    assert list(labs.missing_parts(made)) == [
        ("milestone", "prints 'two times' for the task that its heading calls 'twice'")
    ]
    made.cells[5].outputs[0].text = "✓ twice\n✓ It is twice.\n"
    assert list(labs.missing_parts(made)) == []


def test_run_writes_the_lab_and_check_compares_it(tmp_path):
    folder = tmp_path / "notebooks" / "labs"
    folder.mkdir(parents=True)
    source = notebook()
    source.cells[3].source = "double(2)"
    source.cells[5].source = "double(3)"
    solved, lab = folder / "twice_solved.ipynb", folder / "twice.ipynb"
    nbformat.write(source, solved)
    assert run(solved) is None
    assert run(lab) is None
    made = nbformat.read(lab, as_version=4)
    assert made.cells[2].source == LAB
    assert check(lab) == []
    lab.write_text(lab.read_text(encoding="utf-8").replace("Twice x", "Two x"), encoding="utf-8")
    assert "differs from its solved lab" in check(lab)[0]
    solved.unlink()
    assert "without its solution" in check(lab)[0]


every_solved_lab = pytest.mark.parametrize(
    "path", sorted((ROOT / "notebooks" / "labs").glob("*_solved.ipynb")), ids=lambda p: p.stem
)


@every_solved_lab
def test_every_solved_lab_has_its_lab(path):
    assert labs.lab_path(path).exists()


@every_solved_lab
def test_a_solved_lab_has_all_points_and_reaches_its_milestone(path):
    outputs = [o for cell in nbformat.read(path, as_version=4).cells for o in cell.get("outputs", [])]
    said = "".join(output.get("text", "") for output in outputs)
    assert "✗" not in said and "Milestone reached: " in said


@every_solved_lab
def test_no_demonstration_takes_the_name_of_an_answer(path):
    answers = set()
    for cell in nbformat.read(path, as_version=4).cells:
        statements = ast.parse(cell.source).body if cell.cell_type == "code" else []
        defined = [one for one in statements if isinstance(one, ast.FunctionDef | ast.ClassDef)]
        answers |= {one.name for one in defined}
        others = (node for one in statements if one not in defined for node in ast.walk(one))
        stored = {n.id for n in others if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        assert not stored & answers, f"{cell.id} takes {stored & answers}"
