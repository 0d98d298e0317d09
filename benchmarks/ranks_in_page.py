"""How heavy and how fast are ranks in the page? Gzipped files, and from Run to picture in Chromium.

    python benchmarks/ranks_in_page.py --times 5

Needs a built book (`make book`, or another one: --site). "First" has nothing loaded; "later" is the median of
nine more runs on the same page.
"""

import argparse
import gzip
import statistics
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parent.parent
CHROMIUM = {"executable_path": "/usr/bin/chromium", "args": ["--no-sandbox", "--disable-gpu"]}
PROGRAM, LATER = "launch-2", 9
PARTS = ("ranks.js", "ranks.css", "explorers/python.js", "explorers/ranks.js")
RUN = """(name) => new Promise((done) => {
  const figure = document.getElementById(`ranks-${name}`), began = performance.now();
  figure.addEventListener("ar-ran", () => requestAnimationFrame(() => setTimeout(() =>
    done(performance.now() - began))), { once: true });
  figure.querySelector('[data-do="run"]').click();
})"""


def main():
    """Print weights and times."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--site", type=Path, default=ROOT / "_build" / "html")
    given = parser.parse_args()
    for part in PARTS:
        size = len(gzip.compress((given.site / "_static" / part).read_bytes(), 9))
        print(f"{part}: {size / 1000:.1f} kB gzipped")
    address = (given.site / "notebooks" / "foundations" / "ranks.html").resolve().as_uri()
    first, later = [], []
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(**CHROMIUM)
        for _ in range(given.times):
            tab = chromium.new_page()
            tab.goto(address)
            first.append(tab.evaluate(RUN, PROGRAM))
            later += [tab.evaluate(RUN, PROGRAM) for _ in range(LATER)]
            tab.close()
        chromium.close()
    for name, times in (("first", first), ("later", later)):
        print(f"{name}: median {statistics.median(times):.0f} ms, worst {max(times):.0f} ms")


if __name__ == "__main__":
    main()
