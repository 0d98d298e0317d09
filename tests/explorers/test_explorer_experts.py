"""The picture of the experts says what the arithmetic says: routing, drops, load, bytes."""

import itertools
import re

import pytest

from allranks import experts
from allranks.explorers import WIDE
from allranks.explorers import experts as explorer
from allranks.explorers.frame import controls
from allranks.explorers.frame.words import fixed, percent, scaled

SETTINGS = [
    {},
    {"ranks": 1, "experts": 2, "top_k": 1, "tokens": 8, "skew": 0},
    {"ranks": 8, "experts": 16, "top_k": 4, "tokens": 64, "skew": 2.0, "factor": 0.5, "hidden": 16384},
    {"ranks": 8, "experts": 8, "top_k": 4, "tokens": 8, "factor": 4.0, "looked_at": 7, "seed": 20},
    {"ranks": 2, "experts": 4, "top_k": 1, "skew": 1.5, "factor": 1.0, "looked_at": 7},
]
ALL = pytest.mark.parametrize("given", SETTINGS, ids=str)


def draw(width=WIDE, **given):
    """What the explorer shows."""
    return explorer.draw(width, **controls.settings(explorer.CONTROLS, given))


def arithmetic(given):
    """The settings, the capacity, and what became of every rank's tokens."""
    set_to = controls.settings(explorer.CONTROLS, given)
    n, tokens, count, k = (set_to[name] for name in ("ranks", "tokens", "experts", "top_k"))
    routes = experts.route_ranks(n, tokens, count, k, set_to["skew"], set_to["seed"])
    capacity = experts.expert_capacity(tokens, count, k, set_to["factor"])
    return set_to, capacity, [experts.dispatch(each, count, capacity) for each in routes]


@ALL
def test_the_words_are_the_arithmetic(given):
    words = draw(**given)["text"]
    set_to, capacity, dispatches = arithmetic(given)
    ranks, count, hidden = set_to["ranks"], set_to["experts"], set_to["hidden"]
    assert f"at most {capacity} {'tokens' if capacity > 1 else 'token'} from a rank" in words
    assert f"choices {sum(map(experts.dropped, dispatches))} are dropped" in words
    assert f"{sum(map(experts.lost_tokens, dispatches))} tokens reach no expert" in words
    assert f"{percent(experts.empty_slots(dispatches, capacity))} of the slots are empty" in words
    assert f"{fixed(experts.imbalance(experts.rank_load(dispatches, ranks)), 2)} times the mean" in words
    if ranks > 1:
        sent = experts.dispatch_bytes(count, capacity, hidden, ranks)
        assert f"sends {scaled(sent, 'B')} a rank" in words
    assert len(words.split()) <= 70


@ALL
def test_the_table_shows_every_rank_and_expert(given):
    set_to, _, dispatches = arithmetic(given)
    svg = draw(**given)["svg"]
    shown = [int(each) for each in re.findall(r">−(\d+)</text>", svg)]
    drops = [
        wanted - taken
        for each in dispatches
        for wanted, taken in zip(each.wanted, each.taken)
        if wanted > taken
    ]
    assert shown == drops
    rank = min(set_to["looked_at"], set_to["ranks"] - 1)
    struck = sum(not kept for kept in itertools.chain(*dispatches[rank].kept))
    assert f"no room ({struck})" in svg and struck == experts.dropped(dispatches[rank])


def test_skew_drops_more_and_capacity_less():
    def drops(**given):
        return int(re.search(r"choices (\d+) are dropped", draw(**given)["text"]).group(1))

    assert drops(skew=0) < drops() < drops(skew=1.5)
    assert drops(factor=4.0) <= drops(factor=2.0) < drops(factor=1.0) < drops(factor=0.5)
    assert drops(skew=0, factor=4.0) == 0


def test_what_is_not_possible_is_refused_at_its_control():
    with pytest.raises(ValueError, match=r"^top_k must be a whole number from 1 to 2, not 3"):
        draw(top_k=3, experts=2, ranks=1)
    with pytest.raises(ValueError, match=r"^experts must be a multiple of ranks = 8, not 4"):
        draw(experts=4, ranks=8)
