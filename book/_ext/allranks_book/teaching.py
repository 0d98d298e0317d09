"""What do the notebooks hold for who teaches with them? Minutes, questions, and the answers to predictions.

A note is an admonition of class `instructor`: how many minutes the text takes since the note before it, a
question, its usual wrong answer, and in the last note the way through in less time. A prediction is an
admonition of class `predict`. Its answer stands in the text that follows: every source line that ends with
`<!-- answer -->` is part of it; `<!-- answer: name -->` answers an earlier one, which is named as the code
cell behind it is.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[3]
BOX = re.compile(r"^:::\{admonition\}.*\n:class: (predict|instructor)\n((?:.*\n)*?):::$", re.MULTILINE)
PIECE = re.compile(r"^(?=:::\{admonition\}|###? )", re.MULTILINE)
HEADING = re.compile(r"###? (.+)")
NOTE = re.compile(
    r"(?P<minutes>\d+) minutes(?P<how>\b.*\.)\n"
    r"\*Ask\*: (?P<ask>.+)\n"
    r"\*Usual wrong answer\*: (?P<wrong>.+)\n"
    r"(?:\*In (?P<short>\d+) minutes\*: (?P<route>.+)\n)?"
)
MARK = re.compile(r"^(.+?) <!-- answer(?:: ([\w-]+))? -->$")
SHOWN = re.compile(r"^explorers\.show\(\s*\"(\w+)\"", re.MULTILINE)
LINK = re.compile(r"\]\((?!https?:)([^()\s]*)\)")


class Note(NamedTuple):
    """A lecturer's note, and the headings and explorers of the text that its minutes are for."""

    minutes: int
    how: str
    ask: str
    wrong: str
    short: int | None
    route: str
    sections: tuple[str, ...]
    explorers: tuple[str, ...]


class Prediction(NamedTuple):
    """A question of a *Predict* box, the name of its place, its section, and the lines that answer it."""

    name: str
    section: str
    question: str
    answer: tuple[str, ...]


def pages(part: str = r"(?!labs|reference)\w+") -> list[str]:
    """The notebooks in the order of the contents, as `part/slug`; without an argument the chapters.

    The problems at the end of a part are no chapter: there is nothing to lecture.
    """
    contents = (ROOT / "_toc.yml").read_text(encoding="utf-8")
    return re.findall(rf"file: notebooks/({part}/(?!problems$)\w+)$", contents, re.MULTILINE)


@cache
def cells(page: str) -> list[dict]:
    """The cells of a notebook; a source is one string."""
    path = ROOT / "notebooks" / f"{page}.ipynb"
    stored = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [{"id": c["id"], "kind": c["cell_type"], "source": "".join(c["source"])} for c in stored]


@cache
def notes(page: str) -> list[Note]:
    """The lecturer's notes of a notebook; one that is written in another way is an error that says how to."""
    found, sections, shown = [], [], []
    for cell in cells(page):
        if cell["kind"] == "code":
            shown += SHOWN.findall(cell["source"])
            continue
        for piece in re.split(PIECE, cell["source"]):
            if heading := HEADING.match(piece):
                sections.append(heading[1])
            box = BOX.match(piece)
            if box and box[1] == "instructor":
                found.append(_note(page, cell["id"], box[2], sections, shown))
                sections, shown = [], []
    return found


def _note(page, cell, text, sections, shown):
    written = NOTE.fullmatch(text)
    if written is None:
        raise ValueError(
            f"{page}, cell {cell}: a lecturer's note has the lines '5 minutes.', '*Ask*: …', "
            f"'*Usual wrong answer*: …' and, if it is the last one, '*In 20 minutes*: …'; this one is\n{text}"
        )
    parts = {key: (value or "").strip() for key, value in written.groupdict().items()}
    return Note(
        **parts
        | {"minutes": int(parts["minutes"]), "short": int(parts["short"]) if parts["short"] else None}
        | {"sections": tuple(sections), "explorers": tuple(shown)}
    )


@cache
def predictions(page: str) -> list[Prediction]:
    """The questions of a notebook's *Predict* boxes with their answers, in the order of the page."""
    asked, answers, latest, section = {}, {}, None, ""
    for place, cell in enumerate(cells(page)):
        if cell["kind"] == "code":
            continue
        for piece in re.split(PIECE, cell["source"]):
            if heading := HEADING.match(piece):
                section = heading[1]
            box = BOX.match(piece)
            if box and box[1] == "predict":
                latest = _name(page, place, asked)
                asked[latest] = section, box[2].strip()
            for line in piece.split("\n"):
                if marked := MARK.match(line):
                    answers.setdefault(marked[2] or latest, []).append(marked[1])
    if astray := answers.keys() - asked.keys():
        raise ValueError(
            f"{page}: lines are marked as the answer to {sorted(map(str, astray))}; the predictions are "
            f"{list(asked)}. Mark a line behind its box, or name the box."
        )
    return [Prediction(name, *said, tuple(answers.get(name, ()))) for name, said in asked.items()]


def _name(page, place, taken):
    name = next(cell["id"] for cell in cells(page)[place:] if cell["kind"] == "code")
    numbered = [name, *(f"{name}-then-{n}" for n in range(2, 9))]
    return next(name for name in numbered if name not in taken)


def anchor(name: str) -> str:
    """The name of a prediction's place on its page."""
    return f"predict-{name}"


def elsewhere(text: str, page: str) -> str:
    """A text of a notebook for a page in book/: its relative links lead to where they led."""

    def moved(link):
        file, mark, place = link[1].partition("#")
        target = (ROOT / "notebooks" / page).parent / file if file else ROOT / "notebooks" / f"{page}.ipynb"
        return f"](../{target.resolve().relative_to(ROOT).as_posix()}{mark}{place})"

    return LINK.sub(moved, text)
