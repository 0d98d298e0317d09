"""How does an explorer come alive in a page that has no kernel? With the same Python, in MicroPython.

A notebook stores an explorer's picture, and in the picture's metadata its name and settings. Here it
becomes a figure with native controls; `explorers.js` calls `allranks.explorers.draw` in an interpreter that
it starts in a worker. Interpreter and Python files travel as scripts, `_static/explorers/*.js`: pages opened
from a disk may load scripts, but neither modules nor data.
"""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import ClassVar

from docutils import nodes
from myst_nb.core.render import MimeRenderPlugin, load_mime_renders

from allranks import explorers
from allranks.explorers.frame.controls import Choice, Integer, Scale, Steps, Toggle, settings
from allranks.explorers.frame.svg import NARROW
from allranks.explorers.stories.frames import frame
from allranks_book.compiled import bundle, compiled, packed
from allranks_book.shipped import ROOT, python_files
from allranks_book.wasm_memory import capped

SVG = "image/svg+xml"
INTERPRETER = ROOT / "node_modules" / "@micropython" / "micropython-webassembly-pyscript"
SCRIPTS = ("explorers_phone.js", "explorers_handles.js", "explorers.js")  # the first listen to the last
EXPORTS = (
    '<div class="ar-control ar-exports"><button type="button" data-do="svg">Save SVG</button>'
    '<button type="button" data-do="png">Save PNG</button>'
    '<button type="button" data-do="embed">Copy embed code</button></div>'
)
MEMORY = 128 * 2**20  # bytes that Python in a page may use


# ---- the figure ----


class ExplorerFigure(MimeRenderPlugin):
    """Show a stored explorer: its first picture and words for everyone, its controls where scripts run."""

    mime_priority_overrides: ClassVar = [("html", SVG, 6)]

    @staticmethod
    def handle_mime(renderer, data, inline):
        """The figure as raw HTML, or None for a picture that is no explorer."""
        about = data.output_metadata.get(SVG, {}) if data.mime_type == SVG and not inline else {}
        if "explorer" not in about:
            return None
        for script in SCRIPTS:
            renderer.add_js_file(script, script, {"defer": "defer"})
        figure = figure_html(about["explorer"], about["settings"], data.content)
        return [nodes.raw(text=figure, format="html", classes=["output"])]


def figure_html(name: str, given: dict, picture: str, in_sight: list[str] | None = None) -> str:
    """A `<figure>`: what it asks, its story, the picture for a page and for a phone, controls, and words.

    in_sight: the controls that are not folded away; the explorer's own, if none are named.
    """
    module, around = explorers.explorer(name), frame(name)
    in_sight = in_sight or around.primary
    chosen = settings(module.CONTROLS, given)
    shown = explorers.draw(name, chosen)
    narrow = explorers.draw(name, chosen, NARROW)
    made = {
        control.name: control_html(name, control, chosen[control.name], shown) for control in module.CONTROLS
    }
    controls = "".join(made[each] for each in in_sight)
    folded = "".join(control for each, control in made.items() if each not in in_sight)
    if folded:
        folded += EXPORTS
        folded = f'<details class="ar-more"><summary>More</summary><div>{folded}</div></details>'
    story = [(step, settings(module.CONTROLS, step.settings)) for step in around.story]
    told = next((step.words for step, state in story if state == chosen), shown.get("insight", ""))
    about = f'role="img" aria-label="{html.escape(module.TITLE)}"'
    values = {
        control.name: [value for value, _ in control.options]
        for control in module.CONTROLS
        if isinstance(control, (Choice, Scale))
    }
    steps = [{"settings": state, "words": step.words} for step, state in story]
    marks = {"wide": shown.get("marks", ""), "narrow": narrow.get("marks", "")}
    held = {"wide": shown.get("handles", ""), "narrow": narrow.get("handles", "")}
    stored = {"start": chosen, "values": values, "story": steps, "marks": marks, "handles": held}
    stored = json.dumps(stored, separators=(",", ":")).replace("<", "\\u003c")
    return (
        f'<figure class="ar-explorer" id="explorer-{name}" data-explorer="{name}"'
        f' aria-labelledby="explorer-{name}-title">{head_html(name, shown)}'
        f'{story_html(story, chosen)}<div class="ar-insight" aria-live="polite">{html.escape(told)}</div>'
        f'<div class="ar-picture ar-wide"><div class="ar-image" {about}>{picture}</div></div>'
        f'<div class="ar-picture ar-narrow"><div class="ar-image" {about}>{narrow["svg"]}</div></div>'
        '<form class="ar-controls" autocomplete="off" '  # a browser would fill in what was set before Back
        f'aria-label="Settings: {html.escape(module.TITLE)}">{controls}{folded}'
        '<div class="ar-control ar-actions"><button type="button" data-do="reset">Reset</button>'
        '<button type="button" data-do="copy">Copy link</button></div></form>'
        f'<script type="application/json">{stored}</script>'
        f'<figcaption aria-live="polite"><div class="ar-words">{html.escape(shown["text"])}</div>'
        "</figcaption></figure>"
    )


