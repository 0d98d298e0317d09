"""How fast does an explorer answer in a page? In Chromium, beside the same chart as a Plotly figure.

    python benchmarks/explorers.py --times 15
    python benchmarks/explorers.py --starts 7 --beside ../old/_build/html    # in turns with another build

Needs a built book (`make book`). "needed to live": from the first hand on the figure to its first answer,
everything loaded and started. "first change": the same for a reader who rested at the figure before. "change
to painted": from a control's event to the frame after the new picture. The Plotly figure gets its bars
ready-made (no simulation); the two take turns.
"""

import argparse
import gzip
import statistics
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "_build" / "html"
sys.path.insert(0, str(ROOT / "book" / "_ext"))

from allranks_book.explorers import SCRIPTS, figure_html  # noqa: E402

from allranks import explorers, schedules, simulate  # noqa: E402

SIZES = ((8, 32), (16, 64))
SHEETS = ("palette", "explorers")
CHROMIUM = {"executable_path": "/usr/bin/chromium", "args": ["--no-sandbox", "--disable-gpu"]}
MARK = "performance.getEntriesByName('{}')[0].startTime"

CHANGE = """([name, value]) => new Promise((resolve) => {
    const figure = document.querySelector("figure.ar-explorer");
    const control = figure.querySelector(`[name=${name}]`);
    const began = performance.now();
    figure.addEventListener("ar-drawn", () => requestAnimationFrame(() => setTimeout(() =>
        resolve(performance.now() - began))), { once: true });
    control.value = value;
    control.dispatchEvent(new Event("input", { bubbles: true }));
})"""

REACT = """([traces, shift]) => new Promise((resolve) => {
    const began = performance.now();
    const moved = traces.map((one) => ({ ...one, base: one.base.map((x) => x + shift) }));
    Plotly.react("plot", moved, { barmode: "overlay", height: 400, showlegend: false }).then(() =>
        requestAnimationFrame(() => setTimeout(() => resolve(performance.now() - began))));
})"""


def page(body, scripts, site=SITE):
    static = f"{site.as_uri()}/_static"
    scripts = [
        script for script in scripts if (site / "_static" / script).exists()
    ]  # an older book has fewer
    loaded = "".join(f'<script defer src="{static}/{script}"></script>' for script in scripts)
    sheets = "".join(
        f'<link rel="stylesheet" href="{static}/{each}.css">' for each in ("palette", "explorers")
    )
    return (
        f'<!doctype html><html lang="en" data-theme="light" data-content_root="{site.as_uri()}/">'
        f"<title>One</title>{sheets}{loaded}{body}"
    )


def traces(stages, microbatches):
    """The bars of 1F1B for Plotly: one trace for each kind of operation."""
    slots = simulate.simulate(schedules.one_f_one_b(stages, microbatches)).slots
    return [
        {
            "type": "bar",
            "orientation": "h",
            "base": [slot.start for slot in slots if slot.operation.kind == kind],
            "x": [slot.end - slot.start for slot in slots if slot.operation.kind == kind],
            "y": [slot.rank for slot in slots if slot.operation.kind == kind],
        }
        for kind in ("F", "BW")
    ]


def needed_to_live(chromium, address, rate=1):
    """Milliseconds from a hand on the controls of a fresh page to the figure's first answer."""
    tab = throttled(chromium.new_page(), rate)
    tab.goto(address)
    tab.dispatch_event("figure.ar-explorer form", "pointerenter")
    tab.locator("figure.ar-live").wait_for()
    needed, live = (tab.evaluate(MARK.format(mark)) for mark in ("ar-needed", "ar-live"))
    tab.close()
    return live - needed


THROTTLED = (1, 4)  # the page's own thread; Chromium leaves its workers as fast as they are
NAMES = ("pipeline", "all_reduce", "decode")


