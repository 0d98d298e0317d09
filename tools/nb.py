#!/usr/bin/env python
"""Execute notebooks, or check that they are committed as executed: `tools/nb.py run|check [paths]`.

`run` executes each notebook from a fresh kernel and writes it in the normal form of normal_form.py.
`check` says, one line per problem, where a notebook misses it. Without paths, both take all of notebooks/.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import labs
from anatomy import is_chapter, missing_parts
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from kernel.sockets import sockets
from nbclient import NotebookClient
from nbclient.exceptions import CellControlSignal, DeadKernelError
from normal_form import COLOUR, dumps, loads, normalise, problems, with_small_pictures
from taught_code import differences

ROOT = Path(__file__).resolve().parent.parent
CELL_SECONDS = 120
NOTEBOOK_SECONDS = 60


def notebooks(paths):
    """The notebooks among and below `paths`."""
    for path in map(Path, paths or [ROOT / "notebooks"]):
        found = [path] if path.is_file() else sorted(path.rglob("*.ipynb"))
        yield from (p for p in found if ".ipynb_checkpoints" not in p.parts)


def shown(path):
    """`path` as a person in the repository would write it."""
    path = path.resolve()
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) else path


def check(path):
    """Every problem of the notebook at `path`, as one line each."""
    text = path.read_text(encoding="utf-8")
    found = problems(text)
    if not found:
        notebook = loads(text)
        found += differences(notebook)
        if is_chapter(path):
            found += missing_parts(notebook)
        elif labs.is_lab(path):
            found += problems_of_lab(path, notebook)
    return [f"{shown(path)}{f', cell {cell}' if cell else ''}: {what}" for cell, what in found]


def problems_of_lab(path, notebook):
    """A solved lab has its parts; a lab has the cells of its solved one."""
    solved = labs.solved_one(path)
    if solved is None:
        return list(labs.missing_parts(notebook))
    if not solved.exists():
        return [(None, f"is a lab without its solution, {solved.name}")]
    return list(labs.drift(notebook, loads(solved.read_text(encoding="utf-8"))))


def source_of(path):
    """The notebook to execute for `path`: a lab is made from its solved one."""
    solved = labs.solved_one(path)
    if solved and solved.exists():
        return labs.lab_of(loads(solved.read_text(encoding="utf-8")))
    return loads(path.read_text(encoding="utf-8"))


def run(path):
    """Execute the notebook at `path` and write it; return what stopped it, or None."""
    notebook = source_of(path)
    normalise(notebook)
    try:
        _execute(notebook, path.parent)
    except (CellControlSignal, DeadKernelError) as error:
        return COLOUR.sub("", str(error)).strip()
    normalise(notebook)
    with_small_pictures(notebook)
    text = dumps(notebook)
    if not path.exists() or text != path.read_text(encoding="utf-8"):
        path.write_text(text, encoding="utf-8")
    return None


def _execute(notebook, folder):
    # The kernel of this environment, not a python3 that the user may have registered elsewhere.
    specs = KernelSpecManager(kernel_dirs=[])
    kernel = AsyncKernelManager(kernel_name="python3", kernel_spec_manager=specs, **sockets())
    client = NotebookClient(
        notebook,
        km=kernel,
        timeout=CELL_SECONDS,
        store_widget_state=False,
        record_timing=False,
        extra_arguments=["--log-level=ERROR"],
        resources={"metadata": {"path": str(folder)}},
    )
    environment = {k: v for k, v in os.environ.items() if k != "MPLBACKEND"}  # figures are for the notebook
    environment |= {"PLOTLY_RENDERER": "plotly_mimetype", "ALLRANKS_OUTPUT": "ordered"}
    environment |= {"ALLRANKS_STANDBY": "0"}  # nobody reads meanwhile: least work
    with tempfile.TemporaryFile("w+", errors="backslashreplace") as said:
        try:
            client.execute(env=environment, cleanup_kc=True, stderr=said)
        except BaseException:
            said.seek(0)
            sys.stderr.write(said.read())  # of a kernel that ends well: complaints of its own closed sockets
            raise


def run_all(paths):
    """Run each notebook; return how many failed."""
    failures = 0
    found = list(notebooks(paths))
    made = [lab for path in found if (lab := labs.lab_path(path)) and lab not in found]
    for path in found + made:
        start = time.monotonic()
        trouble = run(path)
        seconds = time.monotonic() - start
        failures += bool(trouble)
        print(f"{'FAILED' if trouble else 'ran   '} {seconds:5.1f} s  {shown(path)}", flush=True)
        if trouble:
            print(f"{trouble}\n{shown(path)} is left as it was.", file=sys.stderr)
        elif seconds > NOTEBOOK_SECONDS:
            print(
                f"warning: {shown(path)} takes longer than {NOTEBOOK_SECONDS} s; make it smaller",
                file=sys.stderr,
            )
    return failures


def check_all(paths):
    """Check each notebook; return how many have problems."""
    results = [check(path) for path in notebooks(paths)]
    for line in (line for lines in results for line in lines):
        print(line)
    failures = sum(map(bool, results))
    print(f"{len(results) - failures} of {len(results)} notebooks are in the normal form")
    return failures


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=["run", "check"])
    parser.add_argument("paths", nargs="*", help="notebooks or folders (default: notebooks/)")
    arguments = parser.parse_args()
    missing = [path for path in arguments.paths if not Path(path).exists()]
    if missing:
        parser.error(f"no such file or folder: {', '.join(missing)}")
    failures = {"run": run_all, "check": check_all}[arguments.command](arguments.paths)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
