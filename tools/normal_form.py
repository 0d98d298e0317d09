"""What does a committed notebook look like? One normal form: how to write it, and every way to miss it.

The form: nbformat 4.5 as `nbformat` writes it; cells named by slugs; code cells executed once, in order;
metadata that says something about the page and nothing about the run; outputs that the next run repeats.
A stored traceback keeps the frames of the notebook's own cells and the error: frames of libraries show
paths and line numbers of one machine.
"""

import base64
import io
import itertools
import json
import re
from pathlib import Path

import nbformat
from cell_names import cell_names, name_cells
from PIL import Image
from tracebacks import frames_name_their_cells

NOTEBOOK_METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
CELL_METADATA = {"tags", "mystnb", "jupyter"}
MAX_BYTES = 150_000  # beside the pictures of explorers
MAX_CODE_LINES = 25
MIN_ALT_LENGTH = 20

COLOUR = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
IMAGE = re.compile(r"image/(png|jpeg|gif|svg\+xml)")
TABLE = re.compile(r"^(\|.*\|)\n\|[-: |]+\|$", re.MULTILINE)
WIDGET = "application/vnd.jupyter.widget-view+json"
SVG = "image/svg+xml"
SAME_IN_NO_OTHER_RUN = {
    "a colour code": COLOUR,
    "a memory address": re.compile(r"\b0x[0-9a-f]{6,}"),
    "a port": re.compile(r"(127\.0\.0\.1|0\.0\.0\.0|localhost|\[::1\]):\d+"),
    "a path of this machine": re.compile(
        rf"{re.escape(str(Path(__file__).resolve().parent.parent))}|site-packages|ipykernel_\d"
        r"|(?<![\w.])(~/\.|/(home|root|tmp|usr|opt|var|srv|mnt|content|Users)/)|\b[A-Z]:\\"
    ),
}


# ---- reading and writing it ----


def loads(text):
    """The notebook in the text of a file, as it is: nothing is upgraded or repaired on the way."""
    return nbformat.v4.reads(text)


def dumps(notebook):
    """The notebook as the text of its file."""
    return nbformat.v4.writes(notebook) + "\n"


def normalise(notebook):
    """Bring `notebook` into the normal form, in place; what an author must decide is left for `problems`."""
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    notebook.metadata = nbformat.from_dict(NOTEBOOK_METADATA)
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict(
            {k: v for k, v in cell.metadata.items() if k in CELL_METADATA and v}
        )
        if cell.cell_type == "code":
            cell.outputs = _merged_streams(map(_normal_output, cell.outputs))
    name_cells(notebook.cells)


def with_small_pictures(notebook):
    """Store each PNG of `notebook` with a palette of 256 colours where that is smaller, in place."""
    for cell in code_cells(notebook):
        for output in cell.outputs:
            if "image/png" in output.get("data", {}):
                output.data["image/png"] = _small_png(output.data["image/png"])


