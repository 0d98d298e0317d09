"""Every published number is recomputed, and has the status that the numbers have."""

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import yaml

from allranks import claims
from allranks.claims import expressions, ledger, page, printed

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


# ---- how numbers are compared ----


@pytest.mark.parametrize(
    "text, number, rounding",
    [
        ("31.4", 31.40625, "nearest"),
        ("41.3", 41.25, "nearest"),
        ("4187", 4187.5, "truncated"),
        ("8", 7.01, "up"),
        ("0.12", 0.1171875, "nearest"),
        ("1.92e19", 1.924e19, "nearest"),
        ("9.90e24", 9.897e24, "nearest"),
        ("1.3 × 10²³", 1.31e23, "nearest"),
        ("1.3×10^23", 1.31e23, "nearest"),
        ("0.5T", 512e9, "nearest"),
        ("128B", 128.4e9, "nearest"),
        ("44%", 0.4391, "nearest"),
        ("4,718,592", 4718592, "nearest"),
        ("−2.5", -2.5, "nearest"),
        ("2⁻²⁴", 2**-24, "nearest"),
        ("2^16", 65536, "nearest"),
        ("0.3", 0.1 + 0.2, "truncated"),
    ],
)
def test_a_number_agrees_with_the_printed_string(text, number, rounding):
    assert printed.parse(text).agrees(number, rounding)
    assert printed.parse(text).show(number, rounding) == text


@pytest.mark.parametrize(
    "text, number, rounding, shown",
    [
        ("31.4", 31.46, "nearest", "31.5"),
        ("4187", 4187.5, "nearest", "4188"),
        ("8", 7.01, "nearest", "7"),
        ("128B", 131.2e9, "nearest", "131B"),
        ("44%", 0.5, "nearest", "50%"),
        ("1.92e19", 1.93e19, "nearest", "1.93e19"),
        ("1.92e19", 2.3e20, "nearest", "23.00e19"),
        ("76", 123456.7, "nearest", "123,457"),
        ("0.12", 1e-5, "nearest", "1e-05"),
        ("2⁻²⁴", 2**-23, "nearest", "1.192e-07"),
        ("5", float("inf"), "nearest", "inf"),
    ],
)
def test_a_number_that_does_not_agree_is_shown_in_the_same_manner(text, number, rounding, shown):
    assert not printed.parse(text).agrees(number, rounding)
    assert printed.parse(text).show(number, rounding) == shown


@pytest.mark.parametrize("text", ["about 5", "2Ψ", "", "1,00", "5 GB", "1e"])
def test_what_is_not_a_number_is_said(text):
    with pytest.raises(ValueError, match="is not a number as papers print them"):
        printed.parse(text)


# ---- what an expression may name ----


@pytest.mark.parametrize(
    "source, value", [("2 * 3", 6), ("math.ceil(2.5)", 3), ("sum(n for n in range(4))", 6), ("row[1]", 7)]
)
def test_an_expression_is_arithmetic(source, value):
    assert expressions.value(source, {"row": [5, 7]}) == value


@pytest.mark.parametrize(
    "source, complaint",
    [
        ("open('x')", "names 'open'"),
        ("__import__('os')", "names '__import__'"),
        ("math.__loader__", "'__loader__', which is private"),
        ("launch.launch", "names 'launch'"),
        ("import os", "is not Python"),
        ("1 / 0", "ZeroDivisionError"),
        ("math.nothing", "AttributeError"),
        ("'31.4'", "which is not a number"),
        ("1 == 1", "which is not a number"),
    ],
)
def test_an_expression_that_is_no_arithmetic_is_refused(source, complaint):
    with pytest.raises(ValueError, match=re.escape(complaint)):
        expressions.value(source)


# ---- what is wrong with a file ----

ENTRY = {"id": "one", "where": "§1", "what": "a number", "printed": "2", "ours": "1 + 1"}
TABLE = {
    "table": "t",
    "where": "Table 1",
    "what": "{row} times {column}",
    "columns": {"a": 1, "b": 2},
    "rows": {"1": 1, "3": 3},
    "printed": "1 2\n3 6\n",
    "ours": "row * column",
}


