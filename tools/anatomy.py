"""Does a chapter have every part that every chapter has?

Labs, reference pages and the problems at the end of a part are notebooks too, but not chapters.
"""

import ast
import re

NOT_CHAPTERS = {"labs", "reference"}


def is_chapter(path):
    """Whether the notebook `path` (notebooks/<part>/<slug>.ipynb) is a chapter."""
    part = path.resolve().parent
    is_page = part.parent.name == "notebooks" and part.name not in NOT_CHAPTERS
    return is_page and path.stem != "problems"


def missing_parts(notebook):
    """Yield (cell id or None, what) for every part of a chapter that is missing."""
    for part, present in PARTS.items():
        if not present(notebook):
            yield None, f"is a chapter without {part}"
    yield from one_ignored_output(notebook)
    yield from pictures_without_a_caption(notebook)


def _text(notebook):
    return "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")


def _code(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def _trees(notebook):
    """The syntax trees of the code cells; a cell that is wrong on purpose has none."""
    for cell in _code(notebook):
        try:
            yield ast.parse(cell.source)
        except SyntaxError:
            continue


def _nodes(notebook, kind):
    return (node for tree in _trees(notebook) for node in ast.walk(tree) if isinstance(node, kind))


def _draws(cell):
    """Whether the stored outputs of a cell of code have a picture that is no explorer."""
    return any(
        {"image/png", "image/svg+xml"} & set(output.get("data", {}))
        and "explorer" not in output.get("metadata", {}).get("image/svg+xml", {})
        for output in cell.outputs
    )


def _first_screen(notebook):
    """The cells before the imports: the title with a question, a picture, and the claim."""
    return notebook.cells[:3]


def opens_with_a_picture(notebook):
    """An explorer is one too."""
    return any(
        cell.cell_type == "code" and "opening" in cell.metadata.get("tags", []) and cell.outputs
        for cell in notebook.cells[1:2]
    )


def opens_with_a_title(notebook):
    cells = _first_screen(notebook)
    text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    return (
        text.startswith("# ")
        and re.search(r"\*\*Claim\*\*|^:class:.*\bclaim\b", text, re.MULTILINE)
        and all(part in text for part in ("You need", "Runs in"))
    )


def imports_follow_the_claim(notebook):
    following = next(iter(notebook.cells[len(_first_screen(notebook)) :]), None)
    if following is None or following.cell_type != "code":
        return False
    body = ast.parse(following.source).body
    return bool(body) and isinstance(body[0], ast.Import | ast.ImportFrom)


def imports_nowhere_else(notebook):
    before = sum(cell.cell_type == "code" for cell in _first_screen(notebook))
    later = [node for tree in list(_trees(notebook))[before + 1 :] for node in tree.body]
    return not any(isinstance(node, ast.Import | ast.ImportFrom) for node in later)


def asks_for_a_prediction(notebook):
    return re.search(r"^:class:.*\bpredict\b", _text(notebook), re.MULTILINE)


def asserts_something(notebook):
    return any(_nodes(notebook, ast.Assert))


def breaks_something(notebook):
    return any("raises-exception" in cell.metadata.get("tags", []) for cell in _code(notebook))


def checks_an_answer(notebook):
    return any(
        isinstance(call.func, ast.Attribute) and ast.unparse(call.func).startswith("check.")
        for call in _nodes(notebook, ast.Call)
    )


def has_a_solution(notebook):
    return "{solution-start}" in _text(notebook) and "{solution-end}" in _text(notebook)


def says_what_it_costs(notebook):
    return "what it costs" in _text(notebook).lower()


def says_when_not_to(notebook):
    return "when not to use it" in _text(notebook).lower()


def one_ignored_output(notebook):
    ignored = [cell.id for cell in _code(notebook) if "nbval-ignore-output" in cell.metadata.get("tags", [])]
    for name in ignored[1:]:
        yield (
            name,
            f"is tagged nbval-ignore-output, and so is {ignored[0]!r}; a chapter has at most one such cell",
        )


def pictures_without_a_caption(notebook):
    for cell in _code(notebook):
        caption = cell.metadata.get("mystnb", {}).get("figure", {}).get("caption")
        if _draws(cell) and not caption:
            yield cell.id, "draws a picture without a caption: give its metadata mystnb.figure.caption"


PARTS = {
    "a title cell with a claim (**Claim** or `:class: claim`), *You need* and *Runs in*": opens_with_a_title,
    "a picture that opens it: a cell tagged `opening` between the title and the claim": opens_with_a_picture,
    "imports in the cell after its claim": imports_follow_the_claim,
    "all of its imports in that cell": imports_nowhere_else,
    "a question to predict (an admonition with `:class: predict`)": asks_for_a_prediction,
    "an assert": asserts_something,
    "something instructive that breaks (a cell tagged raises-exception)": breaks_something,
    "a checked exercise (a call of `check.…`)": checks_an_answer,
    "a solution ({solution-start} … {solution-end})": has_a_solution,
    "a line *What it costs* in its summary": says_what_it_costs,
    "a line *When not to use it* in its summary": says_when_not_to,
}
