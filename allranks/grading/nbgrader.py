"""How does a lab become an nbgrader assignment? The solved lab, with the cells that nbgrader reads.

Each cell with lines of the reader's is a solution cell, and each check is a test cell that gives a point.
nbgrader runs all of it in one kernel, with the submission's own `check`: it is for courses that use it
already, and `allranks grade` is safer.
"""

import json
import re

from allranks.grading import reading

YOURS = re.compile(r"^( *)# ↓ yours\n((?:.*\n)*?)\1# ↑ yours$", re.MULTILINE)
CHECK = re.compile(r"check\.(lab_\d\d)\.(\w+)\((.*)\)\s*", re.DOTALL)


def export(path, folder):
    """Write the assignment of the solved lab at `path` to `folder`/source/<lab>/<lab>.ipynb; return its path.

    Raises ValueError if the notebook has no solution.
    """
    name = path.stem.removesuffix("_solved")
    reading.read(path)  # NotGradable in a sentence, for what is no lab
    content = assignment(json.loads(path.read_text(encoding="utf-8")))
    file = folder / "source" / name / f"{name}.ipynb"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    return file


def assignment(solved):
    """The notebook (a dict) that `nbgrader generate_assignment` takes, from that of a solved lab."""
    answers = [found[2].strip() for cell in solved["cells"] for found in YOURS.finditer(_source(cell))]
    if set(answers) <= {"..."}:
        raise ValueError("it has no lines between `# ↓ yours` and `# ↑ yours`: give a solved lab")
    named = [{"id": f"cell-{number}"} | cell for number, cell in enumerate(solved["cells"])]  # 4.4 has no ids
    cells = [cell for cell in named if "only-solved" not in cell["metadata"].get("tags", [])]
    return solved | {"cells": [_converted(cell) for cell in cells]}


def _converted(cell):
    if cell["cell_type"] != "code":
        return cell
    source, cell = _source(cell), cell | {"outputs": [], "execution_count": None}
    if YOURS.search(source):
        source = YOURS.sub(r"\1### BEGIN SOLUTION\n\2\1### END SOLUTION", source)
        return cell | {"source": source, "metadata": _metadata(cell["id"], solution=True)}
    found = CHECK.fullmatch(source)
    if found and found[2] != "milestone":
        lab, task, answers = found.groups()
        source = (
            f"said = check.verdict(check.{lab}.{task}.__wrapped__, {answers})\n"
            'assert said.startswith("✓"), said'
        )
        return cell | {"source": source, "metadata": _metadata(cell["id"], points=1)}
    return cell


def _metadata(name, points=0, solution=False):
    graded = {"grade": points > 0, "locked": points > 0} | ({"points": points} if points else {})
    fixed = {"schema_version": 3, "grade_id": name, "solution": solution, "task": False}
    return {"nbgrader": fixed | graded}


def _source(cell):
    return "".join(cell["source"])
