"""The PDF holds the whole book and leads only where a reader can go; the archive opens from a disk."""

from __future__ import annotations

import html
import re
import zipfile
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import pikepdf
import pypdfium2
import pytest
from archive import FOLDER
from bs4 import BeautifulSoup
from built_book import SITE
from downloads import ARCHIVE, FIRST_PAGE, PDF
from printed.contents import anchor, parts

pytestmark = pytest.mark.stamped("pdf")
PAGES = [page for part in parts() for page in part.pages]
GLYPHS = re.compile(rb"<([0-9A-F]+)>")
FEWEST = 50  # of a page: a running head, its number and a line


@pytest.fixture(scope="module")
def pdf(site):
    """The structure of the PDF."""
    if not (site / PDF).exists():
        pytest.fail(f"There is no _build/html/{PDF}: make it with `make offline`.", pytrace=False)
    with pikepdf.open(site / PDF) as opened:
        yield opened


@pytest.fixture(scope="module")
def text_of(pdf):
    """Gives the text of a page of the PDF, by its index: to read all would take ten seconds."""
    document = pypdfium2.PdfDocument(SITE / PDF)

    @cache
    def text_of(index):
        page = document[index]
        text = page.get_textpage()
        found = " ".join(text.get_text_range().split())
        text.close()
        page.close()
        return found

    yield text_of
    document.close()


@pytest.fixture(scope="module")
def places(pdf):
    """Name of a place → the number of its page."""
    numbers = {page.objgen: number for number, page in enumerate(pdf.pages, 1)}
    return {name[1:]: numbers[place[0].objgen] for name, place in pdf.Root.Dests.items()}


@pytest.fixture(scope="module")
def titles(site):
    """Page → the heading of the built page."""
    pattern = re.compile(r"<article.*?<h1>(.*?)<a class=\"headerlink", re.DOTALL)
    found = {page: pattern.search((site / f"{page}.html").read_text(encoding="utf-8"))[1] for page in PAGES}
    return {page: BeautifulSoup(title, "html.parser").get_text().strip() for page, title in found.items()}


def test_every_page_of_the_book_is_a_bookmark_in_its_order(pdf, titles):
    with pdf.open_outline() as outline:
        top = [item.title for item in outline.root]
        chapters = [child.title for item in outline.root[2:] for child in item.children]
    captions = [part.caption for part in parts() if part.caption]
    assert top == ["Contents", titles[PAGES[0]], *captions]
    assert chapters == [titles[page] for page in PAGES[1:]]


def test_the_contents_say_where_every_chapter_starts(text_of, places, titles):
    numbers = [places[anchor(page)] for page in PAGES]
    for page, number in zip(PAGES, numbers):
        head = f"{titles[page]}{number}{titles[page]}".replace(" ", "")
        assert text_of(number - 1).replace(" ", "").startswith(head), page
    expected = [str(number) for number in numbers]
    for text in (text_of(index) for index in range(2, numbers[0] - 1)):
        said = max(n for n in range(len(expected) + 1) if text.endswith(" ".join(expected[:n])))
        assert said, text
        expected = expected[said:]
    assert expected == []


