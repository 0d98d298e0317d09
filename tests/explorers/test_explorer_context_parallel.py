"""The matrix gives every pair to one rank, the clock and the words say what the arithmetic says."""

import itertools

import pytest

from allranks import attention
from allranks.explorers import WIDE
from allranks.explorers import context_parallel as explorer
from allranks.explorers.frame import controls
from allranks.explorers.frame.words import percent, scaled

SETTINGS = list(itertools.product(("contiguous", "zigzag"), (False, True), (1, 2, 4, 8)))
ALL = pytest.mark.parametrize("split, causal, p", SETTINGS)


def draw(width=WIDE, **given):
    """What the explorer shows."""
    return explorer.draw(width, **controls.settings(explorer.CONTROLS, given))


@ALL
def test_the_words_are_the_arithmetic(split, causal, p):
    shown = draw(split=split, causal=causal, context_parallel=p, sequence=8192)
    words = shown["text"]
    assert shown["steps"] == p + 1
    work = attention.rank_pairs(8192, p, split, causal)
    assert scaled(min(work), "") in words and scaled(max(work), "") in words
    assert percent(attention.ring_efficiency(8192, p, split, causal)) in words
    if p > 1:
        assert f"sends {scaled(attention.hop_bytes(8192, p, 8, 128), 'B')} a hop" in words
        assert scaled(attention.ring_bytes(8192, p, 8, 128), "B") in words
    assert len(words.split()) <= 70


@ALL
def test_every_part_of_the_sequence_has_one_owner(split, causal, p):
    parts = explorer.owners((1024, p, split, causal))
    assert [first for first, _, _ in parts] == list(range(0, 1024, 512 // p))
    ranks = [rank for _, _, rank in parts]
    if split == "zigzag":
        assert ranks == [*range(p), *reversed(range(p))]
    else:
        assert ranks == sorted([*range(p), *range(p)])


def test_zig_zag_is_balanced_and_contiguous_parts_are_not():
    assert "57.1 % of the time" in draw(split="contiguous")["text"]  # 4 / 7: the last ranks have most to do
    assert "ranks work 100.0 % of the time" in draw(split="zigzag")["text"]
    assert "1.75 times the mean" in draw(split="contiguous")["text"]


def test_a_hop_names_whose_keys_a_rank_has():
    shown = draw(step=2)
    assert "At hop 1 rank r has the keys of rank r − 1" in shown["text"]
    assert "from rank 3" in shown["svg"]
    assert draw(step=99)["text"] == draw(step=4)["text"]
