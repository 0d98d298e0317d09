"""The picture of the server says what the simulation says: tokens, pauses, pages, preemptions."""

import re

import pytest

from allranks import inference
from allranks.explorers import NARROW, WIDE
from allranks.explorers import serving as explorer
from allranks.explorers.frame import controls
from allranks.explorers.frame.words import seconds

SETTINGS = [
    {},
    {"policy": "static"},
    {"policy": "chunked", "budget": 64},
    {"policy": "chunked", "load": 48, "pages": 144, "seed": 7},
    {"load": 1, "pages": 1024},
    {"load": 48, "pages": 192, "budget": 4096, "seed": 20},
]
ALL = pytest.mark.parametrize("given", SETTINGS, ids=str)


def draw(width=WIDE, **given):
    """What the explorer shows."""
    return explorer.draw(width, **controls.settings(explorer.CONTROLS, given))


def simulated(given):
    """The chosen run at a setting, from the arithmetic alone."""
    load, policy, budget, pages, seed = controls.settings(explorer.CONTROLS, given).values()
    count = explorer.COUNT
    listed = inference.requests(
        inference.poisson(load, count, seed),
        inference.lengths(128, 2048, count, seed),
        inference.lengths(8, 48, count, seed),
    )
    model = explorer.PRESETS["llama3-8b"]
    server = inference.engine(model, "h100", efficiency=0.6)
    return inference.serve(listed, server, policy, budget, pages=pages)


@ALL
def test_the_words_are_the_simulation(given):
    words, run = draw(**given)["text"], simulated(given)
    firsts = [inference.ttft(each) for each in run.served]
    assert f"first token within {seconds(inference.percentile(firsts, 0.5))}" in words
    assert f"all within {seconds(max(firsts))}" in words
    assert f"take {seconds(inference.mean(map(inference.tpot, run.served)))} on average" in words
    longest = max(max(inference.gaps(each)) for each in run.served)
    assert f"the longest pause is {seconds(longest)}." in words
    assert f"At most {inference.most_pages(run):,} of {run.pages:,} pages" in words
    lost = sum(map(inference.preemptions, run.served))
    if lost:
        assert f"{lost} preemption" in words
        assert f"{inference.recomputed_tokens(run):,} tokens recomputed" in words
    else:
        assert "without preemption" in words
    assert len(words.split()) <= 80


@ALL
def test_every_token_is_a_stroke_and_every_request_a_row(given):
    svg, run = draw(**given)["svg"], simulated(given)
    strokes = re.findall(r"M\d+ (\d+)h14", svg)
    assert len(strokes) == sum(each.request.output for each in run.served)
    assert len(set(strokes)) == explorer.COUNT


def test_the_table_has_all_three_policies_and_marks_the_chosen_one():
    for width in (WIDE, NARROW):
        svg = draw(width, policy="chunked")["svg"]
        for given in ({"policy": "static"}, {"policy": "continuous"}, {"policy": "chunked"}):
            for value in explorer.latencies(simulated(given)):
                assert f">{seconds(value)}</text>" in svg
        label = "chunked prefill" if width == WIDE else "chunked"
        assert re.search(f'font-weight="600"[^>]*>{label}</text>', svg)


def test_chunks_shorten_the_longest_pause_at_every_load():
    for load, _ in explorer.LOADS[3:]:
        setting = {"load": load, "pages": 1024}
        whole, pieces = (
            explorer.latencies(simulated({**setting, "policy": policy}))
            for policy in ("continuous", "chunked")
        )
        assert pieces[3] < whole[3]


def test_static_batches_have_no_use_for_a_budget():
    assert draw(policy="static")["idle"] == ["budget"] and draw()["idle"] == []


def test_every_pool_holds_the_longest_request():
    longest = -(-(explorer.PROMPT[1] + explorer.OUTPUT[1] - 1) // explorer.PAGE)
    assert longest <= min(pages for pages, _ in explorer.POOLS)
