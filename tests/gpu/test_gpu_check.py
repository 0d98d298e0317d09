"""`make gpu-check` runs dry on a CPU, and says clearly what it cannot do."""

import importlib.util
import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from gpu_check import PARTS, RUN, check
from on_gpu import forbidden, machine, suites, table

from allranks import measured

ROOT = Path(__file__).resolve().parent.parent.parent
CPU = machine.Machine("cpu", "CPU dry run", 0, machine.DRY_MEMORY, None)
H100 = machine.Machine("cuda", "NVIDIA H100 80GB HBM3", 1, 85 * 10**9, "h100")


@pytest.fixture(scope="module")
def dry_run(tmp_path_factory):
    """All parts but the launch tests, which are in this folder and run by themselves."""
    folder = tmp_path_factory.mktemp("gpu-check")
    parts = [part for part in PARTS if part != "launch"]
    command = [sys.executable, str(ROOT / "tools" / "gpu_check.py"), *parts, "--to", str(folder)]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=3600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads((folder / "cpu-dry-run.json").read_text())
    return results, (folder / "cpu-dry-run.md").read_text(), done.stdout


def test_without_a_gpu_the_command_says_why_and_runs_dry(dry_run):
    results, page, said = dry_run
    assert said.startswith("No GPU to check: torch ")
    assert "This is a dry run on the CPU." in said
    assert table.DRY_RUN in page
    assert results["machine"]["device"] == "cpu"
    assert sorted(results["parts"]) == ["kernels", "memory", "nccl", "notebooks", "speed", "training"]


def test_a_notebook_runs_and_none_of_its_cells_fails(dry_run):
    (suite,) = dry_run[0]["parts"]["notebooks"]["suites"]
    assert suite["passed"] > 10  # cells
    assert (suite["failed"], suite["skipped"], suite["failures"]) == (0, 0, [])


def test_every_count_of_bytes_is_what_the_formula_says(dry_run):
    compared = [row for row in dry_run[0]["parts"]["memory"]["rows"] if row["slack"] is not None]
    assert len(compared) == 9
    for row in compared:
        assert abs(row["counted"] - row["formula"]) <= row["slack"], row["what"]
        assert 0 <= row["slack"] <= row["formula"] / 100


def test_every_ceiling_and_every_pair_has_its_row(dry_run):
    speed = dry_run[0]["parts"]["speed"]
    assert [name for name, *_ in speed["matmul"]] == [
        d for d in ("bf16", "fp16", "tf32", "fp32") for _ in "12"
    ]
    assert all(rate > 0 for *_, rate in speed["matmul"] + speed["copy"])
    for nbytes, seconds, bus in speed["all_reduce"]:
        assert bus == pytest.approx(nbytes / seconds)  # 2(n-1)/n is 1 for two ranks
    ours = ["bucketed DDP", "ZeRO-3", "tensor parallel", "attention ring"]
    assert [pair["ours"] for pair in speed["pairs"]] == ours
    for pair in speed["pairs"]:
        assert pair["ratio"] == pytest.approx(pair["ours_seconds"] / pair["torch_seconds"])
        assert f"| {pair['ours']} : {pair['torch']} |" in dry_run[1]


def test_the_mfu_is_6_flops_a_weight_and_token_and_those_of_attention(dry_run):
    found = dry_run[0]["parts"]["training"]
    shape = found["shape"]
    l, h, s, v = (shape[name] for name in ("layers", "hidden", "sequence", "vocabulary"))  # noqa: E741
    tokens = found["batch"] * s
    flops = 6 * tokens * (12 * l * h * h + v * h) + 12 * tokens * l * s * h
    assert found["mfu"] == pytest.approx(flops / found["step_seconds"] / found["peak"])
    assert found["tokens_per_second"] == pytest.approx(tokens / found["step_seconds"])
    assert sum(found["by_kind"].values()) == pytest.approx(found["step_seconds"])
    assert found["losses"][1] < found["losses"][0]
    assert f"an MFU of {100 * found['mfu']:.1f} %" in found["paragraph"]


def test_every_question_about_kernels_has_an_answer_and_its_table(dry_run):
    found = dry_run[0]["parts"]["kernels"]
    questions = [
        "rows",
        "cut",
        "attention",
        "launches",
        "link",
        "beside",
        "passes",
        "recomputation",
        "adam",
        "decoding",
    ]
    assert all(found[name] for name in questions) and not found["problems"]
    assert [n for n, *_ in found["rows"]] == [1, 4]
    assert {how for _, how, *_ in found["attention"]} == {"scores", "tiles"}
    assert set(found["passes"]) == {"F", "B", "W", "backward"}
    assert [n for n, *_ in found["recomputation"]] == [0, 1, 2]
    for title in ("AdamW's step on 10,000 parameters", "by the rows of x", "Copies between host and device"):
        assert title in dry_run[1]


