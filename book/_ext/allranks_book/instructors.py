"""What does a lecturer find on two pages: plans that add up, the notes of every chapter, and a question bank?

All of it is Markdown made from the notebooks (`teaching.py`) and `book/plans.yaml`; the pages need no script.
"""

from __future__ import annotations

import re
from functools import cache

import yaml
from docutils import nodes
from mdit_py_plugins.anchors.index import slugify

from allranks_book import teaching
from allranks_book.reading import WORKS, chapter_title, duration, reading_list

PLANS = teaching.ROOT / "book" / "plans.yaml"
HOME = "book/instructors"
BANK = "book/question_bank"


# ---- how long things take ----


@cache
def plans() -> list[dict]:
    """The file of plans as it is."""
    return yaml.safe_load(PLANS.read_text(encoding="utf-8"))


def whole(page: str) -> int:
    """The minutes of a chapter or lab: the sum of its notes."""
    return sum(note.minutes for note in teaching.notes(page))


def short(page: str) -> int:
    """The minutes of its short way, which its last note describes."""
    return teaching.notes(page)[-1].short


def page_of(item: dict) -> str | None:
    """The chapter or lab of an item of a session; None for a pause."""
    return item.get("chapter") or item.get("lab")


def minutes(item: dict) -> int:
    """How long an item of a session takes, by the notes of its notebook."""
    page = page_of(item)
    if page is None:
        return item["pause"]
    if "parts" in item:
        return sum(teaching.notes(page)[part - 1].minutes for part in item["parts"])
    return short(page) if item.get("short") else whole(page)


def rest(session: dict) -> int:
    """The minutes of a session that no item takes."""
    return session["minutes"] - sum(map(minutes, session["items"]))


# ---- the plans ----


def plans_markdown() -> str:
    """Each plan with its sessions, the minutes of everything, and what is read before."""
    return "\n\n".join(map(plan_markdown, plans()))


def plan_markdown(plan: dict) -> str:
    """One plan; a session has a heading of its own where there are several."""
    sessions = plan["sessions"]
    total = duration(sum(session["minutes"] for session in sessions))
    works = {work["key"]: work["minutes"] for work in reading_list()["works"]}
    reading = duration(sum(works[key] for session in sessions for key in session["read"]))
    parts = [f"### {plan['title']}: {total}", f"{plan['about']}\nThe reading beforehand takes {reading}."]
    for number, session in enumerate(sessions, 1):
        if len(sessions) > 1:
            parts.append(f"#### {number}. {session['title']}")
        parts.append(session_markdown(session))
        if len(sessions) == 1:
            parts.append(questions_of_markdown(session))
    return "\n\n".join(parts)


def session_markdown(session: dict) -> str:
    """What is done in which minutes, in the order of the session."""
    lines = [f"- **{minutes(item)} min** {item_markdown(item)}" for item in session["items"]]
    lines.append(f"- **{rest(session)} min** {session['rest']}")
    lines.append(f"- **{session['minutes']} min** in all")
    after = [f"*Read beforehand*: {readings_markdown(session['read'])}."]
    if lab := session.get("session"):
        after.append(f"*Lab of the week*: {link(lab)}, {whole(lab)} min.")
    after.append(f"*If time is short, leave out first*: {session['cut']}")
    return ":::{div} ar-session\n" + "\n".join(lines) + "\n\n" + "\n".join(after) + "\n:::"


def questions_of_markdown(session: dict) -> str:
    """The notes of a session's items in its order, closed: all that is asked, on one screen after another."""
    parts = []
    for item in session["items"]:
        if page := page_of(item):
            short_way = f"\n\n*In {short(page)} minutes*: {route(page)}" if item.get("short") else ""
            parts.append(f"{link(page)}{short_way}")
            parts += [note_markdown(note, page) for note in notes_of(item)]
    return "::::{dropdown} What to ask, in the order of the lecture\n:class-container: ar-notes\n" + (
        "\n\n".join([*parts, "::::"])
    )


def notes_of(item: dict) -> list:
    """The notes of the parts of a chapter that an item takes."""
    found = teaching.notes(page_of(item))
    return [found[part - 1] for part in item.get("parts", range(1, len(found) + 1))]


