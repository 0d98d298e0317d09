"""The closing lines of the checks are sums of what the stages reported."""

from pathlib import Path

import pytest
from totals import skipped, slowest, summary, totals

REPORT = '<testsuites><testsuite tests="{}" failures="{}" errors="{}" skipped="{}"/></testsuites>'


def reports(folder, *stages):
    for number, counts in enumerate(stages):
        (folder / f"{number}.xml").write_text(REPORT.format(*counts))
    return totals(folder)


@pytest.mark.parametrize(
    "stages, failed_stage, lines",
    [
        ([], None, ["0 passed in 1.00s", "0 passed, 0 failed"]),
        ([(5, 0, 0, 0), (3, 0, 0, 1)], None, ["7 passed, 1 skipped in 1.00s", "7 passed, 0 failed"]),
        ([(5, 2, 1, 0)], "tests", ["3 failed, 2 passed in 1.00s", "2 passed, 3 failed"]),
        ([(5, 0, 0, 0)], "book", ["1 failed, 5 passed in 1.00s", "5 passed, 1 failed"]),
        ([], "ruff check", ["1 failed, 0 passed in 1.00s", "0 passed, 1 failed"]),
    ],
)
def test_the_totals_add_up(tmp_path, stages, failed_stage, lines):
    assert summary(reports(tmp_path, *stages), 1.0, failed_stage).splitlines() == lines


def test_the_slowest_tests_are_named_over_all_stages(tmp_path):
    for stage, seconds in (("a", 3), ("b", 12.25), ("c", 1)):
        test = f'<testcase classname="{stage}" name="test_it" time="{seconds}"/>'
        (tmp_path / f"{stage}.xml").write_text(f"<testsuites><testsuite>{test}</testsuite></testsuites>")
    assert slowest(tmp_path, 2) == ["  12.2 s  b::test_it", "   3.0 s  a::test_it"]


def test_the_reasons_of_what_is_skipped_are_counted_over_all_stages(tmp_path):
    for stage, reasons in (("a", ["no GPU", "no Slurm"]), ("b", ["no Slurm"])):
        tests = "".join(f'<testcase><skipped message="{reason}"/></testcase>' for reason in reasons)
        (tmp_path / f"{stage}.xml").write_text(f"<testsuites><testsuite>{tests}</testsuite></testsuites>")
    assert skipped(tmp_path) == ["     2 skipped: no Slurm", "     1 skipped: no GPU"]


def test_every_test_file_has_a_name_of_its_own():
    names = [path.name for path in Path(__file__).parents[1].rglob("test_*.py")]
    assert sorted(names) == sorted(set(names)), "pytest imports test files by their names alone"
