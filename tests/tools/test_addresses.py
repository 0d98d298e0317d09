"""A published address stays: what the list of addresses sees, what it says, and what a redirect makes."""

import addresses
import pytest
from allranks_book.addresses import Anchors, leading_on, moved_sections, offered, redirects, way

PAGE = """<html><body><nav id="menu"><div id="aside"></div></nav><article>
<section id="ranks"><h1>Ranks</h1><span id="old-name"></span><dl><dt id="term-rank">rank</dt></dl>
<div class="exercise" id="ex-ranks"></div><span id="id3"></span><div id="notebooks/a/b-solution-3"></div>
<section id="exercise-content"></section>
<input id="world-size"><details id="cite"></details></section></article>
<footer><p id="end"></p></footer></body></html>"""
STABLE = {"ranks", "old-name", "term-rank", "ex-ranks"}


@pytest.fixture
def site(tmp_path):
    (tmp_path / "book").mkdir()
    (tmp_path / "_static").mkdir()
    (tmp_path / "book" / "page.html").write_text(PAGE, encoding="utf-8")
    (tmp_path / "_static" / "part.html").write_text(PAGE, encoding="utf-8")
    return tmp_path


def declared(folder, text):
    file = folder / "redirects.yaml"
    file.write_text(text, encoding="utf-8")
    return redirects(file)


def test_anchors_are_those_of_the_article_that_keep_their_name():
    assert Anchors(PAGE).found == STABLE


def test_a_book_offers_its_pages_and_their_anchors(site):
    assert offered(site) == {"book/page.html", *(f"book/page.html#{anchor}" for anchor in STABLE)}


def test_the_same_addresses_are_no_complaint(site):
    assert addresses.complaints(offered(site), offered(site), {}) == ""


def test_a_lost_heading_is_named_with_the_label_that_brings_it_back():
    said = addresses.complaints({"book/page.html", "book/page.html#lost"}, {"book/page.html"}, {})
    assert "book/page.html#lost" in said and "(lost)=" in said and "redirects.yaml" in said
    assert "are new" not in said


def test_the_anchors_of_a_page_that_moved_are_looked_for_where_it_is_now():
    listed, moved = {"old.html", "old.html#part", "old.html#lost"}, {"old.html": "new.html"}
    said = addresses.complaints(listed, {"old.html", "new.html", "new.html#part"}, moved)
    assert "1 published addresses" in said and "old.html#lost" in said


def test_a_new_address_is_named_with_the_command_that_lists_it():
    said = addresses.complaints(set(), {"book/new.html"}, {})
    assert "book/new.html" in said and "tools/addresses.py add" in said and "lead nowhere" not in said


def test_adding_keeps_what_was_published(site, tmp_path, monkeypatch, capsys):
    listed = tmp_path / "published.txt"
    listed.write_text("book/gone.html\n", encoding="utf-8")
    monkeypatch.setattr(addresses, "SITE", site)
    monkeypatch.setattr(addresses, "PUBLISHED", listed)
    monkeypatch.setattr("sys.argv", ["addresses.py", "add"])
    with pytest.raises(SystemExit, match=r"book/gone\.html"):
        addresses.main()
    assert capsys.readouterr().out == "5 addresses added, 6 in tests/published.txt\n"
    assert addresses.published(listed) == {"book/gone.html", *offered(site)}


def test_a_way_is_relative_to_the_old_page():
    assert way("book/old.html", "notebooks/a/new.html#part") == "../notebooks/a/new.html#part"
    assert way("old.html", "book/new.html") == "book/new.html"


def test_an_old_page_leads_on_without_a_script():
    text = leading_on("a/old.html", "b/new.html")
    assert 'http-equiv="refresh" content="0; url=../b/new.html"' in text and 'href="../b/new.html"' in text


def test_a_section_that_left_keeps_its_anchor(tmp_path):
    moves = declared(tmp_path, "a/one.html#part: b/two.html#part\na/gone.html: b/two.html\n")
    assert Anchors(f"<article>{moved_sections('a/one.html', moves)}</article>").found == {"part"}
    assert moved_sections("b/two.html", moves) == moved_sections("a/gone.html", moves) == ""


def test_a_file_of_comments_declares_nothing(tmp_path):
    assert declared(tmp_path, "# nothing yet\n") == {}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a/one: a/two.html", "'a/one' is no address"),
        ("a/one.html: https://example.org/", "is no address"),
        ("a/one.html: a/two.html\na/two.html: a/three.html", "name its last target"),
    ],
)
def test_a_redirect_that_cannot_work_is_refused(tmp_path, text, complaint):
    with pytest.raises(ValueError, match=complaint):
        declared(tmp_path, text)
