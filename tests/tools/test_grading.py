"""A submission's marks are what its functions deserve, whatever else it does; and it leaves no process."""

import ast
import csv
import gc
import io
import json
import os
import pickle
import re
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import draws
import pytest
import torch
from kernel import leftovers

from allranks import launch, model
from allranks.__main__ import main
from allranks.check import labs
from allranks.check.lab_02.common import new_gpt as lab_02_model
from allranks.grading import answers, reading, report, runner, supervisor
from allranks.launch import packing, pickling

LABS = Path(__file__).resolve().parents[2] / "notebooks" / "labs"
CALL = "check.lab_02.loader(make_loader, in_epoch)"


def notebook(*sources, **more):
    cells = [
        {"cell_type": "code", "source": source, "metadata": {}, "outputs": [], "execution_count": None}
        for source in sources
    ]
    return {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5, **more}


def solved(**replaced):
    """The solved Lab 04; `replaced` are other sources for its cells, by their ids, with _ for -."""
    content = json.loads((LABS / "mixed_precision_solved.ipynb").read_text(encoding="utf-8"))
    for cell in content["cells"]:
        cell["source"] = replaced.pop(cell["id"].replace("-", "_"), cell["source"])
    assert not replaced
    return content


def written(folder, name, content):
    path = folder / f"{name}.ipynb"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def kept(source):
    """The statements of a cell that are graded, as text."""
    tree, _ = reading.parsed(source)
    return [ast.unparse(node) for node in reading.definitions(tree)]


# ---- reading ----


@pytest.mark.parametrize(
    "statement",
    [
        "import torch",
        "from torch import nn as layers",
        "def double(x):\n    return 2 * x",
        "class Scaler:\n    value = 1",
        "RATE = -0.001 * 3",
        "small, large = (1, 2)",
        "DTYPES = (torch.float16, [1, {'a': None}])",
        "twice = lambda x: 2 * x",
        "size: int = 8",
    ],
)
def test_a_definition_is_graded(statement):
    assert kept(statement) == [statement]


@pytest.mark.parametrize(
    "statement",
    [
        "double(2)",
        "data = digits()",
        "x = [f(y) for y in z]",
        "allranks.check.lab_02.loader = None",
        "for k in range(3): print(k)",
        "if True:\n    import os",
        "assert double(1) == 2",
        "!rm -rf here",
        "%time double(2)",
        "%%writefile a.py\nimport os",
    ],
)
def test_what_is_no_definition_is_not_run(statement):
    assert kept(statement) == []


def test_a_magic_line_does_not_hide_the_cell_around_it():
    assert kept("%matplotlib inline\nimport torch\n  !ls") == ["import torch"]


@pytest.mark.parametrize(
    "cell, needed",
    [
        ("import torch\nimport matplotlib\ndef f():\n    return torch.ones(A)\nA = B\nB = 2\nC = 3", 4),
        ("from x import *\ndef f(): pass", 2),
        ("import torch.nn\nimport torch.linalg\ndef f(x: torch.Tensor): pass", 3),
        ("def g(): pass\ndef f(): return g\ndef g(): pass", 3),
        ("class A: pass\nclass f(A): pass\nclass B(f): pass", 2),
        ("import matplotlib\ndef f(): return globals()['matplotlib']", 2),
    ],
)
def test_a_rank_runs_the_definitions_that_a_function_needs(cell, needed):
    tree, _ = reading.parsed(cell)
    assert len(reading.needed(reading.definitions(tree), "f")) == needed


def test_the_lab_and_its_functions_come_from_the_calls_of_checks(tmp_path):
    cells = "parts = save, load", "check.lab_02.checkpoint(*parts)", "check.lab_02.fit(lambda x: x)", CALL
    submission = reading.read(written(tmp_path, "lab_05", notebook(*cells)))
    assert submission["lab"] == "lab_02"
    assert submission["calls"] == {
        "checkpoint": ["save", "load"],
        "fit": [None],
        "loader": ["make_loader", "in_epoch"],
    }


