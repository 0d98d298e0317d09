"""Every published number is recomputed, and has the status that the numbers have."""

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from allranks import claims
from allranks.claims import ledger, page

pytestmark = pytest.mark.stamped(None)  # entries import what they compute with by name, so these run always
ROOT = Path(__file__).resolve().parents[2]
IDS = list(ledger.entries())
CITED = page.citations(ROOT / "notebooks")


# ---- the ledger itself ----


@pytest.mark.parametrize("id", IDS)
def test_an_entry_has_the_status_that_the_numbers_have(id):
    assert ledger.entries()[id].problem() is None


def bibliography():
    """The key of each entry of the book's bibliography, with its text."""
    text = (ROOT / "book" / "references.bib").read_text(encoding="utf-8")
    return dict(re.findall(r"^@\w+\{([\w-]+),(.*?)^\}", text, re.MULTILINE | re.DOTALL))


def test_every_paper_is_in_the_bibliography():
    assert set(ledger.papers()) - set(bibliography()) == set()


@pytest.mark.parametrize("key", ledger.papers())
def test_a_paper_is_named_with_the_year_and_first_author_of_the_bibliography(key):
    entry = bibliography()[key]
    first = re.search(r"author\s*= \{\{?([^,{}]+)", entry).group(1)
    year = re.search(r"year\s*= \{(\d+)\}", entry)
    name = ledger.papers()[key]
    assert f"({first}" in name
    assert year is None or name.endswith(f"{year.group(1)})")


def test_what_is_not_reproduced_is_explained_in_two_sentences():
    unexplained = {
        claim.id: claim.why
        for claim in ledger.entries().values()
        if claim.status in ("erratum", "differs") and len(re.findall(r"[.!?](?= |$)", claim.why)) < 2
    }
    assert unexplained == {}


def test_every_cited_id_exists():
    assert set(CITED) - set(IDS) == set()


def test_what_a_chapter_shows_of_an_entry_is_what_it_says_now():
    now = {claims.line(claim) for claim in ledger.entries().values()}
    notebooks = sorted((ROOT / "notebooks").glob("*/*.ipynb"))
    shown = [line for notebook in notebooks for line in lines_of_checks(notebook)]
    assert len(shown) > 100 and set(shown) - now == set(), "run those notebooks again: tools/nb.py run"


def lines_of_checks(notebook):
    """The lines that the cells of a notebook with `claims.check` have stored about entries."""
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code" and "claims.check" in "".join(cell["source"]):
            printed = "".join("".join(output.get("text", "")) for output in cell["outputs"])
            yield from (line for line in printed.splitlines() if ": printed " in line)


def test_what_is_counted_adds_up():
    table = claims.table()
    counts = {status: sum(claim.status == status for claim in table.claims) for status in ledger.STATUSES}
    assert sum(counts.values()) == len(IDS)
    assert table.summary().startswith(f"{len(IDS)} published numbers of ")
    assert f"{counts['reproduced']} recomputed and as printed" in table.summary()


def test_importing_the_claims_is_cheap():
    shown = "import sys, allranks.claims; print({'yaml', 'torch', 'allranks.transformer'} & set(sys.modules))"
    result = subprocess.run(
        [sys.executable, "-c", shown], capture_output=True, text=True, check=True, timeout=60
    )
    assert result.stdout == "set()\n"


# ---- what the page shows ----


def test_the_page_holds_every_entry_and_stays_small():
    html = claims.table(ROOT / "notebooks")._repr_html_()
    assert re.findall(r"<tr id='([^']+)'", html) == IDS
    assert len(html.encode()) < 200_000


def test_the_errata_hold_every_entry_that_is_not_as_printed():
    html = claims.errata()._repr_html_()
    apart = {claim.id for claim in ledger.entries().values() if claim.status in ("erratum", "differs")}
    assert set(re.findall(r"<li id='why-([^']+)'", html)) == apart


def test_citations_are_read_from_the_code_of_the_notebooks(tmp_path):
    (tmp_path / "part").mkdir()
    cells = [
        {"cell_type": "markdown", "source": ["# A chapter\n", "claims.check('no')"]},
        {"cell_type": "code", "source": ["claims.check('a', \"b\")\n", "claims.check('a')"]},
        {"cell_type": "code", "source": ["not ( python"]},
    ]
    (tmp_path / "part" / "one.ipynb").write_text(json.dumps({"cells": cells}))
    assert page.citations(tmp_path) == {id: [("part/one", "A chapter")] for id in "ab"}


# ---- every number that the project set out to reproduce ----

