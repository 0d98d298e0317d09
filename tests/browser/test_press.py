"""A browser that does not print is closed, and a second one prints."""

import asyncio

import pytest
from printed import press

DOCUMENT = """<!doctype html><title>Two pages</title><style>@page { size: 100mm 100mm }</style>
<h1>The first</h1><p style="break-after: page"><a href="#b">there</a></p>
<article><h2 id="b">The second</h2></article>"""
REAL = press.print_with


@pytest.fixture
def document(tmp_path):
    path = tmp_path / "book.html"
    path.write_text(DOCUMENT, encoding="utf-8")
    return path


def test_a_browser_that_has_not_printed_in_time_is_followed_by_a_second(document, monkeypatch, capsys):
    calls = []

    async def first_late(executable, document):
        calls.append(executable)
        if len(calls) == 1:
            raise TimeoutError
        return await REAL(executable, document)

    monkeypatch.setattr(press, "print_with", first_late)
    printed = press.print_to_pdf(document)
    assert printed.book.read_bytes().startswith(b"%PDF") and printed.headings == ["The first", "The second"]
    assert len(calls) == 2 and capsys.readouterr().out.count("Chromium has not printed in 600 s") == 1


def test_two_browsers_that_never_print_are_an_error(document, monkeypatch):
    async def never(executable, document):
        await asyncio.sleep(3600)

    monkeypatch.setattr(press, "print_with", never)
    monkeypatch.setattr(press, "SECONDS", 0.1)
    with pytest.raises(SystemExit, match=r"in neither of two tries of 0\.2 s"):
        press.print_to_pdf(document)
