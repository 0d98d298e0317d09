"""When did a page last change, and why?

Git knows it; where there is no git, or only its last commits, nothing is said.
A page with the comment `<!-- last changed -->` gets the list of all pages there.
"""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path
from typing import NamedTuple

from allranks_book.repository import Repository, repository

ROOT = Path(__file__).resolve().parents[3]
LIST, FEED = "<!-- last changed -->", "<!-- feeds -->"
COMMIT = "\x1e"
SLUG = re.compile(r"^\[[^\]]+\] ")


class Change(NamedTuple):
    """A commit: its day, as 2026-11-21, its first line, and its name."""

    day: str
    what: str
    commit: str


def git(root: Path, *words: str) -> str:
    """What git says about the folder; nothing if it cannot."""
    try:
        return subprocess.run(["git", "-C", root, *words], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""


@cache
def last_changed(root: Path = ROOT) -> dict[str, Change]:
    """File → its last change, the newest first; empty unless the whole history of the repository is here."""
    if git(root, "rev-parse", "--is-shallow-repository", "--show-cdup").split() != ["false"]:
        return {}
    found: dict[str, Change] = {}
    history = git(
        root,
        "-c",
        "core.quotePath=false",
        "log",
        "--no-renames",
        "--name-only",
        f"--format={COMMIT}%H %cs %s",
    )
    for commit in history.split(COMMIT)[1:]:
        first, *files = commit.splitlines()
        name, day, what = first.split(" ", 2)
        for file in filter(None, files):
            found.setdefault(file, Change(day, what, name))
    return found


def listed(pages: set[str], changed: dict[str, Change], home: Repository) -> str:
    """The commits that were the last for some page, newest first: day, words, and the pages."""
    touched: dict[Change, list[str]] = {}
    for file, change in changed.items():
        if file in pages:
            touched.setdefault(change, []).append(f"[](/{file})")
    lines = []
    for change, links in touched.items():
        day = f"[{change.day}]({home.url}/commit/{change.commit})" if home.on_github else change.day
        lines.append(f"- {day}: {inline(SLUG.sub('', change.what))}.\\\n  {' · '.join(sorted(links))}")
    return "\n".join(lines) or "This copy of the book was built without its history, so no dates stand here."


def inline(text: str) -> str:
    """A text that Markdown shows as it is; code between backquotes stays code."""
    special = "\\[]|$*_<>{}"
    parts = text.split("`") if text.count("`") % 2 == 0 else [text.replace("`", "'")]
    shown = ["".join(f"\\{c}" if c in special else c for c in part) for part in parts[::2]]
    code = [f"`{part.replace('|', chr(92) + '|')}`" for part in parts[1::2]]
    return "".join(one + other for one, other in zip(shown, [*code, ""], strict=True))


def feeds(home: Repository) -> str:
    """Where a feed reader hears of changes: the repository has feeds, so the book needs none of its own."""
    if not home.on_github:
        return f"Every change stands in the [repository]({home.url})."
    return (
        f"A feed reader hears of [releases]({home.url}/releases.atom) and of "
        f"[every change]({home.url}/commits/{home.branch}.atom)."
    )


def fill_in(app, docname: str, source: list[str]) -> None:
    """Put list and feeds where a page asks for them; such a page is read again in every build."""
    if LIST not in source[0]:
        return
    home = repository(app.config)
    pages = {Path(app.env.doc2path(name)).relative_to(app.srcdir).as_posix() for name in app.env.found_docs}
    source[0] = source[0].replace(LIST, listed(pages, last_changed(), home)).replace(FEED, feeds(home))
    app.env.note_reread()


def setup(app) -> None:
    """Fill in the page as it is read."""
    app.connect("source-read", fill_in)