def route(page: str) -> str:
    """The short way through a notebook, in the words of its last note."""
    return teaching.elsewhere(teaching.notes(page)[-1].route, page)


def item_markdown(item: dict) -> str:
    """A chapter with its sections and explorers, a lab, or a pause."""
    page = page_of(item)
    if page is None:
        return "break"
    if item.get("short"):
        return f"{link(page)}, [the short way](#{place(page)})"
    picked, text = notes_of(item), link(page)
    if "parts" in item:
        text += ": " + ", ".join(section(page, name) for note in picked for name in note.sections)
    text += "".join(f", {explorer(page, name)}" for note in picked for name in note.explorers)
    return f"{text} · [what to ask](#{place(page)})"


def readings_markdown(keys: list[str]) -> str:
    """Links to works of the reading list, with the minutes that it gives them."""
    works = {work["key"]: work for work in reading_list()["works"]}
    read = [works[key] for key in keys]
    return ", ".join(f"[{work['name']}](#read-{work['key']}) ({duration(work['minutes'])})" for work in read)


def link(page: str) -> str:
    """A link to a notebook by its title up to a colon; that of a lab keeps its number."""
    title = chapter_title(page)
    return f"[{title if page.startswith('labs/') else title.partition(':')[0]}](../notebooks/{page}.ipynb)"


def section(page: str, name: str) -> str:
    """A link to a section of a notebook."""
    return f"[{name}](../notebooks/{page}.ipynb#{slugify(name)})"


def explorer(page: str, name: str) -> str:
    """A link to an explorer on its page, which is raw HTML there and unknown to Sphinx."""
    return f'<a href="../notebooks/{page}.html#explorer-{name}">explorer</a>'


def place(page: str) -> str:
    """The name of a notebook's notes on the lecturers' page."""
    return f"teach-{page.replace('/', '-')}"


# ---- the notes ----


def notes_markdown() -> str:
    """Every chapter and lab: its minutes, its short way, and its notes, closed until they are opened."""
    found = [*teaching.pages(), *(lab for lab in teaching.pages("labs") if not lab.endswith("_solved"))]
    return "\n\n".join([index_markdown(found), *map(page_markdown, found)])


def index_markdown(found: list[str]) -> str:
    """The minutes of all of them in one paragraph, each a link to its notes."""
    rows = [f"[{chapter_title(page).partition(':')[0]}](#{place(page)}) {whole(page)}" for page in found]
    total = duration(sum(map(whole, teaching.pages())))
    return f"In minutes: {' · '.join(rows)}.\nThe chapters take {total} in all."


def page_markdown(page: str) -> str:
    """The notes of one notebook, in its order."""
    found = teaching.notes(page)
    title = chapter_title(page)
    kind = "lab" if page.startswith("labs/") else "chapter"
    about = [f"{whole(page)} min", f"[the {kind}](../notebooks/{page}.ipynb)"]
    if kind == "lab":
        about.append(f"[solved](../notebooks/{page}_solved.ipynb)")
    else:
        asked = len(teaching.predictions(page))
        about.append(f"[{asked} questions with answers](#{place(page).replace('teach', 'ask', 1)})")
    body = "\n\n".join(note_markdown(note, page) for note in found)
    label = "What to ask" if len(found) == 1 else f"What to ask, in {len(found)} parts"
    return (
        f"({place(page)})=\n### {title}\n\n{{.ar-about}}\n{' · '.join(about)}\n\n"
        f"*In {short(page)} minutes*: {route(page)}\n\n"
        f"::::{{dropdown}} {label}\n:class-container: ar-notes\n{body}\n::::"
    )


def note_markdown(note, page: str) -> str:
    """One note: its minutes, the sections that they are for, the question, and the usual wrong answer."""
    about = [f"**{note.minutes} min**", *(section(page, name) for name in note.sections)]
    about += [explorer(page, name) for name in note.explorers]
    said = [begun(note.how.lstrip("., ")), f"Ask\n: {begun(note.ask)}", f"Usual wrong answer\n: {note.wrong}"]
    return f"{{.ar-about}}\n{' · '.join(about)}\n\n" + teaching.elsewhere("\n\n".join(said), page)