def read(*entries, name="p2020.yaml", paper="p2020"):
    text = yaml.safe_dump({"paper": paper, "claims": list(entries)}, allow_unicode=True)
    return ledger.read({name: text}, {"p2020": "P (P 2020)"})


def test_a_table_is_an_entry_for_each_cell():
    found = read(TABLE)
    assert list(found) == ["t-1-a", "t-1-b", "t-3-a", "t-3-b"]
    assert found["t-3-b"].what == "3 times b"
    assert all(claim.problem() is None for claim in found.values())


def test_a_cell_may_be_missing_or_an_exception():
    changed = {"3-b": {"rounding": "truncated"}}
    found = read(
        {**TABLE, "printed": "- 2\n3 5\n", "ours": "row * column - 0.1 * row", "exceptions": changed}
    )
    assert list(found) == ["t-1-b", "t-3-a", "t-3-b"]
    assert found["t-3-b"].rounding == "truncated" and found["t-3-b"].problem() is None


@pytest.mark.parametrize(
    "entry, complaint",
    [
        ({**ENTRY, "colour": "red"}, "p2020.yaml, one: unknown field 'colour'"),
        ({k: v for k, v in ENTRY.items() if k != "where"}, "one: the field `where` is missing"),
        ({k: v for k, v in ENTRY.items() if k != "ours"}, "one: `ours` is missing"),
        ({k: v for k, v in ENTRY.items() if k != "id"}, "entry 1: an entry has either an `id` or"),
        ({**ENTRY, "id": "One two"}, "an id is made of a-z"),
        ({**ENTRY, "printed": 2}, "one: `printed` is a text"),
        ({**ENTRY, "printed": "two"}, "one: 'two' is not a number"),
        ({**ENTRY, "rounding": "banker"}, "`rounding` is one of nearest, truncated, up, not 'banker'"),
        ({**ENTRY, "status": "true"}, "`status` is one of reproduced, erratum, differs, quoted"),
        ({**ENTRY, "status": "erratum"}, "one: the status erratum needs a `why`"),
        ({**ENTRY, "status": "differs"}, "one: the status differs needs a `why`"),
        ({**ENTRY, "status": "quoted"}, "one: a quoted number is not computed"),
        ({**ENTRY, "formula": "p"}, "one: a `formula` needs values"),
        ({**ENTRY, "formula": "p", "at": {"p": 3}}, "`at` maps each letter of the formula to a list"),
        ({**TABLE, "printed": "1 2\n3\n"}, "t: 2 rows × 2 columns are 4 cells, `printed` has 3 in 2 lines"),
        ({**TABLE, "printed": "1 2 3 6\n"}, "are 4 cells, `printed` has 4 in 1 lines"),
        ({**TABLE, "exceptions": {"9-z": {"why": "No."}}}, "t: there is no cell '9-z'"),
        ({**TABLE, "exceptions": {"1-a": {"printed": "1"}}}, "t-1-a: unknown field 'printed'"),
        ({**TABLE, "rows": [1, 3]}, "t: `rows` maps a part of the id to a value"),
    ],
)
def test_a_wrong_entry_is_named_with_its_file(entry, complaint):
    with pytest.raises(ValueError) as error:
        read(entry)
    assert str(error.value).startswith("p2020.yaml, ") and complaint in str(error.value)


@pytest.mark.parametrize(
    "name, text, complaint",
    [
        ("p2020.yaml", "claims: []", "a file has the two fields"),
        ("p2020.yaml", "paper: p2020\nclaims: {}", "`claims` is a list"),
        ("x1999.yaml", "paper: x1999\nclaims: []", "there is no paper 'x1999'"),
        ("x1999.yaml", "paper: p2020\nclaims: []", "a file of p2020 is called p2020.yaml or p2020-"),
        ("p2020.yaml", "paper: p2020\npaper: p2020\nclaims: []", "'paper' is there twice"),
        ("p2020.yaml", "paper: [", "p2020.yaml: while parsing"),
    ],
)
def test_a_wrong_file_is_named(name, text, complaint):
    with pytest.raises(ValueError, match="^" + re.escape(name)) as error:
        ledger.read({name: text}, {"p2020": "P (P 2020)"})
    assert complaint in str(error.value)


