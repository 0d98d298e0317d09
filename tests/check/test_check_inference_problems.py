"""The ten problems: ✓ for the right answer, what was forgotten for a wrong one, never an exception."""

import pytest
from verdicts import assert_letter, assert_number, verdict

from allranks import claims, inference
from allranks.check import inference_problems as problems


@pytest.mark.parametrize(
    "problem, right, wrong, hint",
    [
        ("copies", 5.369, 2.684, "each head goes to two"),
        ("copies", 5.369, 42.95, "needs one KV head"),
        ("copies", 5.369, 21.47, "the 64 query heads"),
        ("copies", 5.369, 0.3355, "one of the sixteen"),
        ("at_half_peak", 8.188, 19, "the printed number"),
        ("at_half_peak", 8.188, 18.58, "the printed number"),
        ("at_half_peak", 8.188, 9.29, "still has b = 22"),
        ("at_half_peak", 8.188, 9.5, "still has b = 22"),
        ("at_half_peak", 8.188, 16.38, "half their peak"),
        ("at_half_peak", 8.188, 32.75, "a slower link is enough"),
        ("at_half_peak", 8.188, 1.024, "is for one GPU"),
        ("largest_batch", 162, 20, "each of eight ranks holds one"),
        ("largest_batch", 162, 185, "stays free"),
        ("largest_batch", 162, 214, "weights need room"),
        ("largest_batch", 162, 324, "two bytes"),
        ("pages", 447, 596, "How many more is that"),
        ("pages", 447, 149, "run with reservations"),
        ("pages", 447, 428, "never fed back"),
        ("latent", 1.421, 0.067, "6 bits with 16"),
        ("latent", 1.421, 0.1776, "which of them has the latent"),
        ("latent", 1.421, 0.5329, "16 bits an element"),
        ("latent", 1.421, 0.7037, "turn the fraction"),
    ],
)
def test_a_number(capsys, problem, right, wrong, hint):
    assert_number(capsys, getattr(problems, problem), right, wrong, hint)


@pytest.mark.parametrize(
    "problem, right, hints",
    [
        (
            "first_token",
            "C",
            {"A": "decode steps", "B": "preempted", "D": "delays only the next", "E": "No server"},
        ),
        ("more_at_once", "D", {"A": "60 FLOPs", "B": "first tokens", "C": "0.5 ms", "E": "12,000"}),
        ("two_texts", "E", {"A": "largest logit", "B": "near a tie", "C": "preempted", "D": "padding"}),
    ],
)
def test_a_cause(capsys, problem, right, hints):
    assert_letter(capsys, getattr(problems, problem), right, hints)


@pytest.mark.parametrize(
    "answer, hint",
    [
        (("h100", 4, 33.55, 22.78), "✓"),
        (["h100", 4, 33.6, 22.8], "✓"),
        (("h100", 1, 0, 0), "room for 0 sequences"),
        (("h100", 2, 67.1, 42), "it is not enough that the weights fit"),
        (("a100-80gb", 4, 33.55, 36.8), "36.8 ms: 27 tokens"),
        (("h100", 8, 16.8, 13.7), "4 GPUs are enough"),
        (("a100-80gb", 8, 16.8, 21.3), "4 GPUs are enough"),
        (("h100", 4, 134.2, 22.8), "the cache of all 4 GPUs"),
        (("h100", 4, 268.4, 22.8), "8 KV heads"),
        (("h100", 4, 31.25, 22.8), "GiB"),
        (("h100", 4, 33.55, 20.39), "161 sums"),
        (("h100", 4, 33.55, 33.3), "That is the limit"),
        (("h100", 4, 33.55, 7), "7 is not right"),
        (("h200", 2, 67, 30), "1, 2, 4 or 8 ranks"),
        (("h100", 3, 44.7, 30), "1, 2, 4 or 8 ranks"),
        (("h100", 4), "four things"),
        (None, "Replace None with four things"),
        (4, "four things"),
    ],
)
def test_a_plan(capsys, answer, hint):
    assert hint in verdict(capsys, problems.plan, answer)


@pytest.mark.parametrize(
    "answer, hint",
    [
        ((9, 309.2), "✓ 9 generate, and a step takes 309 s"),
        ((9, 610.9), "at the same time"),
        ((9, 301.7), "the trainers still learn"),
        ((9, 203.6), "the fixed time too"),
        ((9, 400), "400 is not right"),
        ((8, 317.3), "verl's ratio"),
        ((13, 340), "learning 340 s"),
        ((32, 300), "the others learn"),
        ((9, None), "Replace None"),
        ((None, None), "Replace None"),
        (None, "two things"),
    ],
)
def test_a_split(capsys, answer, hint):
    assert hint in verdict(capsys, problems.split, answer)


def test_the_split_starts_from_what_verl_reports():
    def printed(phase, way):
        return int(claims.find(f"verl-seconds-{phase}-{way}").printed)

    assert {4: printed("drawing", "apart"), 16: printed("drawing", "together")} == problems.DRAWING
    assert {
        gpus: printed("log-probabilities", way) + printed("update", way)
        for gpus, way in ((12, "apart"), (16, "together"))
    } == problems.LEARNING


def test_more_running_requests_than_can_finish_are_computed_again_and_write_more_slowly():
    few, many = problems.flooded(8), problems.flooded(64)
    assert inference.recomputed_tokens(few) == 0 < sum(map(inference.preemptions, many.served))
    assert inference.recomputed_tokens(many) > 8 * 12_000
    assert inference.mean(map(inference.tpot, many.served)) > 2 * inference.mean(
        map(inference.tpot, few.served)
    )
