"""The explorer of strategies shows what `allranks.strategies` says, call by call."""

import pytest

from allranks import strategies
from allranks.explorers import strategies as explorer
from allranks.explorers.frame.controls import settings
from allranks.explorers.frame.svg import NARROW, WIDE


def drawn(width=WIDE, **given):
    return explorer.draw(width, **settings(explorer.CONTROLS, given))


@pytest.mark.parametrize("strategy", strategies.STRATEGIES)
@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_every_call_is_a_step_with_its_words_and_an_arrow_for_each_message(strategy, width):
    made = strategies.calls(strategy)
    assert drawn(width, strategy=strategy)["steps"] == len(made) + 1
    before = drawn(width, strategy=strategy, step=0)["svg"].count("<path")
    for step, call in enumerate(made, 1):
        shown = drawn(width, strategy=strategy, step=step)
        assert f"{call.nbytes:,.0f} B" in shown["svg"]
        assert f"Call {step}, {call.phase}" in shown["text"]
        assert shown["svg"].count("<path") - before == 2 * len(call.pairs)
        assert shown["result"][0] == f"{max(strategies.sent_bytes(strategy)):,.0f} B"


@pytest.mark.parametrize("strategy", strategies.STRATEGIES)
def test_what_is_held_is_drawn_in_the_ranks_colour(strategy):
    svg = drawn(strategy=strategy, step=0)["svg"]
    for rank in range(4):
        tokens, layers = strategies.holds(strategy, rank)
        full = svg.count(f'width="18" height="18" style="fill:var(--ar-rank-{rank},')
        assert full == len(tokens) + sum(map(len, layers))


def test_a_gathered_layer_is_whole_for_the_moment_and_the_tokens_too():
    sharded = drawn(strategy="sharded", step=1)["svg"]
    assert sharded.count("opacity:0.35") == 4 * 3
    assert drawn(strategy="sequence", step=1)["svg"].count("opacity:0.35") == 4 * 3
    assert drawn(strategy="sequence", step=2)["svg"].count("opacity:0.35") == 0


def test_a_step_beyond_the_last_is_the_last():
    assert drawn(strategy="data", step=9)["svg"] == drawn(strategy="data", step=1)["svg"]


def test_sizes_change_the_bytes_as_they_do_in_the_arithmetic():
    for sizes in ({"tokens": 64}, {"neurons": 128}, {"hidden": 64}):
        for strategy in strategies.STRATEGIES:
            most = max(strategies.sent_bytes(strategy, **sizes))
            assert drawn(strategy=strategy, **sizes)["result"][0] == f"{most:,.0f} B"
