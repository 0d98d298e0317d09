"""Each rule of tools/nb.py rejects the mistake it is for."""

import base64
import io
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from anatomy import PARTS, is_chapter, missing_parts
from nb import check
from normal_form import dumps, normalise, problems, with_small_pictures
from PIL import Image
from taught_code import differences

ROOT = Path(__file__).resolve().parents[2]
NB = ROOT / "tools" / "nb.py"
PNG = "iVBORw0KGgo="


def code(source="x = 1", outputs=(), tags=(), **metadata):
    cell = nbformat.v4.new_code_cell(source, outputs=list(outputs), metadata=metadata)
    if tags:
        cell.metadata.tags = list(tags)
    return cell


def text(source):
    return nbformat.v4.new_markdown_cell(source)


def stream(content, name="stdout"):
    return nbformat.v4.new_output("stream", name=name, text=content)


def error(*frames):
    return nbformat.v4.new_output("error", ename="ValueError", evalue="no", traceback=list(frames))


def display(metadata=None, **data):
    return nbformat.v4.new_output("display_data", data=data, metadata=metadata or {})


def image():
    return display(**{"image/png": PNG, "text/plain": "<Figure size 640x480 with 1 Axes>"})


def notebook(*cells):
    """A notebook of these cells as `run` leaves it, without having run it."""
    made = nbformat.v4.new_notebook(cells=list(cells))
    normalise(made)
    for count, cell in enumerate((c for c in made.cells if c.cell_type == "code"), start=1):
        cell.execution_count = count
    return made


def found(made):
    return [what for _, what in problems(dumps(made))]


def test_a_notebook_in_the_normal_form_has_no_problem():
    figure = code("plot()", [image()], mystnb={"image": {"alt": "A line that rises from 1 to 3"}})
    made = notebook(text("# Title"), code("1 + 1", [stream("2\n")], tags=["a-tag"]), figure)
    assert found(made) == []


# ---- what an output may not show ----


@pytest.mark.parametrize(
    "output, complaint",
    [
        ("<function f at 0x7f3a2c1d9e50>", "a memory address"),
        ("listening on 127.0.0.1:40123", "a port"),
        ("listening on localhost:40123", "a port"),
        ("saved in /home/ada/model.pt", "a path of this machine"),
        ("saved in /tmp/model.pt", "a path of this machine"),
        (f"saved in {ROOT}/model.pt", "a path of this machine"),
        ("lib/python3.11/site-packages/torch/nn.py", "a path of this machine"),
    ],
)
def test_an_output_shows_nothing_that_no_other_run_repeats(output, complaint):
    made = notebook(code("show()", [stream(output)]), code("show()", [display(**{"text/html": output})]))
    assert len([what for what in found(made) if complaint in what]) == 2


def test_a_stored_error_shows_no_path_either():
    made = notebook(code("fail()", [error("ValueError: /tmp/x is gone")], tags=["raises-exception"]))
    assert ["a path of this machine" in what for what in found(made)] == [True]


@pytest.mark.parametrize(
    "harmless", ["3/4 of /dev/shm", "and/or", "0x7f", "ratio 1:2000", "https://example.org/tmp/x"]
)
def test_what_only_looks_like_an_address_is_fine(harmless):
    assert found(notebook(code("show()", [stream(harmless)]))) == []


def test_colour_codes_are_reported_and_removed_by_run():
    made = notebook(code("show()"))
    made.cells[0].outputs = [stream("\x1b[31mred\x1b[0m\n")]
    assert ["a colour code" in what for what in found(made)] == [True]
    normalise(made)
    assert made.cells[0].outputs[0].text == "red\n"
    assert found(made) == []


def test_a_traceback_keeps_the_frames_of_the_notebook_only():
    frames = [
        "ValueError  Traceback",
        "Cell In[1], line 1\n",
        "File /usr/lib/x.py:3, in f()\n",
        "ValueError: no",
    ]
    made = notebook(code("fail()", [error(*frames)], tags=["raises-exception"]))
    assert made.cells[0].outputs[0].traceback == [frames[0], frames[1], frames[3]]


RANK = "rank 1 raised\n  Cell In[2], line 2, in step\n    raise ValueError\n  ValueError"
KERNEL = "Cell In[2], line 2, in step()\n      1 def step():\n----> 2     raise ValueError\n"


