"""Does nbgrader grade exported labs? It runs it: `tools/nbgrader_check.py ENVIRONMENT [lab …]`.

ENVIRONMENT is the Python of an environment with allranks and nbgrader, which the book itself does not need.
In a temporary course, ada hands in the solution of each lab and bob the lab as it was handed out. The exit
status is 0 if ada has all points and bob has none.
"""

import copy
import csv
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from allranks.grading import nbgrader

LABS = Path(__file__).resolve().parents[1] / "notebooks" / "labs"
CONFIG = 'c = get_config()\nc.CourseDirectory.course_id = "book"\nc.ExecutePreprocessor.timeout = 300\n'


def run(python, course, *words):
    """Run nbgrader with `words` in the folder `course`."""
    path = os.pathsep.join([str(Path(python).parent), os.environ["PATH"]])  # it starts `alembic` by name
    environment = os.environ | {"PATH": path, "ALLRANKS_STANDBY": "0"}
    subprocess.run([python, "-m", "nbgrader", *words], cwd=course, env=environment, check=True)


def hand_in(course, name):
    """Put the submissions of both students to the lab `name` where nbgrader looks for them."""
    source = json.loads((course / f"source/{name}/{name}.ipynb").read_text(encoding="utf-8"))
    release = json.loads((course / f"release/{name}/{name}.ipynb").read_text(encoding="utf-8"))
    answers = {cell["id"]: cell["source"] for cell in source["cells"]}
    solved = copy.deepcopy(release)
    for cell in solved["cells"]:
        if cell["metadata"].get("nbgrader", {}).get("solution"):
            cell["source"] = answers[cell["id"]]
    for student, notebook in (("ada", solved), ("bob", release)):
        folder = course / "submitted" / student / name
        folder.mkdir(parents=True)
        (folder / f"{name}.ipynb").write_text(json.dumps(notebook), encoding="utf-8")


def main(python, *slugs):
    python = os.path.abspath(python)
    with tempfile.TemporaryDirectory() as folder:
        course = Path(folder)
        (course / "nbgrader_config.py").write_text(CONFIG, encoding="utf-8")
        for slug in slugs or ("mixed_precision",):
            name = nbgrader.export(LABS / f"{slug}_solved.ipynb", course).stem
            run(python, course, "generate_assignment", name)
            hand_in(course, name)
            run(python, course, "autograde", name)
        run(python, course, "export", "--to", "grades.csv")
        with open(course / "grades.csv", encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    wrong = 0
    for row in rows:
        points, most = float(row["score"]), float(row["max_score"])
        print(f"{row['student_id']}: {points:g} of {most:g}, {row['assignment']}")
        wrong += points != (most if row["student_id"] == "ada" else 0)
    return 1 if wrong or not rows else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
