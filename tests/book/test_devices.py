"""The page of hardware shows every record with its source, and what it says of records is so."""

import re
from pathlib import Path

import pytest
from allranks_book import devices

from allranks import plan
from allranks.hardware import ACCELERATORS, LINKS, link
from allranks.transformer import PRESETS

PAGE = Path(__file__).resolve().parents[2] / "book" / "hardware.md"


@pytest.mark.parametrize("made, records", [(devices.accelerators(), ACCELERATORS), (devices.links(), LINKS)])
def test_each_record_is_a_row(made, records):
    assert [re.search("`(.*?)`", row)[1] for row in made.splitlines()[2:]] == list(records)
    assert len({row.count("|") for row in made.splitlines()}) == 1


def test_each_record_has_its_source_and_its_year():
    records = [*ACCELERATORS.values(), *LINKS.values()]
    for row, record in zip(devices.sources().splitlines(), records, strict=True):
        assert row.startswith(f"- `{record.name}`: {record.source.partition('; α')[0]}")
        assert row.count(record.date) == 1


def test_a_row_has_memory_bandwidth_peaks_and_ridge():
    row = next(row for row in devices.accelerators().splitlines() if "`h100`" in row)
    assert row == "| `h100` | 80 GB | 3.35 TB/s | 989 | 1,979 |  | 295 |"
    assert "| `nvlink-4` | 450 GB/s | 3.4 µs |" in devices.links()


def test_the_planner_takes_the_records_that_the_page_makes():
    program = re.search("```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[1]
    made = {}
    exec(program, made)
    (best, *_) = plan.plans(
        PRESETS["llama3-8b"], made["chip"], 16, 64, inside=link("nvlink-4"), between=made["cable"]
    )
    assert best.layout.tp * best.layout.cp * best.layout.pp * best.layout.dp == 16


def test_a_chapter_says_between_what_the_ridges_lie():
    ridges = [int(row.split("|")[-2]) for row in devices.accelerators().splitlines()[2:]]
    text = (PAGE.parents[1] / "notebooks/foundations/one_device.ipynb").read_text(encoding="utf-8")
    assert f"the ridges of other accelerators, from {min(ridges)} to {max(ridges)}." in text
