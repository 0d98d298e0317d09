"""How light are the pages, beside a stock Jupyter Book of the same notebooks? Lighthouse, as a phone.

    make book
    python benchmarks/lighthouse.py --times 3

Needs Chromium and npx. Both books are served here as a static host serves them: gzip, kept for ten minutes.
The stock book is built into a folder of its own with Jupyter Book's defaults; it asks other hosts for MathJax
and more. The two take turns, page by page, so that a busy machine slows both. Printed are medians.
"""

import argparse
import functools
import gzip
import http.server
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parent.parent
LIGHTHOUSE = "lighthouse@13.5.0"
PAGES = (
    "book/index",
    "notebooks/tensor_parallel/sequence_parallel",
    "notebooks/pipeline_parallel/one_f_one_b",
    "notebooks/data_parallel/gradient_averaging",
    "book/reading_list",
)
CATEGORIES = ("performance", "accessibility", "best-practices", "seo")
COLUMNS = ("page", "book", "performance", "accessibility", "best practices", "SEO", "shift")
COLUMNS += ("LCP", "blocked", "loaded", "requests")
COMPRESSIBLE = (".html", ".css", ".js", ".svg", ".json", ".inv", ".txt", ".xml")
STOCK_CONFIG = """title: All Ranks
only_build_toc_files: true
exclude_patterns: [_build]
execute: {execute_notebooks: "off"}
bibtex_bibfiles: [book/references.bib]
parse: {myst_enable_extensions: [amsmath, colon_fence, deflist, dollarmath, attrs_block, attrs_inline]}
sphinx: {extra_extensions: [sphinx_exercise]}
"""


class StaticHost(http.server.SimpleHTTPRequestHandler):
    """Serves files as a static host does: text gzipped, everything cacheable for ten minutes."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        file = Path(self.translate_path(self.path))
        if not file.is_file():
            self.send_error(404)
            return
        content = packed(file)
        self.send_response(200)
        self.send_header("Content-Type", self.guess_type(file))
        self.send_header("Cache-Control", "max-age=600")
        if file.suffix in COMPRESSIBLE:
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


@functools.cache
def packed(file):
    content = file.read_bytes()
    return gzip.compress(content, 6) if file.suffix in COMPRESSIBLE else content


def serve(folder):
    """Serve a folder until this process ends; its address."""
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(StaticHost, directory=folder)
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/"


def build_stock_book(folder):
    """The same notebooks and pages with Jupyter Book's own defaults; what it does not know, it leaves out."""
    if (folder / "_build/html/searchindex.js").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / "_toc.yml", folder)
    for part in ("book", "notebooks"):
        skipped = shutil.ignore_patterns("_ext", "vendor", ".ipynb_checkpoints")
        shutil.copytree(ROOT / part, folder / part, ignore=skipped, dirs_exist_ok=True)
    (folder / "_config.yml").write_text(STOCK_CONFIG)
    subprocess.run(["jupyter-book", "build", "--quiet", folder], check=True, stdout=subprocess.DEVNULL)


def measure(address, out):
    """One Lighthouse run: the scores of its categories, and what the page cost."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    sandbox = " --no-sandbox" if os.geteuid() == 0 else ""
    subprocess.run(
        ["npx", "--yes", LIGHTHOUSE, address, "--quiet", "--output=json", f"--output-path={out}"]
        + [f"--only-categories={','.join(CATEGORIES)}", f"--chrome-flags=--headless=new{sandbox}"],
        env={**os.environ, "CHROME_PATH": chromium},
        check=True,
    )
    report = json.loads(out.read_text())
    audits = report["audits"]
    numbers = {name: round(100 * report["categories"][name]["score"]) for name in CATEGORIES}
    numbers["shift"] = audits["cumulative-layout-shift"]["numericValue"]
    numbers["LCP"] = audits["largest-contentful-paint"]["numericValue"] / 1000
    numbers["blocked"] = audits["total-blocking-time"]["numericValue"]
    requests = audits["network-requests"]["details"]["items"]
    numbers["kB"] = sum(each.get("transferSize", 0) for each in requests) / 1000
    numbers["requests"] = len(requests)
    answers = {urlsplit(each["url"]).netloc: each.get("statusCode", -1) for each in requests}
    foreign = {host: code for host, code in answers.items() if host and not host.startswith("127.0.0.1")}
    failed = [
        f"{name}: {audit}"
        for name in CATEGORIES[1:]
        for audit in (ref["id"] for ref in report["categories"][name]["auditRefs"] if ref["weight"])
        if audits[audit]["score"] not in (None, 1)
    ]
    return numbers, foreign, failed


def row(page, book, runs):
    """A line of the table: the median of each number."""
    median = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
    scores = " | ".join(f"{median[name]:.0f}" for name in CATEGORIES)
    return (
        f"| {page} | {book} | {scores} | {median['shift']:.3f} | {median['LCP']:.1f} s | "
        f"{median['blocked']:.0f} ms | {median['kB']:.0f} kB | {median['requests']:.0f} |"
    )


def main():
    """Measure every page of both books in turn, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--stock", type=Path, default=Path(tempfile.gettempdir()) / "stock-book")
    parser.add_argument("--ours-only", action="store_true")
    parser.add_argument("--pages", nargs="*", default=PAGES)
    options = parser.parse_args()
    books = {"All Ranks": serve(ROOT / "_build/html")}
    if not options.ours_only:
        build_stock_book(options.stock)
        books["stock"] = serve(options.stock / "_build/html")
    runs = {(page, book): [] for page in options.pages for book in books}
    foreign, failed = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(options.times):
            for page, book in runs:
                numbers, hosts, problems = measure(f"{books[book]}{page}.html", Path(folder, "report.json"))
                runs[page, book].append(numbers)
                foreign.setdefault(book, {}).update(hosts)
                failed.setdefault((page, book), set()).update(problems)
                print(page, book, {k: round(v, 3) for k, v in numbers.items()}, file=sys.stderr, flush=True)
    print(f"load at the end: {os.getloadavg()[0]:.1f}")
    print(f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|")
    for (page, book), measured in runs.items():
        print(row(page, book, measured))
    for key, problems in failed.items():
        print(*key, *sorted(problems), sep="\n  ")
    for book, hosts in foreign.items():
        print(book, "asked other hosts:", hosts or "none")


if __name__ == "__main__":
    main()
