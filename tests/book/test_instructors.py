"""A lecturer's plans add up, every chapter says what to ask, and every prediction has its one answer."""

import re
from pathlib import Path

import pytest
import yaml
from allranks_book import instructors, teaching

ROOT = Path(__file__).resolve().parents[2]
CHAPTERS = teaching.pages()
LABS = teaching.pages("labs")
PLANS = instructors.plans()
SESSIONS = [
    pytest.param(session, id=f"{plan['title']}: {session['title']}")
    for plan in PLANS
    for session in plan["sessions"]
]
WORKS = yaml.safe_load((ROOT / "book" / "reading_list.yaml").read_text(encoding="utf-8"))["works"]


def boxes(page, kind):
    """How many boxes of a kind the notebook has, counted without the parser."""
    texts = [cell["source"] for cell in teaching.cells(page) if cell["kind"] == "markdown"]
    return sum(len(re.findall(rf"^:class:.*\b{kind}\b", text, re.MULTILINE)) for text in texts)


def marks(page):
    """How many lines of the notebook carry the mark of an answer, counted without the parser."""
    return sum(cell["source"].count("<!-- answer") for cell in teaching.cells(page))


@pytest.fixture
def notebook(monkeypatch):
    """A function that puts Markdown and code cells in the place of every notebook."""

    def made(*sources):
        cells = [
            {"id": f"cell-{n}", "kind": "code" if text.startswith("print") else "markdown", "source": text}
            for n, text in enumerate(sources)
        ]
        monkeypatch.setattr(teaching, "cells", lambda page: cells)
        forget()

    def forget():
        teaching.notes.cache_clear()
        teaching.predictions.cache_clear()

    yield made
    forget()


# ---- labs ----


def test_the_table_of_labs_has_their_minutes_and_points():
    rows = instructors.labs_markdown().splitlines()[2:]
    assert len(rows) == len(LABS)
    for page, row in zip(LABS, rows, strict=True):
        text = "\n".join(cell["source"] for cell in teaching.cells(page))
        tasks = [int(found) for found in re.findall(r"^\*(\d+) minutes\W", text, re.MULTILINE)]
        assert f"| {instructors.whole(page)} min | {text.count('## Task ')} |" in row
        if "In 90 minutes" in text:
            assert sum(tasks) == instructors.whole(page)
            numbers, minutes = re.search(
                r"In 90 minutes: tasks (.*?)(?:,? which.*?)? \((\d+) min", text
            ).groups()
            numbers = re.sub(r"(\d+) to (\d+)", lambda m: str([*range(int(m[1]), int(m[2]) + 1)]), numbers)
            chosen = [tasks[int(n) - 1] for n in re.findall(r"\d+", numbers)]
            assert sum(chosen) == int(minutes) <= 90


# ---- notes ----


@pytest.mark.parametrize("page", [*CHAPTERS, *LABS])
def test_every_note_says_its_minutes_what_to_ask_and_the_usual_wrong_answer(page):
    found = teaching.notes(page)
    assert len(found) == boxes(page, "instructor") >= 1
    for note in found:
        assert 2 <= note.minutes <= (240 if page.startswith("labs") else 120)
        assert note.ask.endswith("?")
        assert len(note.wrong) > 20


@pytest.mark.parametrize("page", [*CHAPTERS, *LABS])
def test_the_last_note_alone_says_what_to_leave_out_if_time_is_short(page):
    *others, last = teaching.notes(page)
    assert [note.route for note in others if note.route] == []
    assert "; leave" in last.route and last.short == (50 if page in LABS else 20)
    assert last.short < instructors.whole(page)


@pytest.mark.parametrize("page", CHAPTERS)
def test_the_notes_of_a_chapter_cover_all_of_it_up_to_the_exercises(page):
    sections = [name for note in teaching.notes(page) for name in note.sections]
    text = "\n".join(cell["source"] for cell in teaching.cells(page) if cell["kind"] == "markdown")
    before = text.partition("## Exercises")[0]
    assert sections == re.findall(r"^#{2,3} (.+)", before, re.MULTILINE)
    assert 20 < instructors.whole(page) <= 60


def test_a_note_written_in_another_way_is_an_error_that_says_how(notebook):
    notebook(":::{admonition} For lecturers\n:class: instructor\nFive minutes.\n:::")
    with pytest.raises(ValueError, match=r"cell cell-0: a lecturer's note has the lines '5 minutes"):
        teaching.notes("any")


# ---- predictions ----


@pytest.mark.parametrize("page", CHAPTERS)
def test_every_prediction_has_one_answer_that_is_not_trivial(page):
    asked = teaching.predictions(page)
    assert len(asked) == boxes(page, "predict") >= 1
    for one in asked:
        words = " ".join(one.answer)
        assert 1 <= len(one.answer) <= 3, f"{page}, {one.name}: {len(one.answer)} lines are marked"
        assert len(words.split()) >= 4, f"{page}, {one.name}: {words!r} does not answer on its own"
        assert "?" in one.question or one.question.endswith(".")


