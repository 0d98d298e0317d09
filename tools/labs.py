"""How does a lab come from its solution? It is the same notebook, without the lines that the reader writes.

`notebooks/labs/<slug>_solved.ipynb` is the source. In its code the reader's lines stand between
`# ↓ yours` and `# ↑ yours`, and `<slug>.ipynb` has `...` there; its title says ", solved", and a cell
tagged `only-solved` is left out of the lab.
"""

import copy
import re

SOLVED = "_solved"
ONLY_SOLVED = "only-solved"
YOURS = re.compile(r"^( *)# ↓ yours\n(?:.*\n)*?\1# ↑ yours$", re.MULTILINE)


def is_lab(path):
    """Whether the notebook `path` is a lab or a solved one."""
    part = path.resolve().parent
    return part.name == "labs" and part.parent.name == "notebooks"


def solved_one(path):
    """The path of the source of the lab at `path`; None if that is no lab, or is the source itself."""
    if not is_lab(path) or path.stem.endswith(SOLVED):
        return None
    return path.with_name(f"{path.stem}{SOLVED}.ipynb")


def lab_path(path):
    """The path of the lab whose source is at `path`; None if `path` is no solved lab."""
    if not is_lab(path) or not path.stem.endswith(SOLVED):
        return None
    return path.with_name(f"{path.stem.removesuffix(SOLVED)}.ipynb")


def lab_of(solved):
    """The lab that the notebook `solved` is the solution of, without outputs."""
    lab = copy.deepcopy(solved)
    lab.cells = [cell for cell in lab.cells if ONLY_SOLVED not in cell.metadata.get("tags", [])]
    lab.cells[0].source = lab.cells[0].source.replace(", solved", "", 1)
    for cell in lab.cells:
        if cell.cell_type == "code":
            cell.source = YOURS.sub(r"\1# ↓ yours\n\1...\n\1# ↑ yours", cell.source)
            cell.outputs, cell.execution_count = [], None
    return lab


def drift(lab, solved):
    """Yield (cell id or None, what) for every cell of `lab` that does not come from `solved`."""
    expected = {cell.id: cell.source for cell in lab_of(solved).cells}
    found = {cell.id: cell.source for cell in lab.cells}
    if list(expected) != list(found):
        yield None, "has other cells than its solved lab; change the solved one, and run this one"
    for name in expected.keys() & found.keys():
        if expected[name] != found[name]:
            yield name, "differs from its solved lab; change the solved one, and run this one"


def missing_parts(notebook):
    """Yield (cell id or None, what) for every part of a solved lab that is missing."""
    text = "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    code = "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    tasks = len(re.findall(r"^## Task \d", text, re.MULTILINE))
    for what, found in (
        (
            "a title that ends with ', solved'",
            re.match(r"# .*, solved$", notebook.cells[0].source, re.MULTILINE),
        ),
        (
            "*You need* and *Runs in* in its first cell",
            all(p in notebook.cells[0].source for p in ("You need", "Runs in")),
        ),
        ("a task (## Task 1: …)", tasks),
        ("lines of the reader's (# ↓ yours … # ↑ yours) for each task", len(YOURS.findall(code)) >= tasks),
        ("three hints for each task ({dropdown} Hint 1, 2, 3)", text.count("{dropdown} Hint") >= 3 * tasks),
        (
            "a check for each task (check.lab_….…)",
            len(re.findall(r"^check\.lab_\w+\.\w+\(", code, re.MULTILINE)) > tasks,
        ),
        ("a milestone (check.lab_….milestone) at its end", ".milestone(" in code),
    ):
        if not found:
            yield None, f"is a lab without {what}"
    yield from names_that_differ(notebook)


def names_that_differ(notebook):
    """Yield (cell id, what) for every task that the milestone prints by another name than its heading."""
    texts = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    headings = [name for text in texts for name in re.findall(r"^## Task \d+: (.*)$", text, re.MULTILINE)]
    for cell in notebook.cells:
        if cell.cell_type == "code" and ".milestone(" in cell.source:
            printed = "".join(output.get("text", "") for output in cell.outputs)
            names = re.findall(r"^[✓✗] (.*)$", printed, re.MULTILINE)[: len(headings)]
            for heading, name in zip(headings, names):
                if heading != name:
                    yield cell.id, f"prints {name!r} for the task that its heading calls {heading!r}"
