"""How does a sentence set an explorer? By a link to a state of the explorer that stands on the same page.

`[32 micro-batches](#explorer-pipeline:microbatches=32)` is such a link, in the form of the explorers' own
addresses; `explorers.js` makes it set the controls, and without scripts it leads to the figure. What the
explorer refuses, or a figure that is not on the page, is a warning of the build.
"""

from __future__ import annotations

import html
import json
import re

from docutils import nodes
from sphinx import addnodes
from sphinx.util import logging

from allranks import explorers
from allranks.explorers.frame.controls import Choice, Scale, Toggle

logger = logging.getLogger(__name__)
FIGURE = re.compile(
    r'<figure class="ar-explorer" id="explorer-(\w+)".*?<script type="application/json">(.*?)</script>',
    re.DOTALL,
)
ADDRESS = re.compile(r"explorer-(\w+):(.+)")


def values(name: str, listed: str) -> dict:
    """The settings that "name=value,…" names, as Python knows them; ValueError for no such control."""
    controls = {control.name: control for control in explorers.explorer(name).CONTROLS}
    found = {}
    for part in listed.split(","):
        key, _, said = part.partition("=")
        if key not in controls:
            raise ValueError(f"{name} has no control {key!r}")
        control = controls[key]
        if isinstance(control, Toggle):
            found[key] = {"true": True, "false": False}.get(said, said)
        elif isinstance(control, Choice | Scale):
            found[key] = next((value for value, _ in control.options if is_said(value, said)), said)
        else:
            found[key] = int(said)
    return found


def is_said(value, said: str) -> bool:
    """Whether an address says a value so: 1.0 may be "1", and 1e-9 "1e-09"."""
    if isinstance(value, str):
        return value == said
    try:
        return value == float(said)
    except ValueError:
        return False


def add_links(app, doctree) -> None:
    """Replace each link to a state by one that a script can follow."""
    starts = {
        name: json.loads(stored)["start"]
        for raw in doctree.findall(nodes.raw)
        for name, stored in FIGURE.findall(raw.astext())
    }
    for pending in list(doctree.findall(addnodes.pending_xref)):
        address = ADDRESS.fullmatch(pending["reftarget"])
        if not address or pending["reftype"] != "myst":
            continue
        name, listed = address.groups()
        try:
            if name not in starts:
                raise ValueError(f"the page has no explorer {name}")
            explorers.draw(name, {**starts[name], **values(name, listed)})
        except ValueError as fault:
            logger.warning("a link to #%s: %s", pending["reftarget"], fault, location=pending)
        start = (
            f'<a class="ar-set reference internal" href="#explorer-{name}" data-set="{html.escape(listed)}">'
        )
        words = pending.children[0].children
        pending.parent.replace(
            pending,
            [nodes.raw("", start, format="html"), *words, nodes.raw("", "</a>", format="html")],
        )


def setup(app) -> None:
    """Look at each page once it is read."""
    app.connect("doctree-read", add_links)
