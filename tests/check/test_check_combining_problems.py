"""The ten problems: ✓ for the right answer, what was forgotten for a wrong one, never an exception."""

import pytest
from verdicts import assert_letter, assert_number, verdict

from allranks import schedules, simulate
from allranks.check import combining_problems as problems


def said(capsys, problem, answer):
    return verdict(capsys, getattr(problems, problem), answer)


@pytest.mark.parametrize(
    "problem, right, wrong, hint",
    [
        ("tokens", 26_112, 24_576, "12h²"),
        ("tokens", 26_112, 29_696, "heads of queries share 8"),
        ("tokens", 26_112, 13_056, "the gradients once"),
        ("tokens", 26_112, 52_225, "the activations"),
        ("tokens", 26_112, 208_900, "all tokens"),
        ("repeated", 3.288, 2.349, "communicates again"),
        ("repeated", 3.288, 4.698, "Only the forward pass"),
        ("repeated", 3.288, 2.819, "keeps only a part"),
        ("repeated", 3.288, 1.879, "four all-reduces"),
        ("repeated", 3.288, 3.758, "its own eighth"),
        ("repeated", 3.288, 1.644, "two bytes"),
        ("enough", 54, 53, "Round up"),
        ("enough", 54, 72, "equally long"),
        ("enough", 54, 24, "waits for W"),
        ("enough", 54, 34, "fills a gap"),
        ("enough", 54, 140, "twice the memory"),
        ("ring", 2.4, 1.6, "go around again"),
        ("ring", 2.4, 6, "of keys; Llama 3 8B has only 8"),
        ("ring", 2.4, 4.8, "as much in backward"),
        ("ring", 2.4, 12, "queries and outputs"),
        ("ring", 2.4, 0.4167, "turn the fraction"),
        ("experts", 23.25, 15.85, "only four replicas hold"),
        ("experts", 23.25, 102.2, "eight experts; a rank has one of"),
        ("experts", 23.25, 57.95, "ZeRO-1 shards them"),
        ("experts", 23.25, 11.68, "leaves weights and gradients whole"),
        ("experts", 23.25, 46.49, "halves the experts"),
        ("same_batch", 42.6, 54.2, "eight times as many sequences"),
        ("same_batch", 42.6, 44.01, "for 2,240 GPUs"),
        ("same_batch", 42.6, 40.94, "already includes a bubble"),
        ("same_batch", 42.6, 30.83, "three pieces"),
        ("same_batch", 42.6, 6.775, "makes only the bubble"),
    ],
)
def test_a_number(capsys, problem, right, wrong, hint):
    assert_number(capsys, getattr(problems, problem), right, wrong, hint)


@pytest.mark.parametrize(
    "problem, right, hints",
    [
        ("waiting", "C", {"A": "so on only one", "B": "slow sends", "D": "GPipe", "E": "slows all ranks"}),
        ("documents", "D", {"A": "7 times", "B": "slow GPU", "C": "none of them is late", "E": "fewer keys"}),
        ("clipped", "A", {"B": "first loss", "C": "Late updates", "D": "hold these", "E": "too large"}),
    ],
)
def test_a_cause(capsys, problem, right, hints):
    assert_letter(capsys, getattr(problems, problem), right, hints)


@pytest.mark.parametrize(
    "answer, hint",
    [
        ((8, 1, 8, 71.55, 17.13), "✓"),
        ([8, 1, 8, 71.6, 17.1], "✓"),
        ((4, 4, 4, 76.8, 17.7), "77 GB on a GPU; 72 GB"),
        ((2, 8, 4, 123.6, 19.7), "124 GB"),
        ((8, 2, 4, 53.4, 17.8), "16.1 s, and tensor parallelism"),
        ((4, 8, 2, 69, 18.8), "17.0 s, and the bubble"),
        ((16, 1, 4, 43.2, 25.7), "23.3 s, and tensor parallelism"),
        ((8, 1, 8, 66.6, 17.1), "GiB"),
        ((8, 1, 8, 48.5, 17.1), "Those are the states"),
        ((8, 1, 8, 164.2, 17.1), "optimizer states whole; ZeRO-1 shards them over dp"),
        ((8, 1, 8, 41.3, 17.1), "shards only the optimizer's"),
        ((8, 1, 8, 71.6, 14.67), "is computing alone"),
        ((8, 1, 8, 71.6, 12.9), "6ND"),
        ((8, 1, 8, 71.6, 7.74), "reaches the peak"),
        ((8, 1, 8, 71.6, 411), "hours"),
        ((8, 1, 8, 71.6, 30), "30 is not right"),
        ((4, 4, 8, 0, 0), "product is 64"),
        ((8, 0.5, 16, 0, 0), "product is 64"),
        (("8", 1, 8, 0, 0), "product is 64"),
        ((8, 1, 8), "five things"),
        (None, "Replace None with five things"),
        (64, "five things"),
    ],
)
def test_a_plan(capsys, answer, hint):
    assert hint in said(capsys, "plan", answer)


def test_the_sizes_of_the_fastest_plan_are_right_and_all_others_wrong(capsys):
    sizes = [2**i for i in range(7)]
    lines = {
        (tp, pp, 64 // tp // pp): said(capsys, "plan", (tp, pp, 64 // tp // pp, 71.55, 17.126))
        for tp in sizes
        for pp in sizes
        if tp * pp <= 64
    }
    assert [each for each, line in lines.items() if "✓" in line] == [problems.fastest()]


def test_more_micro_batches_leave_only_the_slowest_stage_busy():
    few, many = problems.idle(32), problems.idle(4096)
    assert few[7] < few[0] and many[7] < 0.002 and many[0] == pytest.approx(1 - 1 / 1.25, abs=0.002)
    even = simulate.simulate(schedules.one_f_one_b(8, 4096))
    assert even.bubble_of_total < 0.002


@pytest.mark.parametrize("m, better", [(53, "zb_h1"), (54, "one_f_one_b")])
def test_the_smaller_bubble_is_simulated_too(m, better):
    shares = {
        name: simulate.simulate(made, **problems.ONE_STEP).bubble_of_total
        for name, made in (("one_f_one_b", schedules.one_f_one_b(8, m)), ("zb_h1", schedules.zb_h1(8, 24)))
    }
    assert min(shares, key=shares.get) == better
