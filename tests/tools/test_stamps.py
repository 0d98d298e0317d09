"""A test is skipped only while every byte that it looks at is what it last passed on."""

import json
from pathlib import Path

import looked_at
import pytest
import stamps
from downloads import END, START
from layers import LAYER

A_TEST = "tests/check/test_check_zero.py"
KEPT = (looked_at.imports, looked_at.looks_at, looked_at.modules, looked_at.within, looked_at.ledger)


def notebook(source, words="# A page", outputs=()):
    code = {"cell_type": "code", "source": source, "metadata": {}, "outputs": list(outputs)}
    return json.dumps({"cells": [{"cell_type": "markdown", "source": words}, code]})


@pytest.fixture
def tree(tmp_path, monkeypatch):
    built = {
        "_build/html/notebooks/one/page.html": '<img src="../../_images/drawn.png"><p>read',
        "_build/html/_images/drawn.png": "of a picture",
        "_build/html/_images/other.png": "of another page",
        "_build/html/_static/script.js": "of every page",
        "_build/html/_static/plotly_figures.js": "",
        "_build/html/_static/style.css": "",
    }
    written = {
        "part/a.py": "from . import (\n    c,  # noqa\n)\n",
        "part/b.py": "def late():\n    import helper.inner as one\n",
        "part/c.py": 'PROGRAM = """\nimport run\n"""\n',
        "part/book.ipynb": notebook("import torch\nfrom part.taught import step"),
        "part/taught.py": "",
        "part/beside.py": "",
        "tools/helper/__init__.py": "",
        "tools/helper/inner.py": "import sys",
        "run.py": "",
        "constraints.txt": "",
        "notebooks/conftest.py": "",
        "README.md": "",
    }
    for name, content in (built | written).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content, encoding="utf-8")
    inputs = {"hub": ("part/[ab].py",), "lab": ("part/book.ipynb",), "page": ("part/taught.py",)}
    inputs |= {"lecture": ("part/b.py",), "pdf": ("part/taught.py",)}
    monkeypatch.setattr(stamps, "PAGES", {"lecture": ("notebooks/one/page",)})
    monkeypatch.setattr(stamps, "INPUTS", inputs)
    monkeypatch.setattr(stamps, "ALWAYS", ("constraints.txt",))
    monkeypatch.setattr(stamps, "OF_NOTEBOOKS", ("constraints.txt", "notebooks/conftest.py"))
    return tmp_path


def digests(tree):
    hashes = (stamps.hash_of, stamps.hash_of_page, stamps.hash_of_cells)
    for cached in (stamps.digest, stamps.inputs, stamps.of_every_page, *hashes, *KEPT):
        cached.cache_clear()
    return {
        "hub": stamps.digest("hub", root=tree),
        "lab": stamps.digest("lab", root=tree),
        "notebook": stamps.digest("part/book.ipynb", root=tree),
        "page": stamps.digest("page", "notebooks/one/page", root=tree),
        "lecture": stamps.digest("lecture", root=tree),
        "pdf": stamps.digest("pdf", root=tree),
    }


@pytest.mark.parametrize(
    "changed, seen_by",
    [
        ("part/b.py", {"hub", "lecture"}),
        ("part/c.py", {"hub"}),
        ("tools/helper/__init__.py", {"hub", "lecture"}),
        ("tools/helper/inner.py", {"hub", "lecture"}),
        ("run.py", {"hub"}),
        ("part/book.ipynb", {"lab"}),  # a space after it: what its cells say is as it was
        ("part/taught.py", {"lab", "page", "notebook", "pdf"}),
        ("notebooks/conftest.py", {"notebook"}),
        ("_build/html/notebooks/one/page.html", {"page", "lecture", "pdf"}),
        ("_build/html/_images/drawn.png", {"page", "lecture", "pdf"}),
        ("_build/html/_images/other.png", {"pdf"}),
        ("_build/html/_static/script.js", {"page", "lecture"}),
        ("_build/html/_static/style.css", {"page", "lecture", "pdf"}),
        ("constraints.txt", {"hub", "lab", "page", "notebook", "lecture", "pdf"}),
        ("part/beside.py", set()),
        ("README.md", set()),
    ],
)
def test_a_changed_byte_changes_the_hash_of_those_who_look_at_it(tree, changed, seen_by):
    before = digests(tree)
    end = b"\n" if changed.endswith(".ipynb") else b"\n# changed"
    (tree / changed).write_bytes((tree / changed).read_bytes() + end)
    after = digests(tree)
    assert {group for group in before if before[group] != after[group]} == seen_by