def test_a_cell_that_is_not_python_is_left_out_and_named(tmp_path):
    submission = reading.read(written(tmp_path, "a", notebook("def f(:", CALL)))
    assert [number for number, _ in submission["cells"]] == [2]
    assert submission["notes"] == [
        "code cell 1 was left out: SyntaxError: invalid syntax (<unknown>, line 1)"
    ]


@pytest.mark.parametrize(
    "content, complaint",
    [
        ("", "is empty"),
        ("print(1)", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "is not a notebook of format 4"),
        ({"worksheets": []}, "is not a notebook of format 4"),
        (notebook(), "is not a lab"),
        (notebook("x = 1"), "is not a lab"),
        (notebook(CALL, "check.lab_01.main(main)"), "has checks of lab_01 and lab_02"),
        (notebook("check.lab_99.main(main)"), "calls checks of lab_99"),
        (notebook("check.lab_02.fit(fit)", CALL + ")"), None),
        (notebook("(" * 5000, CALL), None),
        (notebook({"a": 1}, CALL), None),
    ],
)
def test_a_file_that_is_not_a_lab_says_why(tmp_path, content, complaint):
    path = written(tmp_path, "a", content)
    if complaint:
        with pytest.raises(reading.NotGradable, match=complaint):
            reading.read(path)
    else:
        assert reading.read(path)["lab"] == "lab_02"


def test_a_huge_file_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "MOST_BYTES", 10)
    with pytest.raises(reading.NotGradable, match="clear its outputs"):
        reading.read(written(tmp_path, "a", notebook(CALL)))


def test_endless_code_is_not_parsed(tmp_path):
    with pytest.raises(reading.NotGradable, match="characters of code"):
        reading.read(written(tmp_path, "a", notebook(CALL, "x = 1\n" * 100_000)))