@pytest.mark.parametrize("page", [*CHAPTERS, *LABS])
def test_no_mark_of_an_answer_is_lost(page):
    assert sum(len(one.answer) for one in teaching.predictions(page)) == marks(page)


@pytest.mark.parametrize("page", [page for page in LABS if page.endswith("_solved")])
def test_a_solved_lab_answers_its_predictions(page):
    assert all(one.answer for one in teaching.predictions(page))


@pytest.mark.parametrize("page", CHAPTERS)
def test_no_answer_stands_before_its_question(page):
    texts = [cell["source"] for cell in teaching.cells(page)]
    text = "\n".join(texts)
    for one in teaching.predictions(page):
        assert text.index(one.question) < min(text.index(line) for line in one.answer)


@pytest.mark.parametrize("page", CHAPTERS)
def test_a_mark_never_begins_a_line_where_it_would_hide_the_text_behind_it(page):
    lines = [line for cell in teaching.cells(page) for line in cell["source"].split("\n")]
    assert [line for line in lines if "<!-- answer" in line and not teaching.MARK.match(line)] == []


def test_an_answer_may_name_an_earlier_question(notebook):
    box = ":::{admonition} Predict\n:class: predict\n%s\n:::"
    notebook(
        box % "How many?",
        "print(1)",
        f"{box % 'Why?'}",
        "print(2)",
        "So. <!-- answer -->\n4. <!-- answer: cell-1 -->",
    )
    assert [(one.name, one.answer) for one in teaching.predictions("any")] == [
        ("cell-1", ("4.",)),
        ("cell-3", ("So.",)),
    ]


def test_an_answer_without_a_question_is_an_error(notebook):
    notebook("Nine. <!-- answer -->", "print(1)")
    with pytest.raises(ValueError, match="Mark a line behind its box, or name the box"):
        teaching.predictions("any")


# ---- plans ----


@pytest.mark.parametrize("session", SESSIONS)
def test_the_minutes_of_a_session_add_up_to_its_length(session):
    text = instructors.session_markdown(session)
    *parts, whole = [int(found) for found in re.findall(r"\*\*(\d+) min", text)]
    assert sum(parts) == whole == session["minutes"]
    assert instructors.rest(session) >= 5


@pytest.mark.parametrize("session", SESSIONS)
def test_a_session_names_chapters_and_works_that_exist(session):
    pages = [page for item in session["items"] if (page := instructors.page_of(item))]
    assert set(pages) <= {*CHAPTERS, *LABS} and session.get("session", LABS[0]) in LABS
    assert set(session["read"]) <= {work["key"] for work in WORKS} and session["read"]
    assert session["cut"].endswith(".")
    for item in session["items"]:
        assert set(item) - {"chapter", "lab", "parts", "short", "pause"} == set()
        assert len(item.get("parts", ())) == len(set(item.get("parts", ())))


def test_a_term_has_every_chapter_whole_in_the_order_of_the_book_and_every_lab():
    term = next(plan for plan in PLANS if plan["title"] == "One term")
    items = [item for session in term["sessions"] for item in session["items"] if "pause" not in item]
    assert [item["chapter"] for item in items] == CHAPTERS
    assert all(set(item) == {"chapter"} for item in items)
    labs = [session["session"] for session in term["sessions"] if "session" in session]
    assert sorted(labs) == [page for page in sorted(LABS) if not page.endswith("_solved")]


WEEKS = {20: "twenty", 21: "twenty-one", 22: "twenty-two", 23: "twenty-three", 24: "twenty-four"}


def test_a_plan_has_the_length_that_it_promises():
    lengths = {plan["title"]: [session["minutes"] for session in plan["sessions"]] for plan in PLANS}
    weeks = lengths.pop("One term")
    assert lengths == {"One lecture": [90], "One week": [180] * 5} and set(weeks) == {120}
    about = next(plan["about"] for plan in PLANS if plan["title"] == "One term")
    assert f"There are {WEEKS[len(weeks)]} weeks of two hours" in about


# ---- the pages ----


def test_a_relative_link_of_a_chapter_leads_to_the_same_place_from_the_bank():
    text = "[a](../sharding/zero.ipynb#what-it-costs) [b](ranks.ipynb) [c](#groups) [d](https://x.org/y)"
    assert teaching.elsewhere(text, "foundations/ranks") == (
        "[a](../notebooks/sharding/zero.ipynb#what-it-costs) [b](../notebooks/foundations/ranks.ipynb) "
        "[c](../notebooks/foundations/ranks.ipynb#groups) [d](https://x.org/y)"
    )


def test_the_bank_holds_every_prediction_once():
    bank = instructors.bank_markdown()
    assert bank.count("{dropdown} Answer") == sum(boxes(page, "predict") for page in CHAPTERS) > 150
    assert "<!--" not in bank