def test_the_repaired_programs_of_the_page_do_under_gloo_what_they_have_to(dry_run):
    found = dry_run[0]["parts"]["nccl"]
    assert [name for _, name, *_ in found["outcomes"]] == list(forbidden.REPAIRED)
    assert not found["problems"]
    assert len(found["trace"]["ranks"]) == 2 and found["trace"]["kinds"] == ["all_reduce"]


def test_a_repaired_program_that_returns_something_else_is_a_problem():
    wrong = [(6, "read_late", [], "returned [3.0, 6.0]", 1, 1), (6, "read_early", [], "returned [0]", 1, 1)]
    assert forbidden.broken(wrong) == ["read_late returned [3.0, 6.0], not [6.0, 6.0]"]


def test_nccl_s_part_is_not_run_with_fewer_gpus_than_ranks_unless_they_may_share_one(monkeypatch, tmp_path):
    monkeypatch.delenv("NCCL_MULTI_RANK_GPU_ENABLE", raising=False)
    results = RUN["nccl"](H100, tmp_path)
    assert results["problems"] == [] and "NCCL 2.30" in results["why"]
    assert list(table.SECTIONS["nccl"](results)) == [results["why"]]


def test_the_committed_page_of_each_machine_is_made_of_its_committed_results():
    for name in measured.machines():
        found = measured.results(name)
        page = table.page_of(table.COMMITTED / f"{name}.json")
        assert page.read_text(encoding="utf-8") == table.page(found)


def test_a_cell_s_failure_is_told_by_what_it_raised():
    cell = ElementTree.Element("failure", message="#x1B[91mNotebook cell execution failed#x1B[0m")
    cell.text = "#x1B[94mTraceback:#x1B[0m\n\nRankFailed: rank 1 raised ValueError: no\nrank 0: waits\n"
    assert suites.said(cell) == "RankFailed: rank 1 raised ValueError: no"
    other = ElementTree.Element("failure", message="AssertionError: 1 == 2\nmore")
    assert suites.said(other) == "AssertionError: 1 == 2"


def test_parts_are_added_to_the_page_one_by_one(tmp_path):
    suite = suites.Ended("launch", "ranks", 3, 1, 0, 2.0, [("a test", "its message")])._asdict()
    results = {"suites": [suite], "problems": ["a test: its message"], "date": "2026-11-22", "seconds": 2.0}
    path = table.path_of(H100, tmp_path)
    assert path.name == "nvidia-h100-80gb-hbm3.json"
    table.add(path, H100, {"torch": "2.13"}, "launch", results)
    table.add(path, H100, {"torch": "2.13"}, "notebooks", {**results, "problems": []})
    page = path.with_suffix(".md").read_text()
    assert page.startswith("# NVIDIA H100 80GB HBM3\n")
    assert page.index("## Ranks and their faults") < page.index("## Notebooks")
    assert page.count("| ranks | 3 | 1 | 0 | 2 |") == 2
    assert page.count("- a test: its message") == 1
    assert table.DRY_RUN not in page
    assert table.path_of(H100._replace(gpus=8), tmp_path).name == "8x-nvidia-h100-80gb-hbm3.json"


def test_results_of_a_gpu_are_kept_in_the_repository_and_those_of_a_dry_run_are_not():
    committed = table.path_of(H100)
    assert committed.parent == ROOT / "allranks" / "measured"
    assert table.page_of(committed) == ROOT / "benchmarks" / "gpu" / "nvidia-h100-80gb-hbm3.md"
    assert table.path_of(CPU).parent == ROOT / "_build" / "gpu_check"


def test_one_rank_s_all_reduce_is_said_to_move_nothing():
    results = {
        "copy": [(2**30, 3e12)], "matmul": [("bf16", 8192, 8e14)], "published": {"bf16": 989.4e12},
        "ranks": 1, "backend": "nccl", "rounds": 15, "all_reduce": [(2**30, 1e-5, 0.0)], "problems": [],
        "pairs": [{"ours": "ZeRO-3", "torch": "fully_shard"}],
    }  # fmt: skip
    text = "\n".join(table.SECTIONS["speed"](results))
    assert "nothing moves" in text
    assert "| 1 GiB | 10 | – |" in text
    assert "| of the published peak | 80.9 % |" in text
    assert "| ZeRO-3 : fully_shard | failed | failed | – |" in text


def test_a_part_that_cannot_run_is_a_problem_and_the_others_go_on(monkeypatch, tmp_path):
    def refuse(part):
        if part == "launch":
            raise machine.NotPossible("launch needs numpy")

    monkeypatch.setattr(machine, "need", refuse)
    fine = {"suites": [], "problems": []}
    monkeypatch.setitem(RUN, "notebooks", lambda machine, folder: dict(fine))
    assert check(CPU, ["launch", "notebooks"], tmp_path) == ["launch: launch needs numpy"]
    assert list(json.loads((tmp_path / "cpu-dry-run.json").read_text())["parts"]) == ["notebooks"]


