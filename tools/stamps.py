#!/usr/bin/env python
"""Which slow tests and notebooks need not run again? Those whose inputs are, byte for byte, as they passed.

`tests/stamps.json` holds a hash for each notebook, each test file of BY_FILE and each group of INPUTS. After
a part of `.ci/run` was green, `tools/stamps.py tests`, `notebooks` or `pages` keeps the hashes of that part,
and whoever ran it commits the file; `tools/stamps.py changed` prints the notebooks to run. Tests are skipped
while their hash is the same; `bash .ci/run all`, `pytest --every-test` and the nightly workflow run
everything. The inputs of a notebook and of a test file are what `tools/looked_at.py` reads from them; of a
notebook itself only code, tags and outputs, which is what running it compares. A group of tests of the pages
is a mark, `stamped("hub")`; its inputs are the files that INPUTS names and all that these import, and of the
built pages those of PAGES, with what a browser loads with them. The list of all pages at the side of each is
left out; pages of SAMPLE are looked at always.
"""

import functools
import hashlib
import json
import re
import sys

from downloads import PLACE
from looked_at import DECIDES, ROOT, all_of, files, imports

STAMPS = ROOT / "tests" / "stamps.json"
ARITHMETIC = (  # the modules of the first layer (allranks/__init__.py), which run in the pages too
    "inputs transformer hardware collectives topology interleaving memory schedules simulate plan precision "
    "attention experts streams lowering batches compression local_updates parameter_server deepspeed_config "
    "framework_config muon inference failures profiles recovery ranks dispatchers roofline "
    "strategies averaging articles"
)
INPUTS = {  # a group of tests of the pages → the files that they look at
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
    "explorers": (
        "allranks/explorers/**/*.py",
        "book/_ext/**/*.py",
        "book/_static/*.*",
        "notebooks/reference/explorers.ipynb",
        "package-lock.json",
        "tests/browser/conftest.py",
        "tests/browser/test_explorers_*.py",
    ),
    "lecture": ("package-lock.json", "tests/browser/conftest.py", "tests/browser/test_lecture.py"),
    "opening": ("package-lock.json", "tests/browser/conftest.py", "tests/browser/test_opening.py"),
    "programs": ("package-lock.json", "tests/browser/conftest.py", "tests/browser/test_ranks_in_page.py"),
    "pdf": (
        "CITATION.cff",
        "_toc.yml",
        "package-lock.json",
        "tools/offline.py",
        "tools/printed/*.*",
        "tests/browser/conftest.py",
        "tests/browser/test_downloads.py",
    ),
    "page": (
        "package-lock.json",
        "tests/browser/contrast.js",
        "tests/browser/test_explorers_phone.py",
        "tests/browser/test_pages.py",
        "tests/browser/test_reading_list_page.py",
        "tests/browser/test_validity.py",
        "tests/browser/conftest.py",
    ),
}
PAGES = {  # a group → the built pages that its tests look at; "page" stands for one page after the other
    "lecture": (
        "notebooks/foundations/ranks",
        "notebooks/pipeline_parallel/one_f_one_b",
        "notebooks/reference/explorers",
    ),
    "opening": ("notebooks/foundations/ranks",),
    "programs": ("notebooks/foundations/ranks",),
}
BY_FILE = {  # a part of `.ci/run` → the files with a hash of their own
    "tests": (
        "tests/arithmetic/**/test_*.py",
        "tests/check/test_*.py",
        "tests/explorers/test_*.py",
        "tests/gpu/test_*.py",
        "tests/micropython/test_*both*.py",
        "tests/peers/test_*.py",
        "tests/ranks/**/test_*.py",
        "tests/tools/test_grading.py",
        "tests/tools/test_nb.py",
    ),
    "notebooks": ("notebooks/*/*.ipynb",),
    "pages": (),
}
IN_BOTH_PYTHONS = (  # Node loads what it is told: these files, and what they import
    *(f"allranks/{name}/**/*.py" for name in ARITHMETIC.split() if (ROOT / "allranks" / name).is_dir()),
    *(f"allranks/{name}.py" for name in ARITHMETIC.split() if not (ROOT / "allranks" / name).is_dir()),
    "allranks/explorers/**/*.py",
    "tests/micropython/*.py",
    "tests/micropython/run.mjs",
    "package-lock.json",
)
DECLARED = {  # a test file → the files that it looks at, where its text names many more
    "tests/micropython/test_both_pythons.py": IN_BOTH_PYTHONS,
    "tests/micropython/test_explorers_in_both.py": IN_BOTH_PYTHONS,
    "tests/micropython/test_explorers_together_in_both.py": IN_BOTH_PYTHONS,
}
ALWAYS = ("constraints.txt", "tests/conftest.py")
OF_NOTEBOOKS = ("constraints.txt", "notebooks/conftest.py", "tools/kernel/*.py")
BUILT = "_build/html"
LIST_OF_PAGES = re.compile(r'<nav class="bd-links.*?</nav>', re.DOTALL)
SAMPLE = (  # pages whose tests run always; and below, notebooks
    "book/index.html",
    "notebooks/foundations/ranks.html",
    "notebooks/pipeline_parallel/one_f_one_b.html",
)
RUN_ALWAYS = ("notebooks/foundations/ranks.ipynb", "notebooks/data_parallel/ddp_inside.ipynb")


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


