"""The numbers of the operator's page are computed from the values, the planner and what was measured."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("sizing", ROOT / "deploy" / "sizing.py")
sizing = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(sizing)


def test_the_page_shows_the_tables_as_they_are_computed_now():
    assert sizing.written() == sizing.PAGE.read_text(), "python deploy/sizing.py --write"


def test_a_changed_value_changes_the_page(monkeypatch):
    monkeypatch.setitem(sizing.READER["memory"], "guarantee", "4G")
    assert sizing.readers() not in sizing.PAGE.read_text()


def test_a_quantity_in_another_unit_is_refused():
    with pytest.raises(ValueError, match="1500M is not a number of G"):
        sizing.gib("1500M")


def test_a_reader_is_guaranteed_what_a_session_was_measured_to_take():
    measured = (ROOT / "benchmarks" / "README.md").read_text()
    (megabytes,) = re.findall(r"at most (\d+) MB, \d+ processes", measured)
    assert int(megabytes) * 1e6 <= sizing.gib(sizing.READER["memory"]["guarantee"]) * 2**30


def test_the_page_speaks_of_the_culler_as_the_values_set_it():
    minutes = sizing.VALUES["cull"]["timeout"] // 60
    assert f"{minutes} minutes" in sizing.PAGE.read_text()


def test_the_page_has_the_size_of_the_running_model_and_the_version_of_cuda():
    parameters = sizing.transformer.parameters(sizing.transformer.PRESETS["running"])
    assert f"some {round(parameters, -5):,} parameters".replace(",", " ") in sizing.PAGE.read_text()
    (version,) = re.findall(
        r"^cuda-toolkit==(\d+\.\d+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE
    )
    assert f"bring CUDA {version}," in sizing.PAGE.read_text()


def test_every_file_that_the_page_names_is_there():
    links = re.findall(r"\]\((?!https?:)([^)#]+)", sizing.PAGE.read_text())
    missing = [link for link in links if not (sizing.HERE / link).exists()]
    assert len(links) > 5 and missing == []
