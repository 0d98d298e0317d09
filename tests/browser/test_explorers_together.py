"""All explorers answer on one page in any order; where one fails, a reader gets a sentence, no traceback."""

from __future__ import annotations

import json

import pytest
from allranks_book.compiled import bundle, compiled, packed
from allranks_book.shipped import python_files

from allranks import explorers

PAGE = "notebooks/reference/explorers.html"
SECONDS = 60
ANSWERS = """([name, seconds]) => new Promise((answered) => {
    const figure = document.getElementById(`explorer-${name}`);
    for (const said of ["ar-drawn", "ar-refused", "ar-failed"]) {
        figure.addEventListener(said, () => answered(said), { once: true });
    }
    setTimeout(() => answered(`nothing in ${seconds} s`), 1000 * seconds);
    figure.querySelector('[data-do="reset"]').click();
})"""


def at_once(page, name):
    """Touch the explorer `name`, and return how it answered."""
    return page.evaluate(ANSWERS, [name, SECONDS])


def caption(page, name):
    return page.locator(f"#explorer-{name} .ar-words").inner_text()


def start(page, name):
    """The settings at which the page shows the explorer `name` first."""
    return json.loads(page.locator(f"#explorer-{name} > script").text_content())["start"]


@pytest.mark.parametrize("order", [1, -1], ids=["from the first", "from the last"])
def test_every_explorer_of_the_page_of_all_of_them_answers(address, open_page, order):
    visit = open_page(address + PAGE)
    for name in explorers.NAMES[::order]:
        assert at_once(visit.page, name) == "ar-drawn", caption(visit.page, name)
        assert caption(visit.page, name) == explorers.draw(name, start(visit.page, name))["text"]
    assert visit.problems == []
    visit.page.close()


def script_of(name, changed):
    """The script of an explorer, with some of its Python files changed."""
    sources = {path: source.encode() for path, source in changed.items()}  # read rather than byte code
    files = packed(bundle(compiled(python_files(name)) | sources))
    return f'(window.allRanksExplorers ??= {{}})["{name}"] = "{files}";'


@pytest.mark.parametrize(
    "source",
    ["from ..memory import a_fault", "draw = None\nCONTROLS = 'a fault'", "a fault"],
    ids=["as it is imported", "as it draws", "as it is read"],
)
def test_a_fault_of_the_program_is_a_sentence_for_the_reader_and_a_traceback_for_the_console(
    address, open_page, source
):
    visit = open_page(address + "book/notation.html")
    visit.page.route(
        "**/explorers/buckets.js",
        lambda route: route.fulfill(
            content_type="text/javascript",
            body=script_of("buckets", {"allranks/explorers/buckets.py": source}),
        ),
    )
    visit.page.goto(address + PAGE)
    assert at_once(visit.page, "buckets") == "ar-failed"
    said = caption(visit.page, "buckets")
    assert said.startswith(explorers.draw("buckets", start(visit.page, "buckets"))["text"])
    assert said.endswith("reloading the page starts it again.")
    assert "Traceback" not in visit.page.locator("body").inner_text()
    assert len(visit.problems) == 1 and "Traceback" in visit.problems[0]
    assert visit.page.locator("#explorer-buckets .ar-wide .ar-image svg").is_visible()
    assert at_once(visit.page, "memory") == "ar-drawn"
    visit.page.close()