def test_a_notebook_is_run_again_for_its_code_and_outputs_and_not_for_its_prose(tree):
    source = "import torch\nfrom part.taught import step"
    printed = {"output_type": "stream", "name": "stdout", "text": "1"}
    for written, same in (
        (notebook(source, words="# A better page"), True),
        (notebook(f"{source}\nprint(1)"), False),
        (notebook(source, outputs=[printed]), False),
    ):
        before = digests(tree)["notebook"]
        kept = (tree / "part/book.ipynb").read_text(encoding="utf-8")
        (tree / "part/book.ipynb").write_text(written, encoding="utf-8")
        assert (digests(tree)["notebook"] == before) is same
        (tree / "part/book.ipynb").write_text(kept, encoding="utf-8")


def test_what_is_written_into_the_first_page_after_the_build_does_not_change_it(tree):
    page = tree / "_build/html/notebooks/one/page.html"
    page.write_text(f"<p>read{START}", encoding="utf-8")
    before = digests(tree)
    page.write_text(f"<p>read{START}the book as a PDF, 611 pages{END}", encoding="utf-8")
    assert digests(tree) == before


def test_a_page_more_in_the_list_at_its_side_does_not_change_a_page(tree):
    page = tree / "_build/html/notebooks/one/page.html"
    text = page.read_text(encoding="utf-8")
    page.write_text(f'<nav class="bd-links bd-docs-nav"><a>One</a></nav>{text}', encoding="utf-8")
    before = digests(tree)["page"]
    page.write_text(f'<nav class="bd-links bd-docs-nav"><a>One</a>\n<a>Two</a></nav>{text}', encoding="utf-8")
    assert digests(tree)["page"] == before
    page.write_text(f'<nav class="bd-links bd-docs-nav"><a>One</a></nav>{text}<nav>', encoding="utf-8")
    assert digests(tree)["page"] != before


@pytest.mark.parametrize(
    "name, page, loaded",
    [
        ("zero", '<figure class="ar-explorer" id="explorer-zero">', True),
        ("zero", '<figure class="ar-explorer" id="explorer-mesh"> zero', False),
        ("python", '<figure class="ar-explorer" id="explorer-mesh">', True),
        ("python", "<p>python", False),
    ],
)
def test_a_page_without_an_explorer_does_not_look_at_its_script(name, page, loaded):
    assert stamps.runs(Path(f"{name}.js"), page) is loaded


def test_a_new_and_a_renamed_input_change_the_hash(tree, monkeypatch):
    monkeypatch.setitem(stamps.INPUTS, "hub", ("part/*.py",))
    before = digests(tree)["hub"]
    (tree / "part/e.py").write_text("", encoding="utf-8")
    grown = digests(tree)["hub"]
    (tree / "part/e.py").rename(tree / "part/f.py")
    assert len({before, grown, digests(tree)["hub"]}) == 3


def test_what_decides_what_runs_is_no_input_of_it():
    imports_it = stamps.ROOT / "tools/offline.py"
    assert imports_it in stamps.inputs("pdf") and stamps.ROOT / "tools/stamps.py" not in stamps.inputs("pdf")


def test_a_pattern_that_names_nothing_is_an_error(tree):
    with pytest.raises(ValueError, match=r"no file is called gone/\*: correct INPUTS"):
        looked_at.files(["gone/*"], tree)


