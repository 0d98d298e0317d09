"""Does Otter grade exported labs? It runs it: `tools/otter_check.py ENVIRONMENT [lab …]`.

ENVIRONMENT is the Python of an environment with allranks and otter-grader, which the book does not need. The
exit status is 0 if the solution of each lab has all points and the lab as it was handed out has none.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from allranks.grading import otter

LABS = Path(__file__).resolve().parents[1] / "notebooks" / "labs"


def graded(python, archive, notebook, folder):
    """(points, most points) that Otter gives to `notebook`."""
    words = ["run", "-a", str(archive), "-o", str(folder), "--no-logo", str(notebook)]
    run(python, folder, *words)
    tests = json.loads((folder / "results.json").read_text(encoding="utf-8"))["tests"]
    tasks = [test for test in tests if "task_" in test["name"]]
    return sum(test.get("score", 0) for test in tasks), sum(test["max_score"] for test in tasks)


def run(python, folder, *words):
    environment = os.environ | {"ALLRANKS_STANDBY": "0"}
    subprocess.run([python, "-m", "otter", *words], cwd=folder, env=environment, check=True)


def main(python, *slugs):
    python, wrong = os.path.abspath(python), 0
    for slug in slugs or ("serving",):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            tests = otter.export(LABS / f"{slug}_solved.ipynb", folder)
            run(python, folder, "generate", "-t", str(tests), "-o", "lab.zip", "--no-requirements")
            for notebook, share in ((f"{slug}_solved", 1), (slug, 0)):
                points, most = graded(python, folder / "lab.zip", LABS / f"{notebook}.ipynb", folder)
                print(f"{notebook}: {points:g} of {most:g}")
                wrong += not most or points != share * most
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
