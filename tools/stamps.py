#!/usr/bin/env python
"""Which slow tests need not run again? Those whose inputs are, byte for byte, those that they last passed on.

`tests/stamps.json` holds a hash for each group of inputs. `tools/stamps.py tests` and `tools/stamps.py pages`
write those of that part of `.ci/run` after it was green (`.ci/run` does), and whoever ran it commits the
file. Tests marked `stamped("hub")` are skipped while the hash is the same; `pytest --every-test`, and with it
the nightly workflow, runs them always. Inputs are the files that INPUTS names and every module of this
repository that one of them imports, at its top, in a function or in a program in a string. What is imported
under a name put together at run time, and what is only run or read, INPUTS has to name. The tests of a page
look at the built page and at what a browser loads with it. The list of all pages at its side is left out:
every page has the same, and those of SAMPLE are looked at always.
"""

import functools
import hashlib
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STAMPS = ROOT / "tests" / "stamps.json"
PLACES = ("", "tools", "book/_ext", "tests/support")  # where imports are found (pyproject.toml: pythonpath)
IMPORT = re.compile(  # in a module, and in the JSON of a notebook, where each line is a string
    r"""(?m)^[ \t>"]*(?:from[ ]+(\.*)([\w.]*)[ ]+import[ ]+(\([^)]*\)|[\w, ]+)|import[ ]+([\w., ]+))"""
)
ARITHMETIC = (  # the modules of the first layer (allranks/__init__.py), which run in the pages too
    "inputs transformer hardware collectives topology interleaving memory schedules simulate plan precision "
    "attention experts streams lowering batches compression local_updates parameter_server deepspeed_config "
    "framework_config muon inference failures profiles recovery ranks dispatchers roofline "
    "strategies averaging articles"
)
INPUTS = {  # a group of tests → the files that they look at
    "launch": (
        "allranks/launch/**/*.py",
        "allranks/nccl/**/*.py",
        "tools/kernel/**/*.py",
        "tests/support/opened.py",
        "tests/ranks/test_launch*.py",
    ),
    "rules": ("allranks/nccl/**/*.py", "allranks/launch/**/*.py", "tests/ranks/test_nccl.py"),
    "arithmetic": (
        *(f"allranks/{name}/**/*.py" for name in ARITHMETIC.split() if (ROOT / "allranks" / name).is_dir()),
        *(f"allranks/{name}.py" for name in ARITHMETIC.split() if not (ROOT / "allranks" / name).is_dir()),
        "tests/micropython/*.py",
        "tests/micropython/run.mjs",
        "package-lock.json",
    ),
    "grading": (
        "allranks/grading/**/*.py",
        "allranks/check/**/*.py",
        "notebooks/labs/*.ipynb",
        "tests/tools/test_grading.py",
        "tests/check/test_hidden_cases.py",
        "tests/check/answers/**/*.yaml",
    ),
    "ray": (
        "allranks/launch/**/*.py",
        "tools/kernel/**/*.py",
        "tests/ranks/lighter/**/*.py",
        "tests/ranks/test_launch_ray.py",
    ),
    "cluster": ("deploy/cluster/*", "tests/ranks/test_cluster_torchrun.py"),
    "gpu": (
        "tools/gpu_check.py",
        "tools/on_gpu/**/*.py",
        "notebooks/foundations/one_device.ipynb",  # the one that a dry run runs
        "tests/gpu/*.py",
    ),
    "torchft": ("tests/peers/test_torchft.py",),
    "hub": (
        "allranks/launch/**/*.py",
        "allranks/explorers/all_reduce*.py",
        "deploy/local/*",
        "notebooks/foundations/all_reduce.ipynb",
        "tools/hub.sh",
        "tools/jupyterlab/**/*",
        "tests/browser/test_hub*.py",
        "tests/browser/conftest.py",
    ),
    "lab 03": (
        "allranks/check/lab_03/*.py",
        "notebooks/labs/fsdp_solved.ipynb",
        "tests/check/answers/lab_03/*.yaml",
        "tests/check/test_check_lab_03.py",
    ),
    "lab 04": (
        "allranks/check/lab_04/*.py",
        "notebooks/labs/mixed_precision_solved.ipynb",
        "tests/check/test_check_lab_04.py",
        "tests/check/answers/lab_04/*.yaml",
    ),
    "lab 06": (
        "allranks/check/lab_06/*.py",
        "notebooks/labs/serving_solved.ipynb",
        "tests/check/test_lab_06_*.py",
    ),
    "labs": (
        "allranks/check/lab_01/*.py",
        "allranks/check/lab_02/*.py",
        "allranks/check/lab_05/*.py",
        "allranks/check/lab_07/*.py",
        "notebooks/labs/multi_gpu_setup_solved.ipynb",
        "notebooks/labs/ddp_training_solved.ipynb",
        "notebooks/labs/deepspeed_solved.ipynb",
        "notebooks/labs/model_parallel_solved.ipynb",
        "tests/check/answers/**/*.yaml",
        "tests/check/test_check_lab_0[1257]*.py",
    ),
    "explorers": (
        "allranks/explorers/**/*.py",
        "book/_ext/**/*.py",
        "book/_static/*.*",
        "notebooks/reference/explorers.ipynb",
        "package-lock.json",
        "tests/browser/conftest.py",
        "tests/browser/test_explorers_*.py",
    ),
    "page": (
        "package-lock.json",
        "tests/browser/contrast.js",
        "tests/browser/test_explorers_phone.py",
        "tests/browser/test_pages.py",
        "tests/browser/test_reading_list_page.py",
        "tests/browser/conftest.py",
    ),
}
ALWAYS = ("constraints.txt", "tools/stamps.py", "tests/conftest.py")
OF_PAGES = ("hub", "explorers", "page")  # the groups of the part `pages`; the others are of `tests`
BUILT = "_build/html"
LIST_OF_PAGES = re.compile(r'<nav class="bd-links.*?</nav>', re.DOTALL)
SAMPLE = (  # pages whose tests run always
    "book/index.html",
    "notebooks/foundations/ranks.html",
    "notebooks/pipeline_parallel/one_f_one_b.html",
)


