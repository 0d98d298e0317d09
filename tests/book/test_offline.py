"""A built page becomes a part of one document, and the site one archive, without losing a link."""

import asyncio
import re
import sys
import zipfile

import archive
import downloads
import pytest
import yaml
from printed import press
from printed.articles import article
from printed.contents import ROOT, Part, parts
from printed.document import about, front, part_html, require_places, table_of_contents

PAGES = {"a/one", "b/two"}
PAGE = """<html><body><nav>chrome</nav><article class="bd-article"><section id="start">
<h1>One<a class="headerlink" href="#start">#</a></h1>
<div class="claim admonition"><p class="admonition-title">Claim</p><p>Two is more
<span class="bibtex-citation" id="id1">[<a href="../b/two.html#id3">Who</a>]</span>.</p></div>
<h2 id="more">More</h2>
<p><a id="away" href="https://example.org/x">web</a> <a id="whole" href="../b/two.html">page</a>
<a id="here" href="#more">here</a> <a id="file" href="../_downloads/x.bib">file</a></p>
<div class="instructor admonition"><p>for the lecturer</p></div>
<details><summary>Hint</summary>a hint</details>
<img src="../_images/x.png" alt="x">
<span class="katex"><span class="katex-mathml"><math><annotation>\\alpha</annotation></math></span>
<span class="katex-html" aria-hidden="true">α</span></span>
<figure class="ar-explorer" aria-labelledby="title"><form><div class="ar-control"><label for="n">ranks</label>
<input type="range" id="n" value="4"><output for="n">4</output></div>
<div class="ar-control"><label for="how">how</label><select id="how"><option>ring</option>
<option selected>tree</option></select></div>
<div class="ar-control"><label for="shown">shown</label><input type="checkbox" id="shown"></div>
<div class="ar-control ar-actions"><button>Reset</button></div></form>
<div class="ar-picture ar-wide"><svg viewBox="0 0 1 1"><pattern id="p"></pattern>
<rect style="fill:url(#p)"/></svg>
</div><div class="ar-picture ar-narrow">small</div></figure>
<details class="ar-deeper"><summary>Show this section</summary><p>a proof</p></details>
<figure class="ar-ranks"><details class="ar-program"><summary>Edit the program</summary>as above</details>
<form class="ar-run-bar"><label>ranks <select><option>2</option></select></label>
<label>α <select><option>1 µs</option><option selected>10 µs</option></select></label></form>
<div class="ar-message-steps"><input type="range"></div></figure>
</section></article></body></html>"""


@pytest.fixture
def printed(tmp_path):
    page = tmp_path / "a" / "one.html"
    page.parent.mkdir()
    page.write_text(PAGE, encoding="utf-8")
    return article(tmp_path, "a/one", PAGES, lower=1)


def test_parts_hold_every_page_of_the_contents_in_its_order():
    files = re.findall(r"(?:file|root): (\S+)", (ROOT / "_toc.yml").read_text(encoding="utf-8"))
    assert [page for part in parts() for page in part.pages] == files
    assert [part.caption for part in parts()][:3] == ["", "Start", "Foundations"]


def test_links_lead_into_the_document(printed):
    targets = dict(re.findall(r'<a href="([^"]*)" id="a\.one:(\w+)"|$', printed.html))
    assert {name: to for to, name in targets.items() if to} == {
        "away": "https://example.org/x",
        "whole": "#b.two",
        "here": "#a.one:more",
    }
    assert 'href="#b.two:id3"' in printed.html
    assert '<a id="a.one:file">file</a>' in printed.html


def test_every_id_begins_with_its_page(printed):
    assert set(re.findall(r'\bid="([^:"]*):', printed.html)) == {"a.one"}
    assert 'style="fill:url(#a.one:p)"' in printed.html
    assert 'src="../html/_images/x.png"' in printed.html


def test_only_what_a_reader_of_paper_can_use_is_left(printed):
    for element in ("button", "form", "input", "math", "select"):
        assert f"<{element}" not in printed.html
    for gone in ("chrome", "headerlink", "lecturer", "small"):
        assert gone not in printed.html
    for gone in ("Show this section", "Edit the program", "as above"):
        assert gone not in printed.html
    assert "a proof" in printed.html
    assert '<details open=""><summary>Hint' in printed.html
    assert 'aria-label="\\alpha"' in printed.html


def test_an_explorers_label_does_not_stand_for_what_the_figure_holds(printed):
    assert '<figure class="ar-explorer">' in printed.html


def test_an_explorer_says_its_settings_in_words(printed):
    shown = re.search(r'<p class="ar-shown">(.*?)</p>', printed.html, re.DOTALL)[1]
    assert re.sub(r"<[^>]*>", "|", shown).split("|")[1::4] == ["ranks ", "how ", "shown "]
    assert re.findall(r"<b>(.*?)</b>", shown) == ["4", "tree", "no"]


def test_a_program_says_its_settings_in_words(printed):
    assert '<p class="ar-shown"><span>α <b>10 µs</b></span></p>' in printed.html