def starts(chromium, folder, sites, times):
    """Print needed to live, and the first change after a rest, of each site in turns."""
    for name in NAMES:
        shown, control = explorers.draw(name)["svg"], explorers.explorer(name).CONTROLS[-2].name
        pages = {}
        for label, site in sites.items():
            pages[label] = folder / f"{name}-{label}.html"
            pages[label].write_text(page(figure_html(name, {}, shown), SCRIPTS, site), encoding="utf-8")
        for rate in THROTTLED:
            cold, rested = ({label: [] for label in sites} for _ in range(2))
            for _ in range(times):
                for label, each in pages.items():
                    cold[label].append(needed_to_live(chromium, each.as_uri(), rate))
                    rested[label].append(first_change(chromium, each.as_uri(), rate, control))
            for what, found in (("needed to live", cold), ("first change after a rest", rested)):
                said = ", ".join(f"{label} {statistics.median(ms):.0f}" for label, ms in found.items())
                print(f"{name}, {rate} × throttled, {what}, median ms: {said}", flush=True)


def throttled(tab, rate):
    """Slow the page down."""
    tab.context.new_cdp_session(tab).send("Emulation.setCPUThrottlingRate", {"rate": rate})
    return tab


def first_change(chromium, address, rate, control):
    """Milliseconds from the first event of a control to its picture, two seconds after a reader came."""
    tab = throttled(chromium.new_page(), rate)
    tab.goto(address)
    tab.mouse.move(2, 2)
    tab.wait_for_timeout(2000)
    took = tab.evaluate(CHANGE, [control, 1])
    tab.close()
    return took


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=15)
    parser.add_argument("--starts", type=int, help="only time starts, this often")
    parser.add_argument("--beside", type=Path, help="another built book to take turns with")
    given_words = parser.parse_args()
    times = given_words.times
    given = {"beside": ""}
    folder = Path(tempfile.mkdtemp())
    ours, theirs = folder / "explorer.html", folder / "plotly.html"
    shown = explorers.draw("pipeline", given)["svg"]
    ours.write_text(page(figure_html("pipeline", given, shown), SCRIPTS), encoding="utf-8")
    theirs.write_text(page('<div id="plot"></div>', ["vendor/plotly/plotly-basic.min.js"]), encoding="utf-8")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(**CHROMIUM)
        if given_words.starts:
            sites = {"before": given_words.beside.resolve()} if given_words.beside else {}
            return starts(chromium, folder, {**sites, "now": SITE}, given_words.starts)
        live = [needed_to_live(chromium, ours.as_uri()) for _ in range(times)]
        print(f"needed to live: median {statistics.median(live):.0f} ms, worst {max(live):.0f} ms")
        explorer, plotly = chromium.new_page(), chromium.new_page()
        explorer.goto(ours.as_uri())
        explorer.dispatch_event("figure.ar-explorer form", "pointerenter")
        explorer.locator("figure.ar-live").wait_for()
        plotly.goto(theirs.as_uri())
        plotly.wait_for_function("window.Plotly")
        for stages, microbatches in SIZES:
            bars = traces(stages, microbatches)
            explorer.evaluate(CHANGE, ["stages", stages])
            explorer.evaluate(CHANGE, ["microbatches", microbatches])
            mine, other = [], []
            for turn in range(times):
                explorer.bring_to_front()
                mine.append(explorer.evaluate(CHANGE, ["forward", 3 + turn % 2]))
                plotly.bring_to_front()
                other.append(plotly.evaluate(REACT, [bars, turn % 2]))
            print(
                f"p = {stages}, m = {microbatches}: change to painted, median (worst): "
                f"explorer {statistics.median(mine):.0f} ({max(mine):.0f}) ms, "
                f"Plotly {statistics.median(other):.0f} ({max(other):.0f}) ms"
            )
        chromium.close()
    parts = [*SCRIPTS, "explorers.css", "explorers/python.js"]
    for name in explorers.NAMES:
        files = [SITE / "_static" / part for part in (*parts, f"explorers/{name}.js")]
        print(
            f"{name}: {sum(len(gzip.compress(file.read_bytes(), 9)) for file in files) / 1000:.0f} kB gzipped"
        )
    library = SITE / "_static" / "vendor" / "plotly" / "plotly-basic.min.js"
    print(f"Plotly's script: {len(gzip.compress(library.read_bytes(), 9)) / 1000:.0f} kB gzipped")


if __name__ == "__main__":
    main()
