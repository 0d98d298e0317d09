"""The picture of the next token says what the arithmetic says: parts, bound, knee, room, measurements."""

import re

import pytest

from allranks import hardware, inference
from allranks.explorers import NARROW, WIDE
from allranks.explorers import decode as explorer
from allranks.explorers.frame import controls
from allranks.explorers.frame.words import figures, percent, scaled, seconds
from allranks.transformer import PRESETS

SETTINGS = [
    {},
    {"sequences": 64, "context": 8192, "against": "sequences"},
    {"model": "llama2-70b", "accelerator": "a100-80gb", "context": 128},
    {"ranks": 64, "algorithm": "recursive_doubling"},
    {"link": "infiniband-ndr", "sequences": 512},
    {"ranks": 1, "stages": 8, "sequences": 8},
    {"model": "llama3-8b", "ranks": 1, "sequences": 1024, "context": 128, "against": "sequences"},
    {"model": "mt-nlg-530b", "accelerator": "v100-32gb", "ranks": 1, "link": "pcie-5"},
]
ALL = pytest.mark.parametrize("given", SETTINGS, ids=str)


def draw(width=WIDE, **given):
    """What the explorer shows."""
    return explorer.draw(width, **controls.settings(explorer.CONTROLS, given))


def computed(given, **changed):
    """All settings, and the next token at them, from the arithmetic alone."""
    own = controls.settings(explorer.CONTROLS, {**given, **changed})
    generation = {"v100-32gb": 2, "a100-80gb": 3, "h100": 4}
    link = own["link"] if own["link"] != "nvlink" else f"nvlink-{generation[own['accelerator']]}"
    token = inference.next_token(
        PRESETS[own["model"]],
        own["accelerator"],
        link,
        own["ranks"],
        own["sequences"],
        own["context"],
        own["stages"],
        own["algorithm"],
        dtype="fp16",
    )
    return own, token


@ALL
def test_the_words_are_the_arithmetic(given):
    words, (own, token) = draw(**given)["text"], computed(given)
    devices = own["ranks"] * own["stages"]
    assert f"the next token takes {seconds(token.seconds)}." in words
    assert f"A user gets {figures(1 / token.seconds)} tokens a second" in words
    assert f"a device generates {figures(own['sequences'] / token.seconds / devices)}." in words
    share = percent(getattr(token, token.bound) / token.seconds, 0)
    assert f"What takes longest is {explorer.NAMES[token.bound]}, {share} of the time" in words
    room = sum(
        inference.decode_memory(
            PRESETS[own["model"]], own["ranks"], own["stages"], own["sequences"], own["context"] + 1
        )
    )
    over = room > hardware.accelerator(own["accelerator"]).memory
    assert (f"It does not fit: a device would have to hold {scaled(room, 'B')}." in words) == over
    assert len(words.split()) <= 90


@ALL
@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_every_part_is_named_with_its_seconds_and_the_longest_is_bold(given, width):
    svg, (_, token) = draw(width, **given)["svg"], computed(given)
    for part in ("weights", "cache", "arithmetic", "latency", "bandwidth"):
        (mark,) = re.findall(rf"<text[^>]*>{part} {seconds(getattr(token, part))}</text>", svg)
        assert ("font-weight" in mark) == (part == token.bound)
    assert f">next token {seconds(token.seconds)}</text>" in svg


def test_the_fastest_number_of_ranks_is_the_chapters():
    assert "The fastest number of ranks is 16, with 5.6 ms; with more, messages cost more" in draw()["text"]
    assert ">fastest: 16</text>" in draw()["svg"]
    times = {ranks: computed({}, ranks=ranks)[1].seconds for ranks, _ in explorer.RANKS}
    assert min(times, key=times.get) == 16


def test_the_knee_is_where_the_bound_changes():
    given = {"context": 8192, "against": "sequences"}
    assert ">knee: 52</text>" in draw(**given)["svg"]
    words = "The knee is at 52 sequences, where reading the cache overtakes reading the weights."
    assert words in draw(**given)["text"]
    own = inference.batch_knee(PRESETS["llama3-70b"], "h100", "nvlink-4", ranks=8, past=8192)
    assert own == 52
    long = {"model": "llama2-7b", "context": 131072, "against": "sequences"}
    assert "This does not change up to 1,024 sequences." in draw(**long)["text"]
    assert ">knee" not in draw(**long)["svg"]


def test_numbers_that_a_model_cannot_be_cut_for_are_refused_and_left_out_of_the_curve():
    with pytest.raises(ValueError, match="16 ranks cannot share 40"):
        draw(model="llama2-13b", ranks=16)
    assert "The fastest number of ranks is 8" in draw(model="llama2-13b", ranks=8)["text"]


def test_what_was_measured_stands_beside_the_bound_only_at_its_setting():
    measured = {"model": "llama2-70b", "accelerator": "a100-80gb", "context": 128}
    assert "gpt-fast measured 62.5 tokens a second, 61 % of this bound." in draw(**measured)["text"]
    assert draw(**measured)["svg"].count("tokens/s</title>") == 3
    for other in ({"sequences": 2}, {"context": 512}, {"stages": 2}, {"link": "pcie-5"}, {"ranks": 16}):
        assert "gpt-fast" not in draw(**{**measured, **other})["text"]


def test_without_messages_their_controls_are_idle():
    assert draw(ranks=1, against="sequences")["idle"] == ["algorithm", "link"]
    assert draw(ranks=1, stages=2, against="sequences")["idle"] == ["algorithm"]
    assert draw(ranks=1)["idle"] == draw()["idle"] == []


def test_a_refusal_of_ranks_names_their_control():
    given = controls.settings(explorer.CONTROLS, {"ranks": 64, "model": "llama3-8b"})
    with pytest.raises(ValueError, match=r"^ranks is refused: 64 ranks cannot share 32"):
        explorer.draw(WIDE, **given)
