"""A citation says what CITATION.cff says, and a bibliography can read it."""

import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
from allranks_book import citing
from allranks_book.repository import repository
from pybtex.database import parse_string

ROOT = Path(__file__).resolve().parents[2]
PEOPLE = {
    "title": "A Book",
    "version": "1.2",
    "date-released": "2027-05-06",
    "authors": [{"family-names": "Hopper", "given-names": "Grace"}, {"name": "The Group"}],
}
WHERE = "https://example.org/notebooks/a/r_and_d.html"


def config(baseurl="", url="https://github.com/Owner/name"):
    return SimpleNamespace(html_baseurl=baseurl, html_theme_options={"repository_url": url})


def test_book_and_package_have_one_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert citing.book()["version"] == project["version"]


def test_the_repository_is_named_alike():
    configured = (ROOT / "_config.yml").read_text(encoding="utf-8")
    assert f"url: {citing.book()['repository-code']}\n" in configured


def test_a_citation_in_words_names_authors_year_page_book_version_and_address():
    said = citing.plain("R & D", WHERE, PEOPLE, citing.year(PEOPLE, "2026"))
    assert said == f"Grace Hopper, The Group (2027). “R & D”. In: A Book, version 1.2. {WHERE}"


def test_the_whole_book_is_cited_by_its_own_title():
    assert citing.plain("", WHERE, PEOPLE, "2027").endswith(f"(2027). A Book, version 1.2. {WHERE}")


def test_before_a_release_the_year_is_that_of_the_copyright():
    assert citing.year({}, "2026") == "2026"


@pytest.mark.parametrize("title", ["R & D at 100 %: α_β", ""])
def test_a_bibliography_reads_the_entry(title):
    entry = parse_string(citing.bibtex("allranks:r", title, WHERE, PEOPLE, "2027"), "bibtex").entries[
        "allranks:r"
    ]
    assert [" ".join(who.last_names) for who in entry.persons["author"]] == ["Hopper", "{The Group}"]
    assert entry.fields["title"] == ("{R \\& D at 100 \\%: α\\_β}" if title else "{A Book}")
    assert entry.fields["url"] == WHERE and entry.fields["year"] == "2027"
    assert ("A Book" in entry.fields.get("howpublished", "")) == bool(title)


def test_the_permanent_address_is_where_pages_are_published():
    assert citing.address("a/b", config()) == "https://owner.github.io/name/a/b.html"
    assert citing.address("a/b", config("https://example.org/x/")) == "https://example.org/x/a/b.html"


@pytest.mark.parametrize("url", ["", "git@github.com:owner/name.git", "https://github.com"])
def test_a_repository_without_an_address_is_refused(url):
    with pytest.raises(ValueError, match=r"repository: url in _config\.yml"):
        repository(config(url=url))