@pytest.mark.parametrize("frame", [RANK, KERNEL])
@pytest.mark.parametrize("inserted, right", [([], True), ([code()], False), ([text("prose")], True)])
def test_a_traceback_names_the_cell_whose_line_it_shows(frame, inserted, right):
    step = code("def step():\n    raise ValueError")
    made = notebook(code(), *inserted, step, code("step()", [error(frame)], tags=["raises-exception"]))
    assert ["where other code stands now" in what for what in found(made)] == [True] * (not right)


@pytest.mark.parametrize("frame", ["Cell In[9], line 1", "ranks 0, 1: Cell In[1], line 2, in step"])
def test_a_traceback_names_no_line_that_does_not_exist(frame):
    made = notebook(code(), code("step()", [stream(frame)]))
    assert ["where other code stands now" in what for what in found(made)] == [True]


def test_pieces_of_a_stream_are_reported_and_joined_by_run():
    made = notebook(code("show()"))
    made.cells[0].outputs = [stream("a\n"), stream("b\n"), stream("c\n", "stderr"), stream("d\n")]
    assert any("several pieces" in what for what in found(made))
    normalise(made)
    assert [output.text for output in made.cells[0].outputs] == ["a\nb\n", "c\n", "d\n"]


def test_what_is_written_to_stderr_is_a_problem_unless_it_is_meant():
    warning = stream("UserWarning: old\n", "stderr")
    assert ["stderr" in what for what in found(notebook(code("f()", [warning])))] == [True]
    assert found(notebook(code("f()", [warning], tags=["shows-stderr"]))) == []


def test_an_error_is_a_problem_unless_it_is_the_lesson():
    assert ["raised an error" in what for what in found(notebook(code("f()", [error("no")])))] == [True]
    assert found(notebook(code("f()", [error("no")], tags=["raises-exception"]))) == []


def test_a_cell_that_should_fail_and_does_not_is_a_problem():
    assert ["raised nothing" in what for what in found(notebook(code(tags=["raises-exception"])))] == [True]


@pytest.mark.parametrize("metadata", [{}, {"mystnb": {"image": {"alt": "A plot"}}}])
@pytest.mark.parametrize("kind", ["image/png", "image/svg+xml"])
def test_a_figure_needs_alternative_text(metadata, kind):
    made = notebook(code("plot()", [display(**{kind: PNG})], **metadata))
    assert ["alternative text" in what for what in found(made)] == [True]


def test_a_stored_picture_has_a_palette_if_that_is_smaller():
    plain, file = Image.new("RGB", (200, 100), "white"), io.BytesIO()
    for at in range(0, 200, 3):
        plain.paste((at, 100, 200), (at, 10, at + 2, 90))
    plain.save(file, "PNG")
    made = notebook(code("plot()", [display(**{"image/png": base64.b64encode(file.getvalue()).decode()})]))
    with_small_pictures(made)
    stored = Image.open(io.BytesIO(base64.b64decode(made.cells[0].outputs[0].data["image/png"])))
    assert stored.mode == "P" and stored.convert("RGB").tobytes() == plain.tobytes()


@pytest.mark.parametrize("header, right", [("| | bytes |", False), ("| ranks | bytes |", True)])
def test_each_column_of_a_table_has_a_name(header, right):
    made = notebook(text(f"# Title\n\n{header}\n| --- | --- |\n| 1 | 2 |"))
    assert ["without a name" in what for what in found(made)] == ([] if right else [True])


def test_an_explorer_keeps_its_picture_and_not_its_widget_and_says_its_own_words():
    widget, svg = "application/vnd.jupyter.widget-view+json", "image/svg+xml"
    shown = display(**{widget: {"model_id": "1"}, svg: "<svg/>" + "x" * 200_000, "text/plain": "Words."})
    shown.metadata = {svg: {"explorer": "pipeline", "settings": {}}}
    made = notebook(code("explorers.show('pipeline')", [shown]))
    normalise(made)
    assert widget not in made.cells[-1].outputs[0].data
    assert found(made) == []


