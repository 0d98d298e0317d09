#!/usr/bin/env python
"""Which slow tests need not run again? Those whose inputs are, byte for byte, those that they last passed on.

`tests/stamps.json` holds a hash for each group of inputs. `tools/stamps.py tests` and `tools/stamps.py pages`
write those of that part of `.ci/run` after it was green (`.ci/run` does), and whoever ran it commits the
file. Tests marked `stamped("hub")` are skipped
while the hash is the same; `pytest --every-test`, and with it the nightly workflow, runs them always.
"""

import functools
import hashlib
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STAMPS = ROOT / "tests" / "stamps.json"
LAUNCH = (
    "allranks/launch/**/*.py",
    "allranks/nccl/**/*.py",
    "allranks/private.py",
    "allranks/trace.py",
    "tools/kernel/**/*.py",
    "tests/support/**/*.py",
    "tests/conftest.py",
    "tests/ranks/test_launch*.py",
)
INPUTS = {  # a group of tests → the files that they look at
    "launch": LAUNCH,
    "hub": (
        "allranks/launch/**/*.py",
        "deploy/local/*",
        "tools/hub.sh",
        "tools/jupyterlab/**/*",
        "tests/browser/conftest.py",
        "tests/browser/built_book.py",
        "tests/browser/running_hub.py",
        "tests/browser/test_hub*.py",
    ),
    "lab 04": (
        "allranks/check/__init__.py",
        "allranks/check/labs.py",
        "allranks/check/lab_04/*.py",
        "allranks/trace.py",
        "notebooks/labs/mixed_precision_solved.ipynb",
        "tests/check/students.py",
        "tests/check/test_lab_04_*.py",
        "tests/support/together.py",
    ),
    "lab 06": (
        "allranks/check/__init__.py",
        "allranks/check/labs.py",
        "allranks/check/lab_06/*.py",
        "allranks/inference/*.py",
        "allranks/serving/*.py",
        "notebooks/labs/serving_solved.ipynb",
        "tests/check/students.py",
        "tests/check/test_lab_06_*.py",
        "tests/support/together.py",
    ),
    "lecture": (
        "book/_ext/**/*.py",
        "book/_ext/**/*.html",
        "book/_static/*",
        "package-lock.json",
        "tests/browser/conftest.py",
        "tests/browser/built_book.py",
        "tests/browser/test_pages.py",
    ),
    "labs": (
        "allranks/check/labs.py",
        "allranks/check/lab_01/*.py",
        "allranks/check/lab_02/*.py",
        "allranks/check/lab_05/*.py",
        "allranks/launch/**/*.py",
        "notebooks/labs/multi_gpu_setup_solved.ipynb",
        "notebooks/labs/ddp_training_solved.ipynb",
        "notebooks/labs/deepspeed_solved.ipynb",
        "tests/check/answers/**/*.yaml",
        "tests/check/test_check_lab_0[125]*.py",
        "tests/support/*.py",
    ),
}
ALWAYS = ("constraints.txt", "tools/stamps.py")
OF_PAGES = ("hub", "lecture")  # the groups that the part `pages` runs; the part `tests` runs the others


def files(patterns, root=ROOT):
    """The files that the patterns name, each once, in order; a pattern that names none is an error."""
    found = set()
    for pattern in patterns:
        named = {path for path in root.glob(pattern) if path.is_file()}
        if not named:
            raise ValueError(f"stamps: no file is called {pattern}: correct INPUTS in tools/stamps.py")
        found |= named
    return sorted(path for path in found if "__pycache__" not in path.parts)


@functools.cache
def digest(group, page=None, root=ROOT):
    """The hash of a group's inputs, and of the source of one page with it, as hexadecimal digits."""
    joined = hashlib.sha256(f"{sys.platform} {sys.version_info[:2]}".encode())
    sources = [path for path in (root / f"{page}.md", root / f"{page}.ipynb") if page and path.is_file()]
    for path in [*files((*INPUTS[group], *ALWAYS), root), *sources]:
        content = path.read_bytes()
        joined.update(f"{path.relative_to(root).as_posix()} {len(content)}\n".encode() + content)
    return joined.hexdigest()[:20]


def stamp_of(group, page=None):
    """The name under which a hash is kept."""
    return f"{group} {page}" if page else group


def stamped(file=STAMPS):
    """What the last whole green run left: name → hash."""
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def unchanged(group, page=None, file=STAMPS):
    """Whether the inputs of a group, or of one page in it, are those that its tests last passed on."""
    return stamped(file).get(stamp_of(group, page)) == digest(group, page)


def pages():
    """The notebooks of the book, each as a path without its ending."""
    found = sorted(ROOT.glob("notebooks/*/*.ipynb"))
    return [path.relative_to(ROOT).with_suffix("").as_posix() for path in found]


def write(part, file=STAMPS):
    """Keep the hashes of the groups that a part of `.ci/run` has run; those of the other part stay."""
    found = stamped(file)
    for group in INPUTS:
        if (group in OF_PAGES) == (part == "pages"):
            places = pages() if group == "lecture" else [None]
            found |= {stamp_of(group, page): digest(group, page) for page in places}
    file.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] not in (["tests"], ["pages"]):
        given = " ".join(sys.argv[1:]) or "nothing"
        sys.exit(f"stamps: given {given}; which part was green, tests or pages?")
    write(sys.argv[1])