def test_a_paper_may_have_two_files():
    first = f"paper: p2020\nclaims: [{json.dumps(ENTRY)}]"
    second = f"paper: p2020\nclaims: [{json.dumps({**ENTRY, 'id': 'two'})}]"
    found = ledger.read({"p2020-more.yaml": second, "p2020.yaml": first}, {"p2020": "P (P 2020)"})
    assert {claim.paper for claim in found.values()} == {"p2020"} and len(found) == 2


def test_an_id_is_there_once():
    with pytest.raises(ValueError, match=r"p2020.yaml, one: this id is also in p2020.yaml"):
        read(ENTRY, ENTRY)


@pytest.mark.parametrize(
    "changed, complaint",
    [
        ({"printed": "3"}, "p2020.yaml, one: the status says reproduced, but ours does not agree"),
        ({"status": "erratum", "why": "A. B."}, "the status says erratum, but ours agrees"),
        ({"status": "differs", "why": "A. B."}, "the status says differs, but ours agrees"),
        (
            {"formula": "2 * p", "at": {"p": [1, 2]}},
            "ours does not agree with what is printed (2; ours 2 at p = 2)",
        ),
    ],
)
def test_a_status_that_the_numbers_do_not_have_is_a_problem(changed, complaint):
    assert complaint in read({**ENTRY, **changed})["one"].problem()


def test_a_formula_is_compared_at_each_value():
    formula = {
        "printed": "2(p−1)/p",
        "formula": "2 * (p - 1) / p",
        "at": {"p": [1, 2, 8]},
        "ours": "2 - 2 / p",
    }
    outcome = read({**ENTRY, **formula})["one"].outcome()
    assert outcome == (True, "equal for p = 1, 2, 8")


def test_the_files_read_numbers_as_python_does():
    entry = "{id: a, where: w, what: yes, printed: '7.5', ours: x, formula: x, at: {x: [7.5e9]}}"
    text = f"paper: p2020\nclaims: [{entry}]"
    claim = ledger.read({"p2020.yaml": text}, {"p2020": "P (P 2020)"})["a"]
    assert claim.what == "yes" and claim.at == {"x": [7.5e9]}


# ---- what a chapter prints ----


@pytest.mark.parametrize(
    "entry, line",
    [
        (ENTRY, "✓ P, §1: a number: printed 2, ours 2"),
        ({**ENTRY, "unit": "GB"}, "✓ P, §1: a number: printed 2 GB, ours 2 GB"),
        (
            {**ENTRY, "printed": "3", "status": "erratum", "why": "It is 2. It says 3."},
            "≠ P, §1: a number: printed 3, ours 2 (erratum: It is 2)",
        ),
        ({**ENTRY, "ours": "", "status": "quoted"}, "– P, §1: a number: printed 2 (quoted, not computed)"),
    ],
)
def test_a_line_says_what_is_printed_what_is_ours_and_why(entry, line, monkeypatch, capsys):
    found = read(entry)
    monkeypatch.setattr(ledger, "entries", lambda: found)
    monkeypatch.setattr(ledger, "papers", lambda: {"p2020": "P (P 2020)"})
    assert claims.check("one") is None
    assert capsys.readouterr().out == line + "\n"


def test_a_chapter_does_not_print_what_is_wrong(monkeypatch):
    monkeypatch.setattr(ledger, "entries", lambda: read({**ENTRY, "printed": "3"}))
    with pytest.raises(AssertionError, match="the status says reproduced"):
        claims.check("one")


def test_an_unknown_id_is_answered_with_those_like_it():
    with pytest.raises(ValueError, match="no claim 'goyal-bach'; near it are goyal-batch"):
        claims.check("goyal-bach")


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