def test_no_page_is_blank(pdf):
    # By the glyphs that a page shows, each as <002F>.
    shown = [len(b"".join(GLYPHS.findall(page.Contents.read_bytes()))) // 4 for page in pdf.pages]
    assert 300 < len(shown) < 2500
    assert [number for number, glyphs in enumerate(shown, 1) if glyphs < FEWEST] == []


def test_links_lead_to_places_in_the_book_or_to_the_web(pdf, places):
    inside, outside = set(), set()
    for page in pdf.pages:
        for link in page.get("/Annots", []):
            if "/Dest" in link:
                inside.add(str(link.Dest)[1:])
            else:
                outside.add(str(link.A.URI))
    assert len(inside) > 100
    assert inside <= set(places)
    assert {address.partition("://")[0] for address in outside} == {"https"}
    assert all(anchor(page) in inside for page in PAGES)


def test_every_font_is_in_the_file(pdf):
    fonts = [each for each in pdf.objects if is_a(each, "/FontDescriptor")]
    assert len(fonts) > 10
    bare = [
        each.FontName for each in fonts if not {"/FontFile", "/FontFile2", "/FontFile3"} & set(each.keys())
    ]
    assert bare == []


def test_pictures_and_formulas_say_what_they_are(pdf, site):
    said = [str(each.Alt) for each in pdf.objects if is_a(each, "/StructElem") and "/Alt" in each]
    pictures, formulas = [], 0
    for page in PAGES:
        text = (site / f"{page}.html").read_text(encoding="utf-8")
        wide = text.split('class="ar-picture ar-wide">')[1:]
        pictures += [re.match(r'\s*<div [^>]*role="img" aria-label="([^"]*)"', one)[1] for one in wide]
        formulas += text.count('class="katex"')
    assert len(pictures) > 20
    for title in set(pictures):
        assert said.count(title) == pictures.count(title), title
    assert len(said) > formulas
    ranks = (site / "notebooks" / "foundations" / "ranks.html").read_text(encoding="utf-8")
    typeset = {html.unescape(tex) for tex in re.findall(r"<annotation[^>]*>(.*?)<", ranks)}
    assert len(typeset) > 10
    assert typeset <= set(said)


def is_a(each, kind):
    """Whether an object of the PDF is a dictionary of this type."""
    return isinstance(each, pikepdf.Dictionary) and each.get("/Type") == kind


def test_a_chapter_leaves_out_its_notes_for_lecturers(text_of, places, site):
    page = (site / "notebooks" / "foundations" / "ranks.html").read_text(encoding="utf-8")
    soup = BeautifulSoup(page, "html.parser")
    notes = [" ".join(note.get_text().split())[:40] for note in soup.select(".instructor > p ~ p")]
    assert notes
    first, after = (places[anchor(f"notebooks/foundations/{slug}")] - 1 for slug in ("ranks", "one_device"))
    printed = " ".join(text_of(index) for index in range(first, after))
    assert [note for note in notes if note in printed] == []


def test_it_says_who_made_it_and_under_which_licence(pdf, text_of):
    assert str(pdf.docinfo.Title).startswith("All Ranks: ")
    assert "authors" in str(pdf.docinfo.Author)
    assert str(pdf.Root.Lang) == "en"
    assert "CC BY 4.0" in text_of(1)
    assert "Cite as" in text_of(1)


# ---- the first page and the archive ----


def test_the_first_page_offers_both_with_their_sizes(site, pdf):
    text = (site / FIRST_PAGE).read_text(encoding="utf-8")
    offered = re.search(r'<p class="ar-downloads">.*?</p>', text, re.DOTALL)[0]
    assert f"{len(pdf.pages)} pages, {(site / PDF).stat().st_size / 1e6:.1f} MB" in offered
    assert f"{(site / ARCHIVE).stat().st_size / 1e6:.1f} MB" in offered


@pytest.mark.stamped(None)
def test_the_archive_opens_from_a_disk_and_its_figures_answer(open_page, site, tmp_path):
    with zipfile.ZipFile(site / ARCHIVE) as archive:
        archive.extractall(tmp_path)
    root = tmp_path / FOLDER
    visit = open_page((root / "index.html").as_uri())
    visit.page.wait_for_url("**/book/index.html")
    assert Path(unquote(visit.page.url.removeprefix("file://"))).is_relative_to(root)
    assert visit.page.locator(".ar-downloads").count() == 1

    visit.page.goto((root / "notebooks" / "pipeline_parallel" / "gpipe.html").as_uri())
    explorer = visit.page.locator(".ar-explorer").first
    explorer.scroll_into_view_if_needed()
    before = explorer.locator(".ar-words").inner_text()
    explorer.locator("input[name=microbatches]").press("ArrowRight")
    visit.page.wait_for_function(
        "before => document.querySelector('.ar-explorer .ar-words').innerText !== before", arg=before
    )
    assert visit.foreign == []
    assert visit.problems == []