def files(patterns, root=ROOT):
    """The files that the patterns name, each once, in order; a pattern that names none is an error."""
    found = set()
    for pattern in patterns:
        named = {path for path in root.glob(pattern) if path.is_file()}
        if not named:
            raise ValueError(f"stamps: no file is called {pattern}: correct INPUTS in tools/stamps.py")
        found |= named
    return sorted(path for path in found if "__pycache__" not in path.parts)


def modules(name, beside, root):
    """The files of a module of that name and of the packages around it, if it is of this repository."""
    for place in (beside, *(root / place for place in PLACES)):
        found = []
        for count in range(1, name.count(".") + 2):
            path = place.joinpath(*name.split(".")[:count])
            choices = (path.with_name(f"{path.name}.py"), path / "__init__.py")
            found += [one for one in choices if one.is_file()]
        if found:
            return found
    return []


@functools.cache
def imports(path, root=ROOT):
    """The files of this repository that one of its files imports, wherever in it."""
    names = set()
    for dots, module, listed, plain in IMPORT.findall(path.read_text(encoding="utf-8")):
        around = path.parents[len(dots) - 1].relative_to(root).parts if dots else ()
        base = ".".join([*around, *([module] if module else [])])
        names |= {base, *(f"{base}.{one}" for one in re.findall(r"\w+", listed))} - {""}
        names |= set(re.findall(r"[\w.]+", plain))
    return {file for name in names for file in modules(name, path.parent, root)}


def with_imports(found, root=ROOT):
    """Files, and all that their Python imports, and what that imports, in order."""
    found, waiting = set(found), [path for path in found if path.suffix in (".py", ".ipynb")]
    while waiting:
        new = imports(waiting.pop(), root) - found
        found |= new
        waiting += new
    return sorted(found)