def _small_png(encoded):
    picture = Image.open(io.BytesIO(base64.b64decode(encoded))).convert("RGB")
    file = io.BytesIO()
    picture.quantize(256, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(file, "PNG", optimize=True)
    small = base64.b64encode(file.getvalue()).decode() + "\n"
    return small if len(small) < len(encoded) else encoded


def _normal_output(output):
    if SVG in output.get("data", {}):
        output.data.pop(WIDGET, None)  # an explorer: its picture is stored, its widget lives in a kernel
    if "metadata" in output:
        output.metadata = nbformat.from_dict({k: v for k, v in output.metadata.items() if k in output.data})
    if output.output_type == "stream":
        output.text = COLOUR.sub("", output.text)
    elif output.output_type == "error":
        output.evalue = COLOUR.sub("", output.evalue)
        frames = [COLOUR.sub("", frame) for frame in output.traceback]
        output.traceback = [frame for frame in frames if not frame.startswith("File ")]
    elif "text/plain" in output.data:
        output.data["text/plain"] = COLOUR.sub("", output.data["text/plain"])
    return output


def _stream_name(output):
    return output.get("name")


def _merged_streams(outputs):
    merged = []
    for name, run in itertools.groupby(outputs, key=_stream_name):
        run = list(run)
        if name:
            run[0].text = "".join(output.text for output in run)
            run = run[:1]
        merged.extend(run)
    return merged


# ---- checking it: each rule yields (cell id or None, what is wrong and what to do) ----


def problems(text):
    """Every way in which the notebook file with this text misses the normal form."""
    notebook = loads(text)
    if (notebook.get("nbformat"), notebook.get("nbformat_minor")) != (4, 5):
        return [(None, "is not in nbformat 4.5; run `tools/nb.py run` on it")]
    if code_cells(notebook) and not any(cell.execution_count for cell in code_cells(notebook)):
        return [(None, "was never run; run `tools/nb.py run` on it")]
    found = [problem for rule in RULES for problem in rule(notebook)]
    found += [(cell.id, what) for cell in code_cells(notebook) for rule in CELL_RULES for what in rule(cell)]
    if (size := len(text.encode()) - explorer_bytes(notebook)) > MAX_BYTES:
        found.append((None, f"takes {size:,} bytes, the limit is {MAX_BYTES:,}; show smaller outputs"))
    if not found:
        found += stored_form(notebook, text)
    return found


def explorer_bytes(notebook):
    """The bytes of the pictures of explorers, which have a limit of their own."""
    outputs = [output for cell in code_cells(notebook) for output in cell.outputs]
    return sum(
        len(json.dumps(output.data[SVG], ensure_ascii=False).encode())
        for output in outputs
        if "explorer" in output.get("metadata", {}).get(SVG, {})
    )


def each_explorer_once(notebook):
    """A link names an explorer and its settings, so a page has room for one of each."""
    seen = set()
    for cell in code_cells(notebook):
        for output in cell.outputs:
            name = output.get("metadata", {}).get(SVG, {}).get("explorer")
            if name in seen:
                yield cell.id, f"shows the explorer {name!r} a second time; point back to the first one"
            seen.update({name} - {None})


def stored_form(notebook, text):
    try:
        nbformat.validate(notebook)
    except nbformat.ValidationError as error:
        yield None, f"is not a valid notebook: {str(error).splitlines()[0]}"
    if text != dumps(notebook):
        yield None, "is not stored the way nbformat writes it; run `tools/nb.py run` on it"


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def tags(cell):
    return cell.metadata.get("tags", [])


def notebook_metadata(notebook):
    if notebook.metadata != NOTEBOOK_METADATA:
        wrong = sorted(k for k in notebook.metadata if notebook.metadata[k] != NOTEBOOK_METADATA.get(k))
        yield None, f"has other metadata than the normal form ({', '.join(wrong) or 'missing'}); run it again"


def cell_metadata(notebook):
    for cell in notebook.cells:
        for key in sorted(set(cell.metadata) - CELL_METADATA):
            yield cell.id, f"has metadata {key!r}; only {', '.join(sorted(CELL_METADATA))} belong in a cell"


def execution_counts(notebook):
    for expected, cell in enumerate(code_cells(notebook), start=1):
        if cell.execution_count != expected:
            yield (
                cell.id,
                f"has execution count {cell.execution_count}, not {expected}; run the notebook again",
            )


def code_length(cell):
    lines = len(cell.source.splitlines())
    if lines > MAX_CODE_LINES:
        yield f"has {lines} lines, the limit is {MAX_CODE_LINES}; split it where its idea splits"


def repeatable_outputs(cell):
    for output in cell.outputs:
        for what, pattern in SAME_IN_NO_OTHER_RUN.items():
            if match := pattern.search(_text_of(output)):
                yield f"shows {what} ({match.group()!r}) that no other run repeats; print something else"


def _text_of(output):
    if output.output_type == "stream":
        return output.text
    if output.output_type == "error":
        return "\n".join([output.evalue, *output.traceback])
    texts = (
        v if isinstance(v, str) else json.dumps(v)
        for k, v in output.data.items()
        if k not in {"image/png", "image/jpeg"}
    )
    return "\n".join(texts)


def plain_outputs(cell):
    kinds = [_stream_name(output) for output in cell.outputs]
    if any(first and first == second for first, second in itertools.pairwise(kinds)):
        yield "has a stream in several pieces; run it again"
    for output in cell.outputs:
        data = output.get("data", {})
        for key in sorted(set(output.get("metadata", {})) - set(data)):
            yield f"has output metadata {key!r}; run it again"
        if WIDGET in data:
            yield "shows a live widget, which is empty without its kernel; show something that is stored"


def expected_errors(cell):
    raised = any(output.output_type == "error" for output in cell.outputs)
    if raised and "raises-exception" not in tags(cell):
        yield "raised an error; mend it, or tag it raises-exception if the error is the lesson"
    if not raised and "raises-exception" in tags(cell):
        yield "is tagged raises-exception but raised nothing; remove the tag"


def no_warnings(cell):
    if "stderr" in map(_stream_name, cell.outputs) and "shows-stderr" not in tags(cell):
        yield "writes to stderr, where readers see trouble; avoid the warning, or tag the cell shows-stderr"


def figures_have_text(cell):
    shows_image = any(
        IMAGE.fullmatch(kind) and "explorer" not in output.metadata.get(kind, {})  # it says its own words
        for output in cell.outputs
        for kind in output.get("data", {})
    )
    alt = cell.metadata.get("mystnb", {}).get("image", {}).get("alt", "")
    if shows_image and len(alt.strip()) < MIN_ALT_LENGTH:
        yield (
            "shows a figure without alternative text; say what it shows, with the number, in its metadata: "
            '{"mystnb": {"image": {"alt": "…"}}}'
        )


def table_headers(notebook):
    for cell in notebook.cells:
        for header in TABLE.findall(cell.source) if cell.cell_type == "markdown" else ():
            if not all(column.strip() for column in header.strip("| ").split("|")) or header.startswith(
                "| |"
            ):
                yield (
                    cell.id,
                    "has a table with a column without a name, which is read aloud as nothing; name it",
                )


RULES = [
    notebook_metadata,
    cell_names,
    cell_metadata,
    execution_counts,
    frames_name_their_cells,
    table_headers,
    each_explorer_once,
]
CELL_RULES = [
    code_length,
    repeatable_outputs,
    plain_outputs,
    expected_errors,
    no_warnings,
    figures_have_text,
]
