"""Lab 06, bytes of a token, requests in a budget: right answers in several styles, and what students get wrong."""

import math

from students import judged_here

from allranks import check


def token_bytes(shape, element):
    return 2 * shape.layers * shape.kv_heads * shape.head_width * element


def fitting(shape, nbytes, page, prompt, new, element):
    pages = nbytes // (page * token_bytes(shape, element))
    return pages // -(-(prompt + new - 1) // page)


def token_bytes_by_sum(shape, element):
    keys = values = shape.kv_heads * shape.head_width
    return sum((keys + values) * element for _ in range(shape.layers))


def fitting_by_ceil(shape, nbytes, page, prompt, new, element):
    a_page = token_bytes(shape, element) * page
    a_request = math.ceil((prompt + new - 1) / page)
    return int(nbytes / a_page) // a_request


def fitting_by_counting(shape, nbytes, page, prompt, new, element):
    pages, left, used = 1, int(nbytes), 0
    while pages * page < prompt + new - 1:
        pages += 1
    free = left // (page * token_bytes(shape, element))
    while free >= pages:
        free, used = free - pages, used + 1
    return used


RIGHT = [(token_bytes, fitting), (token_bytes_by_sum, fitting_by_ceil), (token_bytes, fitting_by_counting)]
WRONG = {
    ("token_bytes", "fitting"): {
        "keys alone": ("Keys and values are two", "2 * ", ""),
        "one layer": ("Every layer has keys and values of its own", "shape.layers * ", ""),
        "all heads": ("Those are the heads of queries", "kv_heads", "heads"),
        "hidden": (
            "The hidden size says nothing about the heads of keys",
            "shape.kv_heads * shape.head_width",
            "shape.hidden",
        ),
        "hidden over heads": (
            "bytes each, a token takes",
            "shape.head_width",
            "shape.hidden // shape.heads",
        ),
        "two bytes": ("Ask `element` for the bytes of a number", "* element", "* 2"),
        "elements": ("each takes a few bytes", " * element", ""),
        "head's width 128": ("bytes each, a token takes", "shape.head_width", "128"),
        "kilobytes": ("bytes each, a token takes", "* element", "* element / 1024"),
        "queries too": (
            "bytes each, a token takes",
            "2 * shape.layers * shape.kv_heads",
            "shape.layers * (2 * shape.kv_heads + shape.heads)",
        ),
        "width forgotten": ("bytes each, a token takes", " * shape.head_width", ""),
    },
    "fitting": {
        "last token fed": (
            "request caches one token fewer than it has",
            "prompt + new - 1",
            "prompt + new",
        ),
        "prompt alone": ("some will be preempted", "prompt + new - 1", "prompt"),
        "new alone": ("and those of a request up", "prompt + new - 1", "new"),
        "prompt and new in pages of their own": (
            "bytes, and requests of",
            "-(-(prompt + new - 1) // page)",
            "(-(-prompt // page) - (-(new - 1) // page))",
        ),
        "rounded down": (
            "some will be preempted",
            "-(-(prompt + new - 1) // page)",
            "((prompt + new - 1) // page)",
        ),
        "a page more": (
            "request caches one token fewer than it has",
            "-(-(prompt + new - 1) // page)",
            "((prompt + new - 1) // page + 1)",
        ),
        "bytes and no pages": (
            "A page belongs to one request",
            "    return pages // -(-(prompt + new - 1) // page)",
            "    return nbytes // ((prompt + new - 1) * token_bytes(shape, element))",
        ),
        "pool not in whole pages": (
            "Return a whole number",
            "nbytes // (page * token_bytes(shape, element))",
            "nbytes / (page * token_bytes(shape, element))",
            "return pages //",
            "return pages /",
        ),
        "pool rounded up": (
            "A page belongs to one request",
            "nbytes // (page * token_bytes(shape, element))",
            "-(-nbytes // (page * token_bytes(shape, element)))",
        ),
        "pages of 16": ("bytes, and requests of", "page * token", "16 * token"),
        "requests rounded up": (
            "A page belongs to one request",
            "return pages // -(-(prompt + new - 1) // page)",
            "return -(-pages // -(-(prompt + new - 1) // page))",
        ),
        "a fraction": ("Return a whole number", "return pages //", "return pages /"),
        "two bytes": ("and those of a request up", "token_bytes(shape, element)", "token_bytes(shape, 2)"),
        "one page kept free": ("bytes, and requests of", "return pages //", "return (pages - 1) //"),
        "mean length": ("and those of a request up", "prompt + new - 1", "prompt + new // 2"),
        "at least one": (
            "and those of a request up",
            "return pages // -(-(prompt + new - 1) // page)",
            "return max(1, pages // -(-(prompt + new - 1) // page))",
        ),
        "pages": (
            "and those of a request up",
            "return pages // -(-(prompt + new - 1) // page)",
            "return pages",
        ),
        "bytes of all layers again": (
            "bytes, and requests of",
            "page * token_bytes(shape, element)",
            "page * shape.layers * token_bytes(shape, element)",
        ),
    },
}


def test_every_answer_is_told_what_it_is(monkeypatch):
    judged_here(check.lab_06.bytes_and_requests, __name__, monkeypatch)
