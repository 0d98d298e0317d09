"""How does a reader run ranks in a page that has no kernel? A tagged cell gets an editor and simulated ranks.

A cell tagged `run-in-page` is run while the book is built, in a CPython that has only what the page has; the
picture of its messages and its words are stored in the page, for print and for readers without scripts.
`ranks.js` runs what a reader makes of it in MicroPython, in a frame that reaches nothing outside of itself.
"""

from __future__ import annotations

import html
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from docutils import nodes
from sphinx.errors import ExtensionError

from allranks_book.explorers import packed
from allranks_book.programs import Program, programs
from allranks_book.rank_files import python_files, write

SCRIPT, STYLE = "ranks.js", "ranks.css"
ALPHAS = (1e-6, 1e-5, 1e-4)
BANDWIDTHS = (1e8, 1e9, 1e10, 1e11)
START = {"alpha": 1e-5, "beta": 1e-9}
SERVE = """import sys; sys.path.insert(0, sys.argv[1])
import page
for line in sys.stdin:
    print(page.answer(line), flush=True)"""
SECONDS = 60


def told(source: str) -> tuple[dict, dict]:
    """What the page would show of a program, in the width of a page and of a phone."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        questions = [{"source": source, **START, "narrow": narrow} for narrow in (False, True)]
        run = subprocess.run(
            [sys.executable, "-I", "-S", "-c", SERVE, folder],
            input="\n".join(map(json.dumps, questions)),
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=SECONDS,
            check=False,
        )
    if run.returncode:
        raise ExtensionError(f"A program of a page could not be run: {run.stderr}")
    wide, narrow = (json.loads(line) for line in run.stdout.splitlines())
    return wide, narrow


def add_figures(app, doctree, docname: str) -> None:
    """Put a figure behind each tagged cell."""
    source = Path(app.env.doc2path(docname))
    if app.builder.format != "html" or source.suffix != ".ipynb":
        return
    found = programs(source)
    if not found:
        return
    cells = doctree.findall(lambda node: isinstance(node, nodes.container) and "cell_index" in node)
    for cell in list(cells):
        if cell["cell_index"] in found:
            program = found[cell["cell_index"]]
            if program.is_whole:
                cell["classes"].append("ar-replaced")
            figure = nodes.raw("", figure_html(program, source.stem), format="html")
            cell.parent.insert(cell.parent.index(cell) + 1, figure)


def figure_html(program: Program, page: str) -> str:
    """A `<figure>`: the program to edit, what can be set, the picture of its messages, and its words."""
    wide, narrow = told(program.source)
    if wide["exception"] and not program.stops:
        raise ExtensionError(f"{page}, cell {program.name}: {wide['exception']}. Tag it raises-exception?")
    shown = "check." not in program.source  # the picture of an exercise would be that of its stub
    about = 'role="img" aria-label="Messages between ranks over time"'
    pictures = "".join(
        f'<div class="ar-space ar-space-{width}" {about}>{each["svg"] if shown else ""}</div>'
        for width, each in (("wide", wide), ("narrow", narrow))
    )
    words = wide["text"] if shown else ""
    failure = html.escape(wide["failure"] or "") if shown else ""
    printed = html.escape(wide["printed"]) if program.is_whole else ""  # else it stands above, in the cell
    lines = "".join(f"<li>{html.escape(line)}</li>" for line in wide["ranks"]) if shown else ""
    kind = "ar-ranks ar-whole" if program.is_whole else "ar-ranks"
    write_here = "Change the text above, then press Run. " if program.is_whole else ""
    return (
        f'<figure class="{kind}" id="ranks-{program.name}" data-program="{program.name}">'
        f"{editor_html(program)}{bar_html(program.name)}"
        f'<div class="ar-honest">{write_here}Simulated ranks: this page’s own torch. '
        "The notebook runs the same text on real processes.</div>"
        f'<div class="ar-told" aria-live="polite"><div class="ar-failure">{failure}</div>'
        '<pre class="ar-printed" tabindex="0" role="group" aria-label="What the program printed">'
        f"{printed}</pre></div>"
        f"{pictures}{steps_html(program.name, wide.get('steps', 0) if shown else 0)}"
        f'<details class="ar-by-rank"><summary>Rank by rank</summary><ul>{lines}</ul></details>'
        f'<figcaption aria-live="polite">{html.escape(words)}</figcaption></figure>'
    )


def editor_html(program: Program) -> str:
    """The program as a text area over its coloured copy; a script makes the copy."""
    rows = program.source.count("\n") + 1
    label = "Program of every rank. Shift+Enter runs it; Escape, then Tab, leaves the editor."
    area = (
        '<div class="ar-code"><pre aria-hidden="true"></pre>'
        f'<textarea aria-label="{label}" rows="{rows}" spellcheck="false" autocapitalize="off" '
        f'autocomplete="off" autocorrect="off">{html.escape(program.source)}</textarea></div>'
    )
    if program.is_whole:
        return f'<div class="ar-program">{area}</div>'
    return f'<details class="ar-program"><summary>Edit the program</summary>{area}</details>'


def bar_html(name: str) -> str:
    """What can be done and set."""
    sizes = "".join(f'<option value="{p}">{p}</option>' for p in range(2, 9))
    alphas = options({α: f"{α * 1e6:g} µs" for α in ALPHAS}, START["alpha"])
    betas = options({1 / b: f"{b / 1e9:g} GB/s" for b in BANDWIDTHS}, START["beta"])
    return (
        f'<form class="ar-run-bar" aria-label="Run the program {name}">'
        '<button type="button" data-do="run">Run</button>'
        f'<label>ranks <select name="ranks">{sizes}</select></label>'
        f'<label>α <select name="alpha">{alphas}</select></label>'
        f'<label>1/β <select name="beta">{betas}</select></label>'
        '<button type="button" data-do="reset">Reset</button>'
        '<button type="button" data-do="copy">Copy link</button></form>'
    )


def options(words: dict, chosen: float) -> str:
    """The options of a `<select>`."""
    return "".join(
        f'<option value="{value}"{" selected" if value == chosen else ""}>{said}</option>'
        for value, said in words.items()
    )


def steps_html(name: str, steps: int) -> str:
    """The controls that show the messages one by one."""
    return (
        f'<div class="ar-message-steps"{"" if steps else " hidden"}>'
        f'<label for="ranks-{name}-steps">messages</label>'
        f'<input type="range" id="ranks-{name}-steps" min="0" max="{steps}" value="{steps}">'
        '<button type="button" data-do="back" aria-label="One message back">‹</button>'
        '<button type="button" data-do="play" aria-pressed="false">Play</button>'
        '<button type="button" data-do="on" aria-label="One message on">›</button></div>'
    )


def add_script(app, pagename, templatename, context, doctree) -> None:
    """Load script and style where a page has such a figure."""
    if 'class="ar-ranks' in context.get("body", ""):
        app.add_css_file(STYLE)
        app.add_js_file(SCRIPT, defer="defer")


def write_files(app, exception) -> None:
    """Write what a page unpacks when its reader runs the first program."""
    if exception or app.builder.format != "html":
        return
    folder = Path(app.outdir) / "_static" / "explorers"
    folder.mkdir(exist_ok=True)
    files = packed(json.dumps(python_files(), ensure_ascii=False).encode())
    (folder / "ranks.js").write_text(f'window.allRanksRanks="{files}";\n', encoding="utf-8")


def setup(app) -> None:
    """Add the figures when a page is written, before its addresses are given."""
    app.connect("doctree-resolved", add_figures, priority=900)
    app.connect("html-page-context", add_script)
    app.connect("build-finished", write_files)