def test_what_is_handed_in_has_no_outputs_and_is_graded_alike(tmp_path):
    content = solved()
    content["cells"][2]["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "✓ mine"}]
    path = written(tmp_path, "mine", content)
    handed_in = written(tmp_path, "bare", reading.without_outputs(path).decode())
    assert "mine" not in handed_in.read_text(encoding="utf-8")
    assert reading.read(handed_in)["cells"] == reading.read(path)["cells"]


def test_the_lecturers_page_says_how_many_points_its_example_has():
    page = (LABS.parents[1] / "book" / "instructors.md").read_text(encoding="utf-8")
    slug, points = re.search(
        r"allranks grade notebooks/labs/(\w+)\.ipynb` must print \*(\d+) of \2\*", page
    ).groups()
    assert len(runner.tasks_of(reading.read(LABS / f"{slug}.ipynb"))) == int(points)


def test_there_is_a_notebook_for_every_lab():
    assert {reading.read(path)["lab"] for path in LABS.glob("*.ipynb")} == set(reading.labs())


@pytest.mark.parametrize("path", sorted(LABS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_every_task_of_a_lab_has_its_functions(path):
    submission = reading.read(path)
    defined = "\n".join(source for _, source in submission["cells"])
    tasks = runner.tasks_of(submission)
    assert len(tasks) >= 6
    for _, _, names in tasks:
        assert all(re.search(rf"^(def {name}\(|class {name}\b)", defined, re.MULTILINE) for name in names)


@pytest.mark.parametrize("path", sorted(LABS.glob("*_solved.ipynb")), ids=lambda path: path.stem)
def test_nbgrader_gets_a_point_for_each_task_and_the_solutions_of_all(path, tmp_path, capsys):
    assert main(["nbgrader", str(path), "--out", str(tmp_path)]) == 0
    name = path.stem.removesuffix("_solved")
    assert capsys.readouterr().out.strip() == str(tmp_path / "source" / name / f"{name}.ipynb")
    content = json.loads((tmp_path / "source" / name / f"{name}.ipynb").read_text(encoding="utf-8"))
    cells = [cell for cell in content["cells"] if "nbgrader" in cell["metadata"]]
    assert len({cell["metadata"]["nbgrader"]["grade_id"] for cell in cells}) == len(cells)
    tests = [cell["source"] for cell in cells if cell["metadata"]["nbgrader"]["grade"]]
    assert len(tests) == len(runner.tasks_of(reading.read(path)))
    assert all("check.verdict(" in source for source in tests)
    text = json.dumps(content, ensure_ascii=False)
    assert "↓ yours" not in "".join(str(cell["source"]) for cell in cells)
    assert text.count("### BEGIN SOLUTION") == text.count("### END SOLUTION") > len(tests) - 2


def test_nbgrader_gets_no_lab_without_solutions(tmp_path, capsys):
    assert main(["nbgrader", str(LABS / "fsdp.ipynb"), "--out", str(tmp_path)]) == 2
    assert "give a solved lab" in capsys.readouterr().err


@pytest.mark.parametrize("path", sorted(LABS.glob("*_solved.ipynb")), ids=lambda path: path.stem)
def test_otter_gets_a_test_of_one_point_for_each_task(path, tmp_path, capsys):
    assert main(["otter", str(path), "--out", str(tmp_path)]) == 0
    folder = Path(capsys.readouterr().out.strip())
    assert folder == tmp_path / path.stem.removesuffix("_solved") / "tests"
    tasks = runner.tasks_of(reading.read(path))
    for number, (title, check, names) in enumerate(tasks, 1):
        source = (folder / f"task_{number}.py").read_text(encoding="utf-8")
        tree = ast.parse(source)
        assert f".{check.__name__}.__wrapped__" in source and "points = 1" in source
        constants = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
        assert {title, *names} <= constants
    assert len(list(folder.iterdir())) == len(tasks)


@pytest.mark.parametrize("path", sorted(LABS.glob("*_solved.ipynb")), ids=lambda path: path.stem)
def test_without_the_milestone_the_checks_name_the_functions(path):
    submission = reading.read(path)
    expected = [names for *_, names in runner.tasks_of(submission)]
    del submission["calls"]["milestone"]
    assert [names for *_, names in runner.tasks_of(submission)] == expected


def test_every_submission_has_inputs_and_weights_of_its_own(monkeypatch):
    seen = set()
    for draw in ("0", "1", "999999"):
        monkeypatch.setenv(labs.DRAW, draw)
        assert labs.digits().unique(dim=0).equal(model.digits().unique(dim=0))
        weights = lab_02_model(21).head.weight.detach()
        seen.add((*labs.digits()[:3].flatten().tolist(), *weights.flatten().tolist()))
    assert len(seen) == 3


def test_a_check_that_is_not_called_costs_its_points():
    line = runner.line_about(main, None, [])
    assert line.startswith("✗ No cell calls the milestone")


def test_no_function_of_a_submission_runs_in_the_graders_process():
    answer = answers.Answer([(1, "def f():\n    return 1")], "f")
    with pytest.raises(RuntimeError, match="f is called by the grader itself"):
        answer()


def test_an_attribute_of_a_class_of_a_submission_is_found_on_ranks_only():
    submission = answers.Answer([(1, "class Twice:\n    factor = 2")], "Twice")
    with pytest.raises(AttributeError):
        _ = submission.factor
    assert launch(lambda: submission.factor, world_size=1) == [2]


class Code:
    """Runs when it is unpickled."""

    def __reduce__(self):
        return pytest.fail, ("code ran in the process of the checks",)


@pytest.fixture
def only_plain_data(monkeypatch):
    """This process reads as a runner does."""
    for owner, name in ((pickling, "load"), (pickling.Unpickler, "find_class"), (ForkingPickler, "loads")):
        monkeypatch.setattr(owner, name, vars(owner)[name])
    runner.read_plain_data_only()


def read_back(value, save):
    file = io.BytesIO()
    save(value, file)
    file.seek(0)
    return packing.load(file)


@pytest.mark.usefixtures("only_plain_data")
@pytest.mark.parametrize(
    "read",
    [
        lambda: read_back([Code()], packing.save),
        lambda: read_back(Code(), pickle.dump),  # torch has another reader for a file that is no archive
        lambda: ForkingPickler.loads(pickle.dumps(Code())),
        lambda: ForkingPickler.loads(b"cos\nsystem\n."),
        lambda: ForkingPickler.loads(b"\x80\x04\x8c\x05torch\x8c\x0bTensor.norm\x93."),
    ],
)
def test_the_process_of_the_checks_reads_no_code(read):
    with pytest.raises(pickle.UnpicklingError, match="a result may hold"):
        read()


@pytest.mark.usefixtures("only_plain_data")
def test_the_process_of_the_checks_reads_tensors_and_plain_data():
    kinds = torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.bool, torch.uint8
    value = [{"a": (1, 2.0, None, kind, {3}), "b": torch.ones(2, 3, dtype=kind)} for kind in kinds]
    assert str(read_back(value, packing.save)) == str(value)


@pytest.mark.parametrize("arguments", [["grade", "nowhere.ipynb"], ["submit", "nowhere.ipynb"]])
def test_a_notebook_that_is_not_there_is_named(arguments, capsys):
    assert main(arguments) > 0
    printed = capsys.readouterr()
    assert "nowhere.ipynb" in printed.out + printed.err


def test_a_folder_stands_for_its_notebooks_without_checkpoints(tmp_path):
    for folder in ("a", ".ipynb_checkpoints", "a/.ipynb_checkpoints"):
        (tmp_path / folder).mkdir()
        written(tmp_path / folder, "lab", notebook(CALL))
    assert report.notebooks([tmp_path, tmp_path / "a"]) == [tmp_path / "a" / "lab.ipynb"]


# ---- grading ----

MISBEHAVING = {
    "imports": """
import not_installed
import statistics
import torch
import torch.distributed as dist
import torch.nn.functional as F
from allranks import check
from matplotlib import pyplot as plt
from torch.autograd.graph import saved_tensors_hooks
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

def passed(*anything, **options):
    return "It is right."

class Patched:
    for name in dir(check.lab_04):
        if not name.startswith("_"):
            getattr(check.lab_04, name).__wrapped__ = passed
    check.verdict = check.labs.verdict = lambda *_: "✓ It is right."
    check.labs.are_close = check.labs.is_tensor = passed
""",
    "cross_entropy": """
import os, subprocess
def cross_entropy(logits, targets):
    subprocess.Popen(["sleep", "600"], start_new_session=True)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execvp("sleep", ["sleep", "601"])
        os._exit(0)
    return logits.sum()
""",
    "unscale": "def unscale(optimizer, scale):\n    os._exit(0)",
    "lossscaler": "class LossScaler(Scaler):\n    def step(self, optimizer):\n        raise KeyError('no')",
    "clipped_step": """
def clipped_step(model, optimizer, scaler, max_norm):
    return "✓"
def shard(model, dtype, reduce_dtype):
    import shutil
    shutil.rmtree(os.path.expanduser("~"))
    shutil.rmtree(os.getcwd())
""",
    "rankscaler": """
import signal
def parent(pid):
    return int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
class RankScaler(LossScaler):
    def __init__(self, *anything):
        runner = parent(parent(os.getppid()))
        os.kill(runner, signal.SIGKILL)
""",
    "shard": "CHANGED = 2",
}
HANGING = "import time\ndef cross_entropy(logits, targets):\n    while True:\n        time.sleep(1)"


@pytest.fixture(scope="module")
def marks(tmp_path_factory):
    """What `grade` says of some submissions: name and record."""
    folder = tmp_path_factory.mktemp("submissions")
    written(folder, "right", solved())
    written(folder, "misbehaving", solved(**MISBEHAVING))
    written(folder, "empty", "")
    written(folder, "untitled", notebook())
    options = "--workers", "2", "--timeout", "600", "--seed", "1"
    assert main(["grade", str(folder), "--out", str(folder / "out"), *options]) == 1
    assert leftovers.gone(lambda: leftovers.ranks(os.environ[leftovers.TOKEN]), seconds=60) == {}
    records = json.loads((folder / "out" / "marks.json").read_text(encoding="utf-8"))["submissions"]
    with open(folder / "out" / "marks.csv", encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file))
    assert [row["points"] for row in table] == [str(record["points"]) for record in records]
    return {Path(record["submission"]).stem: record for record in records}


def test_the_solved_lab_has_all_points(marks):
    assert (marks["right"]["points"], marks["right"]["out_of"]) == (11, 11)
    assert len(marks["right"]["sha256"]) == 64
    assert marks["right"]["torch"]


def test_misbehaving_costs_a_task_its_points_and_no_other(marks):
    tasks = marks["misbehaving"]["tasks"]
    assert [task["points"] for task in tasks] == [1, 0, 0, 0, 0, 0, 0, 1, 0, 1, 1]
    assert marks["misbehaving"]["status"] == "graded"
    reasons = [task["reason"] for task in tasks]
    assert "exited" in reasons[2]
    assert "KeyError" in reasons[3]
    assert "ended the process that checks it" in reasons[5]


def test_what_is_no_lab_has_a_reason_and_no_points(marks):
    assert "is empty" in marks["empty"]["status"]
    assert "is not a lab" in marks["untitled"]["status"]


@pytest.mark.usefixtures("nothing_is_left_behind")
def test_a_task_that_hangs_ends_at_its_deadline_and_the_next_one_begins(tmp_path):
    path = written(tmp_path, "hanging", notebook(HANGING, "check.lab_04.cross_entropy(cross_entropy)"))
    record = report.graded(path, seconds=5.0, sandboxed=supervisor.has_sandbox(), seed=1)
    assert record["status"] == "graded"
    assert [task["points"] for task in record["tasks"]] == [0] * 11
    assert "did not finish" in record["tasks"][1]["reason"]


SPY = """
import os, pathlib, socket
def forward_backward(model, tokens, dtype, loss_function=None, scale=None):
    tries = {
        "file": lambda: open("SECRET").read(),
        "package": lambda: open("PACKAGE/spoilt.py", "w").close(),
        "network": lambda: socket.create_connection(("127.0.0.1", PORT), timeout=2),
        "process": lambda: os.kill(GRADER, 0),
    }
    done = []
    for name, reach in tries.items():
        try:
            reach()
            done.append(name)
        except OSError:
            pass
    raise RuntimeError(f"reached: {done}")
"""


@pytest.mark.skipif(not supervisor.shutil.which("bwrap"), reason="bubblewrap is not installed")
def test_in_the_sandbox_there_are_no_files_no_network_and_no_processes_of_others(tmp_path):
    if not supervisor.has_sandbox():
        pytest.skip("bubblewrap cannot start a sandbox here")
    secret = tmp_path / "secret"
    secret.touch()
    with socket.create_server(("127.0.0.1", 0)) as server:
        places = {"SECRET": secret, "PACKAGE": supervisor.PACKAGE, "PORT": server.getsockname()[1]}
        spy = SPY.replace("GRADER", str(os.getpid()))
        for name, place in places.items():
            spy = spy.replace(name, str(place))
        path = written(tmp_path, "spy", notebook(spy, "check.lab_04.forward_backward(forward_backward)"))
        record = report.graded(path, seconds=300.0, sandboxed=True, seed=1)
    assert "reached: []" in record["tasks"][0]["reason"]


# ---- draws ----


def test_a_point_that_a_draw_costs_is_named_with_the_command_that_repeats_it(monkeypatch, capsys):
    def graded(path, seconds, sandboxed, seed):
        tasks = [{"task": "one", "points": 1, "reason": "right"}]
        tasks += [{"task": "two", "points": int(seed != 8), "reason": "by chance"}]
        record = {"submission": str(path), "lab": "lab_03", "draw": 40 + seed, "status": "graded"}
        return record | {"tasks": tasks, "points": 2, "out_of": 2, "seconds": 1.0}

    monkeypatch.setattr(report, "graded", graded)
    monkeypatch.setattr(supervisor, "has_sandbox", lambda: False)
    assert draws.main(["lab_03", "--seed", "6", "--draws", "2"]) == 0
    assert "0 points lost in 2 gradings" in capsys.readouterr().out
    assert draws.main(["lab_03", "--seed", "7", "--draws", "3"]) == 1
    again = "python -m allranks grade notebooks/labs/fsdp_solved.ipynb --seed 8"
    said = capsys.readouterr().out
    assert f"lab_03, draw 48, two: ✗ by chance ({again})\n" in said
    assert "1 point lost in 3 gradings" in said


def test_the_sweep_grades_every_solved_lab():
    assert draws.solutions([]) == sorted(LABS.glob("*_solved.ipynb"), key=lambda p: reading.read(p)["lab"])
    assert len(draws.solutions([])) == len(reading.labs())


def test_a_line_that_cannot_be_printed_costs_no_marks(tmp_path, monkeypatch):
    (tmp_path / "Müller.ipynb").write_text("{}")
    with open(tmp_path / "printed", "w", encoding="ascii") as printed:
        monkeypatch.setattr(sys, "stdout", printed)
        report.grade([tmp_path / "Müller.ipynb"], tmp_path / "marks", 1, 60, False, 0)
    assert "Müller" in (tmp_path / "marks" / "marks.csv").read_text(encoding="utf-8")


@pytest.mark.parametrize("command", ["grade", "nbgrader", "otter"])
def test_where_nothing_can_be_written_is_said_before_the_work(command, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(report, "graded", None)  # it is not called
    lab, out = tmp_path / "lab.ipynb", tmp_path / "marks"
    lab.write_text("{}")
    out.write_text("a file")
    assert main([command, str(lab), "--out", str(out)]) == 2
    assert f"--out {out} cannot be written ({out}: File exists): name a folder." in capsys.readouterr().err
    assert out.read_text() == "a file"


def test_marks_that_cannot_be_written_are_named_before_the_grading(tmp_path, capsys):
    (tmp_path / "lab.ipynb").write_text("{}")
    (tmp_path / "marks.csv").mkdir()
    assert main(["grade", str(tmp_path / "lab.ipynb"), "--out", str(tmp_path)]) == 2
    assert "marks.csv: Is a directory" in capsys.readouterr().err


def test_a_file_to_hand_in_that_cannot_be_written_is_said(tmp_path, capsys, monkeypatch):
    record = {
        "tasks": [],
        "notes": [],
        "status": "graded",
        "points": 0,
        "out_of": 0,
        "submission": "",
        "lab": "",
    }
    monkeypatch.setattr(report, "graded", lambda *_: record)
    (tmp_path / "lab.ipynb").write_text('{"cells": []}')
    (tmp_path / "lab_to_hand_in.ipynb").mkdir()
    assert main(["submit", str(tmp_path / "lab.ipynb")]) == 2
    assert "lab_to_hand_in.ipynb cannot be written" in capsys.readouterr().err


def test_cells_are_parsed_on_many_threads():
    """CPython 3.11 and 3.12 fail if a collection of garbage lets another thread in between two nodes."""
    sources = ["\n".join(f"def f{k}(a, b=[1, 2, {k}]): return a + b[0] * (a - {k})" for k in range(60))] * 40
    before, interval = gc.get_threshold(), sys.getswitchinterval()
    collected = [lambda *_: sum(range(50))]
    gc.callbacks.extend(collected)
    try:
        gc.set_threshold(20, 2, 2)
        sys.setswitchinterval(1e-6)
        with ThreadPoolExecutor(4) as pool:
            trees = list(pool.map(lambda source: reading.parsed(source)[0], sources))
    finally:
        gc.set_threshold(*before)
        sys.setswitchinterval(interval)
        gc.callbacks.remove(collected[0])
    assert {len(tree.body) for tree in trees} == {60}