def test_every_group_has_inputs_and_no_stamp_means_changed(tmp_path):
    assert not any(stamps.unchanged(group, file=tmp_path / "none.json") for group in stamps.INPUTS)


@pytest.mark.parametrize(
    "group, looked_at",
    [
        ("tests/ranks/test_launch_kernel.py", "allranks/streams.py"),  # what the package imports
        ("tests/ranks/test_cluster_torchrun.py", "allranks/model.py"),  # what a program in a string imports
        ("tests/ranks/test_launch_ray.py", "tests/ranks/lighter/rfc3987_syntax.py"),
        ("tests/gpu/test_gpu_check.py", "tools/on_gpu/held.py"),
        (
            "tests/gpu/test_gpu_check.py",
            "allranks/parallel/ddp.py",
        ),  # what the notebook of the dry run imports
        ("tests/check/test_check_lab_03.py", "allranks/memory/states.py"),
        ("tests/check/test_check_lab_04.py", "tests/support/solved.py"),
        ("tests/check/test_check_lab_05.py", "allranks/deepspeed_config.py"),
        ("tests/peers/test_torchft.py", "allranks/parallel/local.py"),
        ("tests/micropython/test_explorers_in_both.py", "allranks/explorers/frame/svg.py"),
        ("tests/micropython/test_both_pythons.py", "tests/micropython/run.mjs"),
        ("hub", "allranks/explorers/frame/svg.py"),
        ("pdf", "tools/printed/pdf.css"),
    ],
)
def test_what_a_group_imports_is_among_its_inputs(group, looked_at):
    assert stamps.ROOT / looked_at in stamps.inputs(group)


@pytest.fixture
def two_pages(monkeypatch):
    built = {
        "notebooks/one/page": [stamps.ROOT / "README.md"],
        stamps.SAMPLE[0].removesuffix(".html"): [stamps.ROOT / "LICENSE"],
    }
    monkeypatch.setattr(stamps, "BY_FILE", {"tests": (A_TEST,), "notebooks": (), "pages": ()})
    monkeypatch.setattr(stamps, "INPUTS", {"hub": ("LICENSE",), "page": ("CITATION.cff",)})
    monkeypatch.setattr(stamps, "pages", lambda: list(built))
    monkeypatch.setattr(stamps, "loaded", lambda page, root=stamps.ROOT: built.get(page, []))
    for cached in (stamps.digest, stamps.of_its_own):
        cached.cache_clear()
    yield built
    for cached in (stamps.digest, stamps.of_its_own):
        cached.cache_clear()


def test_what_is_written_holds_until_something_changes(tmp_path, two_pages):
    file = tmp_path / "stamps.json"
    file.write_text('{"notebooks/gone.ipynb": "0", "page notebooks/gone": "0"}', encoding="utf-8")
    stamps.write("tests", file)
    assert stamps.unchanged(A_TEST, file=file) and not stamps.unchanged("hub", file=file)
    stamps.write("pages", file)
    assert stamps.unchanged(A_TEST, file=file) and stamps.unchanged("hub", file=file)
    page, sample = two_pages
    assert stamps.unchanged("page", page, file)
    assert not stamps.unchanged("page", sample, file), "the pages of the sample are always looked at"
    kept = json.loads(file.read_text(encoding="utf-8"))
    assert not any("gone" in name for name in kept)
    file.write_text(json.dumps(kept | {"hub": "another"}), encoding="utf-8")
    assert not stamps.unchanged("hub", file=file)
    two_pages.pop(page)
    assert not stamps.unchanged("page", page, file), "a page that is not built is not known to be as it was"
    assert not stamps.unchanged("page", "book/new", file), "a page without a stamp is always looked at"


def test_both_pythons_look_at_every_module_of_the_arithmetic():
    assert {name for name, layer in LAYER.items() if layer == 0} == set(stamps.ARITHMETIC.split())
