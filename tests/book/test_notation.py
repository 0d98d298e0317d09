"""The page Notation names the symbols that the pages use: each of its rows is found in a formula."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FORMULA = re.compile(r"\$\$.+?\$\$|\$[^$\n]+\$", re.DOTALL)
ROW = re.compile(r"^\|(?P<letters>[^|]*)\|(?P<means>[^|]*)\|(?P<rest>.*)\|$", re.MULTILINE)
LINK = "*Symbols*: [Notation](../../book/notation.md)."


def text(page):
    cells = json.loads((ROOT / "notebooks" / f"{page}.ipynb").read_text(encoding="utf-8"))["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def is_used(symbol, page):
    """Whether a formula of the page has the symbol, and not only as a part of another one."""
    alone = re.compile(rf"(?<![A-Za-z\\_]){re.escape(symbol)}(?![A-Za-z_])")
    formulas = (re.sub(r"\\(frac|sqrt)(?=\w)", " ", each) for each in FORMULA.findall(text(page)))
    return any(alone.search(each) for each in formulas)


def rows():
    """(symbol, page) of each row that links a notebook; an empty cell repeats the letters above."""
    letters = []
    for row in ROW.finditer((ROOT / "book" / "notation.md").read_text(encoding="utf-8")):
        letters = re.findall(r"\$([^$]+)\$", row["letters"]) or letters
        for page in re.findall(r"notebooks/(\w+/\w+)\.ipynb", row["rest"]):
            yield from ((symbol, page) for symbol in letters)


def symbols():
    """The letters of the first table."""
    page = (ROOT / "book" / "notation.md").read_text(encoding="utf-8")
    table = page.partition("## Symbols")[2].partition("## Names")[0]
    return [letter for row in ROW.finditer(table) for letter in re.findall(r"\$([^$]+)\$", row["letters"])]


@pytest.mark.parametrize("symbol, page", list(rows()))
def test_a_symbol_is_in_a_formula_of_the_page_that_its_row_names(symbol, page):
    assert is_used(symbol, page)


def test_a_letter_has_one_row_in_the_table():
    assert len(symbols()) == len(set(symbols())) >= 15


@pytest.mark.parametrize("page", sorted({page for _, page in rows()}))
def test_a_page_that_the_tables_name_links_them_before_its_first_section(page):
    assert LINK in text(page).partition("\n## ")[0]


@pytest.mark.parametrize("symbol", ["p", r"\Psi"])
def test_a_letter_in_a_longer_word_is_not_the_symbol(symbol, monkeypatch):
    monkeypatch.setitem(globals(), "text", lambda page: rf"$top$ and $x_{symbol}$, not {symbol}")
    assert not is_used(symbol, "any")