def loaded(page, root=ROOT):
    """What a browser loads of a built page: it, its pictures, styles and scripts; none if it is not built."""
    built = root / BUILT
    html = built / f"{page}.html"
    if not html.is_file():
        return []
    text = html.read_text(encoding="utf-8")
    pictures = set(re.findall(r"_images/([^\"'?\s)]+)", text))
    shared = (path for path in of_every_page(root) if path.parent.name != "explorers" or runs(path, text))
    return [html, *sorted(built / "_images" / name for name in pictures), *shared]


def runs(script, text):
    """Whether a page runs the script of an explorer, or one that all explorers and programs share."""
    if script.stem in ("python", "ranks"):
        return 'class="ar-explorer' in text or 'class="ar-ranks' in text
    return f"explorer-{script.stem}" in text


@functools.cache
def of_every_page(root=ROOT):
    """What all built pages share, and the explorers, which only some of them load."""
    return files([f"{BUILT}/_static/**/*"], root)


@functools.cache
def hash_of(path):
    """The hash of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


@functools.cache
def hash_of_page(path):
    """The hash of a built page without the list of all pages."""
    own = LIST_OF_PAGES.sub("", path.read_text(encoding="utf-8"))
    return hashlib.sha256(own.encode()).hexdigest()


@functools.cache
def inputs(group, root=ROOT):
    """The files of a group; what tests/conftest.py imports only looks for processes that are left behind."""
    return sorted({*with_imports(files(INPUTS[group], root), root), *files(ALWAYS, root)})


@functools.cache
def digest(group, page=None, root=ROOT):
    """The hash of a group's inputs, and of one built page with it, as hexadecimal digits."""
    joined = hashlib.sha256(f"{sys.platform} {sys.version_info[:2]}".encode())
    for path in [*inputs(group, root), *(loaded(page, root) if page else [])]:
        of = hash_of_page if path.suffix == ".html" and path.is_relative_to(root / BUILT) else hash_of
        joined.update(f"{path.relative_to(root).as_posix()} {of(path)}\n".encode())
    return joined.hexdigest()[:20]


def stamp_of(group, page=None):
    """The name under which a hash is kept."""
    return f"{group} {page}" if page else group


def stamped(file=STAMPS):
    """What the last whole green run left: name → hash."""
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def unchanged(group, page=None, file=STAMPS):
    """Whether the inputs of a group, or of one page in it, are those that its tests last passed on."""
    if group == "page" and (f"{page}.html" in SAMPLE or not loaded(page)):
        return False
    held = stamped(file).get(stamp_of(group, page))
    return held is not None and held == digest(group, page)


def pages(root=ROOT):
    """The built pages of notebooks and of the book, each as a path without its ending."""
    found = [path for part in ("notebooks", "book") for path in (root / BUILT / part).rglob("*.html")]
    return sorted(path.relative_to(root / BUILT).with_suffix("").as_posix() for path in found)


def of_other_part(name, part):
    """Whether a stamp is of a group of the other part; those of pages and groups that are gone go."""
    group = "page" if name.startswith("page ") else name
    return group in INPUTS and (group in OF_PAGES) != (part == "pages")


def write(part, file=STAMPS):
    """Keep the hashes of the groups that a part of `.ci/run` has run; those of the other part stay."""
    ours = [group for group in INPUTS if (group in OF_PAGES) == (part == "pages")]
    kept = {name: held for name, held in stamped(file).items() if of_other_part(name, part)}
    found = kept | {
        stamp_of(group, page): digest(group, page)
        for group in ours
        for page in (pages() if group == "page" else [None])
    }
    file.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] not in (["tests"], ["pages"]):
        given = " ".join(sys.argv[1:]) or "nothing"
        sys.exit(f"stamps: given {given}; which part was green, tests or pages?")
    write(sys.argv[1])