def test_an_explorer_stands_once_on_a_page():
    def shown(name):
        picture = display(**{"image/svg+xml": "<svg/>", "text/plain": "Words."})
        picture.metadata = {"image/svg+xml": {"explorer": name, "settings": {}}}
        return code("show()", [picture])

    assert found(notebook(shown("pipeline"), shown("memory"))) == []
    twice = found(notebook(shown("pipeline"), shown("memory"), shown("pipeline")))
    assert ["'pipeline' a second time" in what for what in twice] == [True]


def test_a_live_widget_is_a_problem():
    made = notebook(code("w", [display(**{"application/vnd.jupyter.widget-view+json": {"model_id": "1"}})]))
    assert ["live widget" in what for what in found(made)] == [True]


def test_output_metadata_is_reported_and_removed_by_run():
    made = notebook(code("f()"))
    made.cells[0].outputs = [display({"took": 3}, **{"text/plain": "1"})]
    assert ["output metadata 'took'" in what for what in found(made)] == [True]
    normalise(made)
    assert found(made) == []


# ---- names, counts, metadata, size, format ----


@pytest.mark.parametrize(
    "name", ["a1b2c3d4", "8e3c2b1a-11aa-4bcd-9f00-0123456789ab", "Ring", "two_words", "W0sZmls"]
)
def test_a_cell_is_not_named_at_random(name):
    made = notebook(code())
    made.cells[0].id = name
    assert ["named at random" in what for what in found(made)] == [True]
    normalise(made)
    assert made.cells[0].id == "x"


def test_run_names_cells_after_what_they_hold_and_keeps_the_names_authors_gave():
    cells = [
        text("## What it costs\n"),
        code("import torch"),
        code("def ring(x):\n    y = x"),
        code("ring(1)"),
        code(),
    ]
    cells[4].id = "the-result"
    names = ["what-it-costs", "imports", "ring", "ring-2", "the-result"]
    assert [cell.id for cell in notebook(*cells).cells] == names


def test_a_name_is_used_once():
    made = notebook(code(), code())
    made.cells[1].id = made.cells[0].id
    assert ["shares its id" in what for what in found(made)] == [True]


@pytest.mark.parametrize("counts", [(None, 2), (1, None), (2, 3), (1, 3), (2, 1)])
def test_cells_ran_once_in_order(counts):
    made = notebook(code(), code())
    for cell, count in zip(made.cells, counts, strict=True):
        cell.execution_count = count
    assert any("execution count" in what for what in found(made))


def test_a_notebook_that_never_ran_is_one_problem():
    made = notebook(text("# Title"), code(), code(tags=["raises-exception"]))
    for cell in made.cells[1:]:
        cell.execution_count = None
    assert found(made) == ["was never run; run `tools/nb.py run` on it"]


def test_notebook_metadata_is_the_same_everywhere():
    made = notebook(code())
    made.metadata.language_info.version = "3.12.1"
    assert ["language_info" in what for what in found(made)] == [True]
    made.metadata = {"widgets": {}}
    assert ["widgets" in what for what in found(made)] == [True]


def test_cell_metadata_says_nothing_about_the_run():
    made = notebook(code())
    made.cells[0].metadata.execution = {"iopub.status.busy": "2026-01-01T00:00:00Z"}
    assert ["metadata 'execution'" in what for what in found(made)] == [True]


def test_a_code_cell_is_short():
    assert found(notebook(code("\n".join("x = 1" for _ in range(25))))) == []
    assert ["26 lines" in what for what in found(notebook(code("\n".join("x = 1" for _ in range(26)))))] == [
        True
    ]


def test_a_notebook_is_small():
    assert ["bytes" in what for what in found(notebook(code("f()", [stream("a" * 150_000)])))] == [True]


def test_a_notebook_is_stored_as_nbformat_writes_it():
    assert [what for _, what in problems(dumps(notebook(code())).replace(" ", "  ", 1))] != []


def test_a_file_that_is_no_valid_notebook_is_a_problem():
    made = notebook(code())
    made.cells[0].outputs = [stream("1")]
    made.cells[0].outputs[0].colour = "red"
    assert ["not a valid notebook" in what for what in found(made)] == [True]


def test_an_older_format_is_a_problem():
    made = nbformat.v4.new_notebook(nbformat_minor=4)
    assert ["nbformat 4.5" in what for what in found(made)] == [True]


# ---- taught code is package code ----