def test_a_part_that_breaks_off_is_a_problem_and_the_others_go_on(monkeypatch, tmp_path):
    def break_off(machine, folder):
        raise RuntimeError("no Triton here\nand more")

    monkeypatch.setitem(RUN, "training", break_off)
    monkeypatch.setitem(RUN, "notebooks", lambda machine, folder: {"suites": [], "problems": []})
    problems = check(CPU, ["training", "notebooks"], tmp_path)
    assert problems == ["training broke off: RuntimeError: no Triton here"]
    assert list(json.loads((tmp_path / "cpu-dry-run.json").read_text())["parts"]) == ["notebooks"]


def test_what_is_missing_is_named_with_the_command_that_installs_it():
    def without_nbval(module):
        return None if module in ("nbval", "ipykernel") else importlib.util.find_spec("os")

    with pytest.raises(machine.NotPossible) as refused:
        machine.need("notebooks", without_nbval)
    assert str(refused.value) == (
        "notebooks needs nbval, jupyterlab, which is not installed here. "
        "Install it: pip install -r requirements.txt -c constraints.txt"
    )
    machine.need("training", without_nbval)


@pytest.mark.parametrize(
    "built_for, driver, visible, complaint, said",
    [
        (None, True, None, "", "was built without CUDA. Install one with it"),
        ("13.0", True, "", "", "CUDA_VISIBLE_DEVICES='' hides every GPU. Unset it."),
        ("13.0", True, "-1", "", "CUDA_VISIBLE_DEVICES='-1' hides every GPU. Unset it."),
        ("13.0", False, None, "", "NVIDIA's driver is not here: there is no /dev/nvidiactl."),
        ("13.0", True, "0", "driver too old", "do not work together: driver too old. See nvidia-smi"),
    ],
)
def test_why_there_is_no_gpu_is_said(built_for, driver, visible, complaint, said):
    assert said in machine.why_no_gpu("2.13.0", built_for, driver, visible, complaint)


def test_a_gpu_that_is_not_there_is_refused():
    asked = [sys.executable, str(ROOT / "tools" / "gpu_check.py"), "--device", "cuda"]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(asked, capture_output=True, text=True, env=environment, timeout=600, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("gpu-check: torch ")


def test_on_a_gpu_the_suites_are_all_notebooks_and_the_launch_tests_on_both_devices():
    (notebooks,) = suites.notebook_suites(H100, workers=4)
    assert str(ROOT / "notebooks") in notebooks.options and "--nbval-lax" in notebooks.options
    on_device, on_cpu = suites.launch_suites(H100)
    files = [option for suite in (on_device, on_cpu) for option in suite.options if option.endswith(".py")]
    assert len(files) >= 6 and all(Path(file).is_file() for file in files)
    assert suites.ON_GPU in suites.environment(on_device, H100)
    assert suites.environment(on_cpu, H100)["CUDA_VISIBLE_DEVICES"] == ""
    assert suites.ON_GPU not in suites.environment(on_device, CPU)


def test_the_command_that_the_launch_tests_run_under_finds_them():
    (suite,) = suites.launch_suites(CPU)
    command = [sys.executable, "-m", "pytest", "--collect-only", *suite.options]
    environment = suites.environment(suite, CPU)
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout
    assert "test_a_rank_that_raises_is_named_while_the_others_wait" in done.stdout


@pytest.fixture
def without_plugins(monkeypatch):
    """A suite of two lines needs none, and their imports take longer than it does."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


@pytest.mark.parametrize(
    "source, passed, failed, message",
    [
        ("def test_one(): pass\ndef test_two(): assert 1 == 2, 'not so'", 1, 1, "AssertionError: not so"),
        ("import nowhere_to_be_found", 0, 1, "collection failure"),
    ],
)
def test_a_suite_s_failures_come_with_their_messages(
    tmp_path, without_plugins, source, passed, failed, message
):
    (tmp_path / "test_it.py").write_text(source)
    suite = suites.Suite(
        "small", "two tests", False, [str(tmp_path / "test_it.py"), "-q", "--rootdir", str(tmp_path)]
    )
    found = suites.run(suite, CPU, tmp_path, 600)
    assert (found.passed, found.failed) == (passed, failed)
    assert message in found.failures[0][1]


def test_a_suite_that_does_not_end_is_a_failure(tmp_path, without_plugins):
    (tmp_path / "test_it.py").write_text("import time\ndef test_long(): time.sleep(60)")
    suite = suites.Suite("long", "a long test", False, [str(tmp_path / "test_it.py"), "-q"])
    assert suites.run(suite, CPU, tmp_path, 3).failures == [("long", "pytest was still running after 3 s")]