def test_the_pages_before_the_first_chapter_have_classes_of_their_own(printed):
    before = front(about()) + table_of_contents([Part("One", ["a/one"])], {"a/one": printed})
    before += part_html(Part("One", ["a/one"]), {"a/one": printed._replace(html="")})
    own = set(" ".join(re.findall(r'class="([^"]*)"', before)).split()) - {"bd-article"}
    assert len(own) > 5
    for file in [*ROOT.glob("book/_static/*.*s"), *ROOT.glob("book/_ext/**/*.py")]:
        taken = own & set(re.findall(r"\bar-[\w-]+", file.read_text(encoding="utf-8")))
        assert not taken, f"{file.name} gives them to something else, and in the PDF both would look alike"


def test_a_claim_is_shown_again_without_its_citation(printed):
    assert (printed.title, printed.about) == ("One", "Two is more.")


def test_headings_make_room_for_parts(printed):
    assert re.findall(r'<(h\d) class="(ar-h\d)"', printed.html) == [("h2", "ar-h1"), ("h3", "ar-h2")]


def test_a_link_without_a_place_is_an_error():
    require_places('<p id="x"></p><a href="#x"></a><a href="https://example.org/#y"></a>')
    with pytest.raises(SystemExit, match=r"lead to no place in the printed book: a\.one:lost"):
        require_places('<a href="#a.one:lost"></a>')


def test_the_title_page_says_what_the_citation_file_says():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert f"{about().title}: {about().subtitle}" == cited["title"]
    assert about().version == str(cited["version"])


# ---- the archive and the links ----


@pytest.fixture
def site(tmp_path):
    page = tmp_path / "site" / downloads.FIRST_PAGE
    page.parent.mkdir(parents=True)
    page.write_text(f"<p>before</p>{downloads.START}<p>after</p>", encoding="utf-8")
    for name in (downloads.PDF, downloads.ARCHIVE, "index.html", ".buildinfo", "sitemap.xml"):
        (tmp_path / "site" / name).write_bytes(b"x" * 2_000_000)
    return tmp_path / "site"


def test_two_archives_of_one_book_are_equal(site, tmp_path):
    archive.write_archive(site, tmp_path / "first.zip")
    (site / "index.html").touch()
    downloads.offer(site, 7)
    archive.write_archive(site, tmp_path / "second.zip")
    assert (tmp_path / "first.zip").read_bytes() == (tmp_path / "second.zip").read_bytes()


def test_the_archive_holds_pages_and_licences_and_neither_download(site, tmp_path):
    archive.write_archive(site, tmp_path / "book.zip")
    with zipfile.ZipFile(tmp_path / "book.zip") as book:
        names = ["CITATION.cff", "LICENSE", "LICENSE-TEXT", "book/index.html", "index.html"]
        assert book.namelist() == [f"all-ranks/{name}" for name in names]
        first = book.read("all-ranks/book/index.html").decode()
    assert downloads.PDF not in first
    assert archive.SAID in first


def test_links_are_written_once_and_renewed(site):
    page = site / downloads.FIRST_PAGE
    downloads.offer(site, 611)
    once = page.read_text(encoding="utf-8")
    assert "611 pages, 2.0 MB" in once
    downloads.offer(site, 611)
    assert page.read_text(encoding="utf-8") == once
    downloads.offer(site, 612)
    assert page.read_text(encoding="utf-8") == once.replace("611", "612")


def test_a_pdf_that_was_not_made_is_not_offered(site):
    downloads.offer(site, None)
    said = (site / downloads.FIRST_PAGE).read_text(encoding="utf-8")
    assert downloads.PDF not in said and "zip archive</a>, 2.0 MB" in said


def test_what_is_published_has_its_pdf():
    """`.ci/run` prints no PDF that has passed, but the site offers one."""
    checks = yaml.safe_load((ROOT / ".github" / "workflows" / "checks.yml").read_text(encoding="utf-8"))
    steps = checks["jobs"]["checks"]["steps"]
    printing = next(n for n, step in enumerate(steps) if "tools/offline.py" in step.get("run", ""))
    handing = next(n for n, step in enumerate(steps) if "upload-pages-artifact" in step.get("uses", ""))
    assert printing < handing and steps[printing]["if"] == steps[handing]["if"]


def test_a_first_page_without_a_place_for_links_is_an_error():
    with pytest.raises(ValueError, match="has 0 places <!-- downloads -->, and it should have one"):
        downloads.filled("<p>nothing</p>", "links")


@pytest.fixture
def browsers(monkeypatch):
    """What browsers do one after the other: never print, or print."""
    opened = []
    printed = press.Printed("book.pdf", "numbers.pdf", ["One"])

    def take_turns(*prints):
        async def print_with(executable, document):
            opened.append(prints[len(opened)])
            if opened[-1] == "never":
                await asyncio.sleep(3600)
            return printed

        monkeypatch.setattr(press, "print_with", print_with)
        monkeypatch.setattr(press, "BROWSERS", (sys.executable,))
        monkeypatch.setattr(press, "SECONDS", 0.1)
        return opened

    return take_turns


def test_a_browser_that_never_prints_is_closed_and_named_and_a_second_prints(browsers, capsys):
    opened = browsers("never", "prints")
    assert press.print_to_pdf("book.html").headings == ["One"] and opened == ["never", "prints"]
    assert (
        capsys.readouterr().out
        == "offline: Chromium has not printed in 0.2 s and is closed (the first of two)\n"
    )


def test_two_browsers_that_never_print_are_an_error(browsers):
    browsers("never", "never")
    with pytest.raises(SystemExit, match=r"Chromium printed book\.html in neither of two tries of 0\.2 s"):
        press.print_to_pdf("book.html")