def printed(root=ROOT):
    """What is printed of the built book: its pages, pictures, styles, and the script of their figures."""
    loaded_too = ("_images/**/*", "_static/**/*.css", "_static/plotly_figures.js")
    names = [f"{page}.html" for page in pages(root)] + [*loaded_too]
    return files([f"{BUILT}/{name}" for name in names], root) if pages(root) else []


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
    """The hash of a built page without the list of all pages, and what is written into it after the build."""
    own = PLACE.sub("", LIST_OF_PAGES.sub("", path.read_text(encoding="utf-8")))
    return hashlib.sha256(own.encode()).hexdigest()


@functools.cache
def hash_of_cells(path):
    """The hash of what running a notebook looks at: the code, the tags and the outputs of its cells."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    kept = [[one["source"], one["metadata"], one["outputs"]] for one in cells if one["cell_type"] == "code"]
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()


@functools.cache
def inputs(group, root=ROOT):
    """The files of a group, a test file or a notebook; of what always counts, what it imports does not."""
    always = files(OF_NOTEBOOKS if group.endswith(".ipynb") else ALWAYS, root)
    if declared := INPUTS.get(group) or DECLARED.get(group):
        found = all_of(files(declared, root), imports, root)
    else:
        found = all_of([root / group], root=root)
    return sorted({*found, *always} - {root / name for name in DECIDES})


def built_inputs(group, page, root):
    """What a group looks at of the built book; with `page`, of this page."""
    if group == "pdf":
        return printed(root)
    return [path for name in ([page] if page else PAGES.get(group, ())) for path in loaded(name, root)]


@functools.cache
def digest(group, page=None, root=ROOT):
    """The hash of a group's inputs, and of one built page with it, as hexadecimal digits."""
    joined = hashlib.sha256(f"{sys.platform} {sys.version_info[:2]}".encode())
    for path in [*inputs(group, root), *built_inputs(group, page, root)]:
        of = hash_of_page if path.suffix == ".html" and path.is_relative_to(root / BUILT) else hash_of
        of = hash_of_cells if path.suffix == ".ipynb" and path == root / group else of
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


@functools.cache
def of_its_own(part):
    """The files of a part of `.ci/run` that have a hash each."""
    return files(BY_FILE[part])


def of_part(part):
    """The names whose hashes a part of `.ci/run` keeps, each with a page or None."""
    groups = INPUTS if part == "pages" else ()
    found = [(group, page) for group in groups for page in (pages() if group == "page" else [None])]
    return found + [(path.relative_to(ROOT).as_posix(), None) for path in of_its_own(part)]


def by_file(path):
    """The name of a test file that has a hash of its own, or None."""
    return path.relative_to(ROOT).as_posix() if path in of_its_own("tests") else None


def write(part, file=STAMPS):
    """Keep the hashes of a part of `.ci/run`; those of the other parts stay, and what is gone goes."""
    others = {stamp_of(*name) for other in BY_FILE if other != part for name in of_part(other)}
    others |= {name for name in stamped(file) if name.startswith("page ") and part != "pages"}  # built or not
    found = {name: held for name, held in stamped(file).items() if name in others}
    found |= {stamp_of(*name): digest(*name) for name in of_part(part)}
    file.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def changed():
    """The notebooks that have changed, or anything that they look at, and those that run always."""
    names = [name for name, _ in of_part("notebooks")]
    return [name for name in names if name in RUN_ALWAYS or not unchanged(name)]


if __name__ == "__main__":
    if sys.argv[1:] == ["changed"]:
        print(*changed(), sep="\n")
    elif len(sys.argv) == 2 and sys.argv[1] in BY_FILE:
        write(sys.argv[1])
    else:
        given = " ".join(sys.argv[1:]) or "nothing"
        sys.exit(f"stamps: given {given}; which part was green, {', '.join(BY_FILE)}? Or: changed")
