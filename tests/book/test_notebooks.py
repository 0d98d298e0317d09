"""Every notebook of the book is in the normal form, and the table of contents names exactly those."""

import functools
from pathlib import Path

import pytest
import yaml
from nb import check, notebooks

ROOT = Path(__file__).resolve().parents[2]


def pages(node):
    """Every page that a (part of a) table of contents names."""
    if isinstance(node, list):
        for child in node:
            yield from pages(child)
    elif isinstance(node, dict):
        yield from (node[key] for key in ("file", "root") if key in node)
        for child in node.values():
            yield from pages(child)


@functools.cache
def contents():
    return list(pages(yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))))


def in_folder():
    return [path.relative_to(ROOT).with_suffix("").as_posix() for path in notebooks([])]


def file_of(page):
    return next(
        (ROOT / f"{page}{ext}" for ext in (".md", ".ipynb") if (ROOT / f"{page}{ext}").is_file()), None
    )


def test_pages_are_found_at_every_depth():
    toc = {"root": "a", "parts": [{"caption": "b", "chapters": [{"file": "c", "sections": [{"file": "d"}]}]}]}
    assert list(pages(toc)) == ["a", "c", "d"]


def test_the_contents_name_each_page_once():
    named = contents()
    assert sorted(named) == sorted(set(named))


@pytest.mark.parametrize("page", contents())
def test_a_page_of_the_contents_exists(page):
    assert file_of(page), f"_toc.yml names {page}, but there is no {page}.md or {page}.ipynb"


@pytest.mark.parametrize("page", in_folder())
def test_a_notebook_is_in_the_contents(page):
    assert page in contents(), f"{page}.ipynb is not in _toc.yml"


@pytest.mark.parametrize("page", in_folder())
def test_a_notebook_is_in_the_normal_form(page):
    assert check(ROOT / f"{page}.ipynb") == []