@pytest.fixture
def package(tmp_path):
    module = tmp_path / "allranks" / "parallel"
    module.mkdir(parents=True)
    (module / "ring.py").write_text(
        'def ring(x):\n    """Doc."""\n    return x + 1  # why\n\n\nclass Ring:\n    pass\n'
        '\n\nclass Rank:\n    def size(self):\n        """Doc."""\n        return 3\n'
    )
    return tmp_path


@pytest.mark.parametrize(
    "source, name, complaint",
    [
        ("def ring(x):\n    return x + 1", "parallel.ring.ring", None),
        ("class Ring:\n    '''Doc.'''", "parallel.ring.Ring", None),
        ("def ring(x):\n    return x + 2", "parallel.ring.ring", "teaches another ring"),
        ("def star(x):\n    return x + 1", "parallel.ring.ring", "does not define ring"),
        (
            "def star(x):\n    return x + 1",
            "parallel.ring.star",
            "allranks.parallel.ring does not define star",
        ),
        ("def ring(x):\n    return x + 1", "parallel.star.ring", "no module allranks.parallel.star"),
        ("def size(self):\n    return 3", "parallel.ring.Rank.size", None),
        ("def size(self):\n    return 4", "parallel.ring.Rank.size", "teaches another size"),
        (
            "def size(self):\n    return 3",
            "parallel.ring.Ring.size",
            "allranks.parallel.ring does not define size",
        ),
        ("def size(self):\n    return 3", "parallel.star.Rank.size", "no module allranks.parallel.star"),
    ],
)
def test_taught_code_is_package_code(package, source, name, complaint):
    made = notebook(code(source, tags=[f"same-as:allranks.{name}"]))
    what = [what for _, what in differences(made, root=package)]
    assert (complaint in what[0]) if complaint else what == []


def test_every_tag_of_a_cell_and_every_cell_is_compared(package):
    both = code(
        "def ring(x): ...\nclass Ring: ...",
        tags=["same-as:allranks.parallel.ring." + n for n in ("ring", "Ring")],
    )
    again = code("def ring(x): ...", tags=["same-as:allranks.parallel.ring.ring"])
    assert len(list(differences(notebook(both, again), root=package))) == 3


# ---- a chapter has every part ----

CAPTION = {"figure": {"caption": "Both are 2."}, "image": {"alt": "Two bars of 2."}}
CHAPTER = {
    "title": text("# Title\nHow many?"),
    "opening": code("from allranks import plots\nplots.bars(rows)", [image()], ["opening"], mystnb=CAPTION),
    "claim": text("**Claim**: 1 + 1 = 2. *You need* nothing. *Runs in* 1 s, no GPU."),
    "imports": code("import torch"),
    "predict": text("```{admonition} Predict\n:class: predict\nHow many?\n```"),
    "assertion": code("assert ring(1) == 2"),
    "failure": code("ring('a')", tags=["raises-exception"]),
    "exercise": code("check.ring(answer)"),
    "solution": text("```{solution-start} ring\n```\n```{solution-end}\n```"),
    "summary": text("**What it costs**: 2.\n**When not to use it**: 3."),
}


def chapter(**changes):
    return notebook(*(cell for cell in (CHAPTER | changes).values() if cell is not None))


def test_a_whole_chapter_misses_nothing():
    assert list(missing_parts(chapter())) == []


def test_a_claim_may_be_an_admonition():
    claim = text(":::{admonition} Claim\n:class: claim\n1 + 1 = 2\n:::\n*You need* nothing. *Runs in* 1 s.")
    assert list(missing_parts(chapter(claim=claim))) == []


def test_an_explorer_may_open_a_chapter_and_needs_no_caption():
    drawn = display({"image/svg+xml": {"explorer": "mesh"}}, **{"image/svg+xml": "<svg></svg>"})
    assert list(missing_parts(chapter(opening=code("explorers.show('mesh')", [drawn], ["opening"])))) == []


def test_each_picture_has_a_caption():
    drawn = chapter(assertion=code("assert ring(1) == 2\nplots.bars(rows)", [image()]))
    assert [what for _, what in missing_parts(drawn)] == [
        "draws a picture without a caption: give its metadata mystnb.figure.caption"
    ]