def begun(sentence: str) -> str:
    """A sentence with a capital at its beginning."""
    return sentence[:1].upper() + sentence[1:]


# ---- the labs ----


def labs_markdown() -> str:
    """A table of the labs: the first task, what fits 90 minutes, all of it, and the points."""
    rows = ["| lab | task 1 | in 90 minutes | all of it | points |", "|---|---|---|---|---|"]
    for page in teaching.pages("labs"):
        text = "\n".join(cell["source"] for cell in teaching.cells(page) if cell["kind"] == "markdown")
        found = re.search(r"^In 90 minutes: (.*?)\.?$", text, re.MULTILINE)
        first = re.search(r"^\*(\d+) minutes\W", text, re.MULTILINE)
        points = len(re.findall(r"^## Task \d", text, re.MULTILINE))
        begin = f"{first[1]} min" if first else "10 min"
        way = found[1] if found else "the way in its own notes, which takes 50"
        rows.append(
            f"| [{chapter_title(page)}](../notebooks/{page}.ipynb) | {begin} | {way} "
            f"| {whole(page)} min | {points} |"
        )
    return "\n".join(rows)


# ---- the question bank ----


def bank_markdown() -> str:
    """Every prediction of every chapter, with its answer closed below it."""
    parts = []
    for page in teaching.pages():
        anchor = place(page).replace("teach", "ask", 1)
        parts.append(f"({anchor})=\n## {chapter_title(page)}")
        asked = teaching.predictions(page)
        parts += [question_markdown(one, number, page) for number, one in enumerate(asked, 1)]
    return "\n\n".join(parts)


def question_markdown(asked, number: int, page: str) -> str:
    """One question, the way to its place in the chapter, and its answer in a box that opens."""
    there = f'<a href="../notebooks/{page}.html#{teaching.anchor(asked.name)}">{asked.section}</a>'
    answer = "\n".join(asked.answer)
    text = (
        f"::::{{div}} ar-question\n**{number}.** {asked.question} (In {there}.)\n\n"
        f":::{{dropdown}} Answer\n{answer}\n:::\n::::"
    )
    return teaching.elsewhere(text, page)


# ---- Sphinx ----

MADE = {
    "<!-- plans -->": plans_markdown,
    "<!-- notes -->": notes_markdown,
    "<!-- labs -->": labs_markdown,
    "<!-- questions -->": bank_markdown,
}


def fill_in(app, docname: str, source: list[str]) -> None:
    """Put the plans, the notes, the labs and the questions where a page asks for them."""
    for comment, made in MADE.items():
        if comment in source[0]:
            source[0] = source[0].replace(comment, made())
            notebooks = [teaching.ROOT / "notebooks" / f"{page}.ipynb" for page in teaching.pages(r"\w+")]
            for file in (PLANS, WORKS, __file__, teaching.__file__, *notebooks):
                app.env.note_dependency(str(file))


def name_predictions(app, doctree) -> None:
    """Give every *Predict* box its name as an anchor, and drop the marks of the answers."""
    for comment in list(doctree.findall(nodes.raw)):
        if comment.astext().startswith("<!-- answer"):
            comment.parent.remove(comment)
    page = app.env.docname.removeprefix("notebooks/")
    if page not in teaching.pages():
        return
    boxes = [box for box in doctree.findall(nodes.admonition) if "predict" in box["classes"]]
    for box, asked in zip(boxes, teaching.predictions(page), strict=True):
        box["ids"].append(teaching.anchor(asked.name))


def add_style(app, pagename, templatename, context, doctree) -> None:
    """Style the two pages."""
    if pagename in (HOME, BANK):
        app.add_css_file("instructors.css", priority=900)


def setup(app) -> None:
    """Fill in the pages as they are read, and name what they link to."""
    app.connect("source-read", fill_in)
    app.connect("doctree-read", name_predictions)
    app.connect("html-page-context", add_style)
