"""A number is compared as it is printed, and what is wrong with an entry, a formula or a file is said."""

import json
import re

import pytest
import yaml

from allranks import claims
from allranks.claims import expressions, ledger, printed

pytestmark = pytest.mark.stamped(None)  # entries import what they compute with by name, so these run always

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
