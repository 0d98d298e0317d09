"""The checks of the chapter on serving engines say ✓ to right answers and ✗, with a hint, to wrong ones."""

import pytest
from verdicts import verdict

from allranks.check import serving_engines as checks
from allranks.model import PIXELS
from allranks.serving import Pool, recorded


def in_a_pool(tokens, page):
    """Another right answer: ask a pool that has seen the prompt."""
    pool, prompt = Pool(2000, page, prefixes=True), [5] * tokens
    pages = [pool.take() for _ in range(-(-tokens // page))]
    pool.remember(pages, prompt)
    pool.release(pages)
    return page * len(pool.share(prompt))


@pytest.mark.parametrize(
    "answer, said",
    [
        (lambda tokens, page: (tokens - 1) // page * page, "✓ Right for 13 lengths"),
        (in_a_pool, "✓ Right for 13 lengths"),
        (lambda tokens, page: tokens // page * page, "the last token always has to be computed"),
        (lambda tokens, page: tokens - 1, "pages are found, so 1 is not possible."),
        (lambda tokens, page: tokens, "the last token always has to be computed"),
        (lambda tokens, page: -(-tokens // page) * page, "a page that is not full"),
        (lambda tokens, page: 0, "an engine finds 32; you return 0"),
        (lambda tokens, page: (tokens - 1) / page * page, "a whole number"),
        (lambda tokens, page: None, "returns nothing yet"),
        (None, "✗"),
    ],
)
def test_found(capsys, answer, said):
    assert said in verdict(capsys, checks.found, answer)


@pytest.mark.parametrize(
    "answer, said",
    [
        (21, "✓ 21 pages"),
        (20, "vLLM keeps one"),
        (30, "never fed"),
        (31, "never fed"),
        (11, "until the 33rd token"),
        (10, "until the 33rd token"),
        (16, "not enough"),
        (64, "more than needed"),
        (21.0, "pages is a whole"),
        (None, "Replace None with a number"),
        ("21", "✗"),
    ],
)
def test_blocks(capsys, answer, said):
    assert said in verdict(capsys, checks.blocks, answer)


def test_latency(capsys):
    rate = recorded.vllm()["clients"]["32"]["tokens_per_second"]
    right = 32 * PIXELS / rate
    for answer, said in {
        right: "✓",
        round(right, 2): "✓",
        right / 2: "the sixteen that wait",
        PIXELS / rate: "for this client alone",
        32 / rate: "the time of one token",
        2 * right: "not",
        -1: "above 0",
        None: "Replace None with a number",
        "1": "✗",
    }.items():
        assert said in verdict(capsys, checks.latency, answer)