# What these papers print, copied a second time and apart from the ledger's files; formulas are in FORMULAS.
PUBLISHED = {
    "rajbhandari2020": """
        120 31.4 16.6 1.9 24 12
        120 120 120 2048 2048 2048 16000 16000 16000
        52.5 41.3 30 896 704 512 7000 5500 4000
        35.6 21.6 7.5 608 368 128 4750 2875 1000
        31.4 16.6 1.88 536 284 32 4187 2218 250
        30.4 15.4 0.47 518 263 8 4046 2054 62.5
        30.1 15.1 0.12 513 257 2 4011 2013 15.6
        2B 7.6B 14.4B 128B 4B 15.2B 28.8B 256B 8B 30.4B 57.6B 0.5T
        16B 60.8B 115.2B 1T 32B 121.6B 230.4B 2T""",
    "huang2019": """
        282.2M 785.8M 5.3B 21.0B 83.9B 11.7 8.8 59.5 235.1 937.9 3.15 6.4 50.9 199.9 796.1""",
    "narayanan2021": """
        1.7 3.6 7.5 18.4 39.1 76.1 145.6 310.1 529.6 1008.0
        137 138 142 135 138 140 148 155 163 163
        44% 44% 46% 43% 44% 45% 47% 50% 52% 52% 34""",
    "korthikanti2022": "80 64 22B 175B 530B 1T",
    "grattafiori2024": "430 400 380 43% 41% 38% 3.8e25 4",
    "micikevicius2018": "2⁻²⁴ 5% 65504",
    "you2020": """
        1000k 500k 250k 125k 62k 31k 15.6k 8599 76.19
        90.720 90.377 90.751 90.548 90.556 90.679 91.460 90.584""",
    "aji2017": "99 49 22",
    "lin2018": "97 232.56 97.49 75 597 277 462 608",
    "douillard2025": "66 1117 20 8 16 36 400 8 441 1.10 4.42 11.05 109 0.88 438 3.5 1097 8.75",
    "tang2021": "5 16",
    "jordan2024": "0.7 0.5",
    "ren2021": "4 16 14 4 2 8",
    "wang2023": "0.75 4",
    "rajbhandari2021": "70 4 1.5",
    "lepikhin2021": "600B 2048 4 16 3.6",
    "shoeybi2019": "8.3B 512 76 77",
    "goyal2017": "8192 3.2 100 12.8 23.60 23.74",
    "hoffmann2022": """
        1.92e19 1.21e20 1.23e22 5.76e23 3.85e24 9.90e24 3.43e25 1.27e26 1.30e28
        8.0B 20.2B 205.1B 1.5T 3.7T 5.9T 11.0T 21.2T 216.2T""",
}
FORMULAS = """
    zero-os zero-os-g zero-os-g-p zero-volume-0-psi zero-volume-2-psi zero-volume-3-psi
    gpipe-bubble narayanan-bubble narayanan-interleaved-bubble narayanan-boundary
    narayanan-eq2 narayanan-eq3 narayanan-tensor-parallel-volume
    korthikanti-tensor-parallel-calls korthikanti-sequence-parallel-all-gathers
    korthikanti-sequence-parallel-reduce-scatters
    korthikanti-layer korthikanti-tensor-parallel korthikanti-sequence-parallel korthikanti-selective
    korthikanti-selective-sequence-parallel korthikanti-full korthikanti-interleaving
    zb-table1-f zb-table1-b zb-table1-w zb-table2-1f1b zb-table2-zb-h1 zb-table2-zb-h2
    zb-table2-1f1b-memory zb-table2-zb-h1-memory zb-table2-zb-h2-memory
    dualpipe-table2-1f1b-bubble dualpipe-table2-zb1p-bubble dualpipe-table2-dualpipe-bubble
    dualpipe-table2-dualpipe-parameters dualpipe-table2-dualpipe-activations
    nccl-busbw-all-reduce nccl-busbw-reduce-scatter nccl-busbw-all-gather nccl-busbw-all-to-all
    nccl-busbw-broadcast patarasuk-ring thakur-tree-broadcast
    kv-cache-gpt-3-kib kv-cache-llama-2-7b-kib kv-cache-llama-3-8b-kib kv-cache-llama-3-70b-kib
    kv-cache-llama-3-405b-kib
    zero-infinity-weights zero-infinity-optimizer zero-infinity-checkpoints zero-infinity-efficiency
"""


@pytest.mark.parametrize("paper", PUBLISHED)
def test_the_numbers_that_a_paper_is_known_for_are_in_the_ledger(paper):
    held = Counter(
        re.sub(r"[, ]", "", claim.printed) for claim in ledger.entries().values() if claim.paper == paper
    )
    assert Counter(PUBLISHED[paper].split()) - held == Counter()


def test_the_formulas_that_papers_are_known_for_are_in_the_ledger():
    assert set(FORMULAS.split()) - set(IDS) == set()