@pytest.mark.parametrize(
    "changes, part",
    [
        ({"claim": text("*You need* nothing. *Runs in* 1 s.")}, "a claim"),
        ({"claim": text("**Claim**: 2. *Runs in* 1 s.")}, "*You need*"),
        ({"claim": text("**Claim**: 2. *You need* nothing.")}, "*Runs in*"),
        ({"title": code("import torch")}, "a title cell"),
        ({"opening": code("plots.bars(rows)", [image()], mystnb=CAPTION)}, "a picture that opens it"),
        ({"opening": code("rows = {}", tags=["opening"])}, "a picture that opens it"),
        ({"imports": text("Imports.")}, "imports in the cell after"),
        ({"imports": code("x = 1")}, "imports in the cell after"),
        ({"assertion": code("import os\nassert os")}, "all of its imports"),
        ({"predict": text("How many?")}, "a question to predict"),
        ({"assertion": None}, "an assert"),
        ({"failure": code("ring('a')")}, "something instructive that breaks"),
        ({"exercise": code("checker(answer)")}, "a checked exercise"),
        ({"solution": None}, "a solution"),
        ({"summary": text("When not to use it: 3.")}, "*What it costs*"),
        ({"summary": text("What it costs: 2.")}, "*When not to use it*"),
    ],
)
def test_a_missing_part_is_named(changes, part):
    assert any(part in what for _, what in missing_parts(chapter(**changes)))


def test_every_part_of_a_chapter_can_be_missed():
    bare = notebook(text("Nothing."), code("x = 1"), text("Nothing."), code("x = 2"), code("import os"))
    assert {what for _, what in missing_parts(bare)} == {f"is a chapter without {part}" for part in PARTS}


def test_one_output_of_a_chapter_may_be_ignored():
    ignored = code("clock()", tags=["nbval-ignore-output"])
    assert list(missing_parts(chapter(timing=ignored))) == []
    assert (
        len(list(missing_parts(chapter(timing=ignored, again=code("clock()", tags=["nbval-ignore-output"])))))
        == 1
    )


@pytest.mark.parametrize("part, is_one", [("foundations", True), ("labs", False), ("reference", False)])
def test_labs_and_reference_pages_are_no_chapters(part, is_one):
    assert is_chapter(ROOT / "notebooks" / part / "page.ipynb") is is_one


# ---- the command ----


def write(path, made):
    path.write_text(nbformat.writes(made), encoding="utf-8")
    return path


def nb(*arguments):
    return subprocess.run([sys.executable, NB, *arguments], capture_output=True, text=True, timeout=600)


def test_run_makes_what_check_accepts(tmp_path):
    plot = code("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()")
    plot.metadata.mystnb = {"image": {"alt": "A line that rises from 1 to 2"}}
    cells = [text("# Title"), plot, code("print('a')\n1 + 1"), code("1 / 0", tags=["raises-exception"])]
    path = write(tmp_path / "page.ipynb", nbformat.v4.new_notebook(cells=cells))
    assert check(path)
    ran = nb("run", path)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert check(path) == []
    first = path.read_bytes()
    assert nb("run", path).returncode == 0
    assert path.read_bytes() == first


def test_a_failing_cell_leaves_the_notebook_as_it_was(tmp_path):
    made = nbformat.v4.new_notebook(cells=[code("x = 1"), code("unknown + x")])
    path = write(tmp_path / "page.ipynb", made)
    before = path.read_bytes()
    ran = nb("run", path)
    assert ran.returncode == 1
    assert "unknown + x" in ran.stderr
    assert "NameError" in ran.stderr
    assert path.read_bytes() == before


def test_check_names_the_notebook_and_the_cell(tmp_path):
    made = notebook(code("show()", [stream("\x1b[31mred")]))
    made.cells[0].outputs[0].text = "0x7f3a2c1d9e50"
    path = write(tmp_path / "page.ipynb", made)
    said = nb("check", path)
    assert said.returncode == 1
    line = said.stdout.splitlines()[0]
    assert line.startswith(f"{path}, cell show: shows a memory address")


def test_a_path_that_does_not_exist_is_an_error():
    result = nb("check", "no/such.ipynb")
    assert result.returncode == 2
    assert "no such file or folder: no/such.ipynb" in result.stderr
