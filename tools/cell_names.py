"""How are the cells of a notebook named? By slugs that say what they hold, not at random."""

import ast
import itertools
import re

SLUG = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
RANDOM_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}.*)?")


def cell_names(notebook):
    """A rule of the normal form: yield (cell id, what is wrong and what to do)."""
    seen = set()
    for cell in notebook.cells:
        if RANDOM_ID.fullmatch(cell.id) or not SLUG.fullmatch(cell.id):
            yield cell.id, "is named at random; give it an id of lowercase words and hyphens, or run it again"
        if cell.id in seen:
            yield cell.id, "shares its id with another cell; give it another"
        seen.add(cell.id)


def name_cells(cells):
    """Give each cell without a good name of its own one, in place."""
    taken = set()
    for cell in cells:
        name = cell.get("id", "")
        if name in taken or RANDOM_ID.fullmatch(name) or not SLUG.fullmatch(name):
            name = _fresh(_slug_of(cell), taken | {other.get("id") for other in cells})
        cell.id = name
        taken.add(name)


def _fresh(slug, taken):
    numbered = (f"{slug}-{n}" for n in itertools.count(2))
    return next(name for name in itertools.chain([slug], numbered) if name not in taken)


def _slug_of(cell):
    """The heading or first words of a text, the first thing defined, imported or named by code."""
    if cell.cell_type == "code":
        words = _first_name(cell.source)
    else:
        heading = re.search(r"^#+ (.+)$", cell.source, re.MULTILINE)
        words = heading.group(1) if heading else cell.source
    slug = "-".join(re.findall(r"[a-z0-9]+", words.lower())[:6]).lstrip("0123456789-")
    return slug[:50].rstrip("-") or cell.cell_type


def _first_name(source):
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except SyntaxError:
        return source
    defined = [node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    imported = ["imports" for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    named = [node.id for node in nodes if isinstance(node, ast.Name)]
    return [*defined, *imported, *named, "code"][0]
