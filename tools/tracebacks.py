"""Do stored tracebacks name the right cells? `Cell In[8], line 3` is true until a cell is put before it."""

import re

FRAME = re.compile(r"Cell In\[(\d+)\], line (\d+)(.*(?:\n.*)*)")
NEXT_LINE = re.compile(r"\n    (?=\D)(.+)")  # of a rank: the next line, without its number


def frames_name_their_cells(notebook):
    """A rule of the normal form: yield (cell id, what is wrong) where a line stands elsewhere now."""
    sources = [cell.source.splitlines() for cell in notebook.cells if cell.cell_type == "code"]
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            for number, line, shown in frames(output):
                lines = sources[number - 1] if 0 < number <= len(sources) else []
                if line > len(lines) or (shown and shown.strip() != lines[line - 1].strip()):
                    where = f"Cell In[{number}], line {line}"
                    yield cell.id, f"shows {where}, where other code stands now; run the notebook again"


def frames(output):
    """Each (number of a cell, line, that line as shown or None) in an output's text or traceback."""
    texts = output.get("traceback") or [output.get("text") or output.get("data", {}).get("text/plain", "")]
    for text in texts:
        for piece in re.split(r"(?=Cell In\[)", text):
            if match := FRAME.match(piece):
                number, line, rest = int(match[1]), int(match[2]), match[3]
                arrow = re.search(rf"\n-+> {line} (.+)", rest)  # of the kernel: an arrow among numbered lines
                after = arrow or NEXT_LINE.match(rest[rest.find("\n") :] if "\n" in rest else "")
                yield number, line, after and after[1]