def head_html(name: str, shown: dict) -> str:
    """What the figure is called, what it asks, and its one big result where it has one."""
    title, question = html.escape(explorers.explorer(name).TITLE), html.escape(frame(name).question)
    head = f'<div class="ar-title" id="explorer-{name}-title">{title}</div>'
    head += f'<div class="ar-question">{question}</div>'
    if "result" in shown:
        value, what = map(html.escape, shown["result"])
        head += f'<div class="ar-result"><b>{value}</b> <span>{what}</span></div>'
    return f'<div class="ar-head">{head}</div>'


def story_html(story: list, chosen: dict) -> str:
    """A button for each step of the story; the one whose settings are `chosen` is pressed."""
    buttons = "".join(
        f'<button type="button" data-do="tell" data-step="{place}"'
        f' aria-pressed="{str(state == chosen).lower()}">{html.escape(step.title)}</button>'
        for place, (step, state) in enumerate(story)
    )
    return f'<div class="ar-story" role="group" aria-label="Story in steps">{buttons}</div>' if story else ""


def control_html(explorer: str, control, value, shown: dict) -> str:
    """A native control with its label, at `value`, and the place where a refusal of it is explained."""
    place = f"{explorer}-{control.name}"
    idle = " disabled" if control.name in shown.get("idle", ()) else ""
    name = f'id="{place}" name="{control.name}" aria-describedby="{place}-refusal"{idle}'
    if isinstance(control, Choice):
        options = "".join(
            f'<option value="{i}"{" selected" if option == value else ""}>{html.escape(words)}</option>'
            for i, (option, words) in enumerate(control.options)
        )
        body = f"<select {name}>{options}</select>"
    elif isinstance(control, Toggle):
        body = f'<input type="checkbox" {name}{" checked" if value else ""}>'
    else:
        low, high, position, words = _range(control, value, shown)
        kind = ' data-kind="steps"' if isinstance(control, Steps) else ""
        all_words = ""
        if isinstance(control, Scale):
            listed = json.dumps([said for _, said in control.options], ensure_ascii=False)
            all_words = f' data-words="{html.escape(listed)}"'
        body = (
            f'<input type="range" {name} min="{low}" max="{high}" value="{position}"{kind}{all_words}>'
            f'<output for="{place}">{html.escape(words)}</output>'
        )
        if isinstance(control, Steps):
            body += (
                '<span class="ar-play">'
                '<button type="button" data-do="back" aria-label="One step back">‹</button>'
                '<button type="button" data-do="play" aria-pressed="false">Play</button>'
                '<button type="button" data-do="on" aria-label="One step on">›</button></span>'
            )
    return (
        f'<div class="ar-control ar-{type(control).__name__.lower()}"><label for="{place}">'
        f"{html.escape(control.label)}</label>{body}"
        f'<span class="ar-refusal" id="{place}-refusal" role="alert"></span></div>'
    )


def _range(control, value, shown):
    if isinstance(control, Integer):
        return control.low, control.high, value, str(value)
    if isinstance(control, Steps):
        return 0, max(value, shown.get("steps", 1) - 1), value, str(value)
    position = [option for option, _ in control.options].index(value)
    return 0, len(control.options) - 1, position, control.options[position][1]


# ---- the interpreter ----


def interpreter() -> str:
    """MicroPython's loader as a classic script: a worker made from text may be no module everywhere."""
    source = (INTERPRETER / "micropython.mjs").read_text(encoding="utf-8")
    for found, replacement in (
        ("import.meta.url", "self.location.href"),
        ("export default _createMicroPythonModule;", ""),
        ("export async function loadMicroPython", "async function loadMicroPython"),
        ("let Module={", "let Module={instantiateWasm:options.instantiateWasm,"),  # compiled by the page
    ):
        if found not in source:
            raise ValueError(f"MicroPython's loader has changed: there is no {found!r} in it any more")
        source = source.replace(found, replacement)
    return f"(async()=>{{{source}}})();"


def without_comments(script: str) -> str:
    """A script without its indentation and the lines that are comments."""
    lines = (line.strip() for line in script.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith(("//", "/**"))) + "\n"


def write_scripts(app, exception) -> None:
    """Write the interpreter, once for the whole book, and one script with the Python of each explorer."""
    if exception or app.builder.format != "html":
        return
    folder = Path(app.outdir) / "_static" / "explorers"
    folder.mkdir(exist_ok=True)
    for name in SCRIPTS:
        copied = folder.parent / name
        copied.write_text(without_comments(copied.read_text(encoding="utf-8")), encoding="utf-8")
    python = {
        "loader": packed(interpreter().encode()),
        "machine": packed(capped((INTERPRETER / "micropython.wasm").read_bytes(), MEMORY)),
    }
    (folder / "python.js").write_text(f"window.allRanksPython={json.dumps(python)};\n", encoding="utf-8")
    for name in explorers.NAMES:
        files = packed(bundle(compiled(python_files(name))))
        script = f'(window.allRanksExplorers??={{}})["{name}"]="{files}";\n'
        (folder / f"{name}.js").write_text(script, encoding="utf-8")


def setup(app) -> None:
    """Register the figure with myst-nb, and the script with the build."""
    renderers = load_mime_renders()
    if ExplorerFigure not in renderers:
        renderers.append(ExplorerFigure)
    app.add_css_file("explorers.css")
    app.connect("build-finished", write_scripts)
