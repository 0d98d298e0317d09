"""The ten problems: ✓ for the right answer, what was forgotten for a wrong one, never an exception."""

from itertools import product

import pytest
from verdicts import assert_letter, assert_number, verdict

from allranks import schedules
from allranks.check import pipeline_problems as problems


@pytest.mark.parametrize(
    "problem, right, wrong, hint",
    [
        ("sequences", 3.0588, 8, "Only the other ten"),
        ("sequences", 3.0588, 1.614, "scores are not kept"),
        ("sequences", 3.0588, 5.412, "in both cases"),
        ("sequences", 3.0588, 3.4, "10 + 24/t"),
        ("sequences", 3.0588, 1.417, "divided by t before"),
        ("sequences", 3.0588, 0.327, "turn the fraction"),
        ("last_stage", 9.095, 23.02, "more the last stage computes"),
        ("last_stage", 9.095, 8.337, "the longer step"),
        ("last_stage", 9.095, 0, "1.8 layers"),
        ("boundary", 34.36, 8.59, "four chunks"),
        ("boundary", 34.36, 17.18, "go back"),
        ("boundary", 34.36, 4.295, "whole boundary"),
        ("boundary", 34.36, 2.147, "micro-batch; a step has 16"),
        ("boundary", 34.36, 68.72, "not four"),
        ("printed", 35.46, 26.08, "share of a step that is saved"),
        ("printed", 35.46, 26.46, "that is idle"),
        ("printed", 35.46, 35.98, "Almost"),
        ("printed", 35.46, 98.56, "bubble that is gone"),
        ("printed", 35.46, 31, "the abstract"),
        ("printed", 35.46, 1.355, "how many per cent"),
    ],
)
def test_a_number(capsys, problem, right, wrong, hint):
    assert_number(capsys, getattr(problems, problem), right, wrong, hint)


@pytest.mark.parametrize(
    "problem, right, hints",
    [
        ("first_loss", "B", {"A": "nearly equal", "C": "same probability", "D": "near 0", "E": "0.02"}),
        ("two_copies", "D", {"A": "other model", "B": "apply them late", "C": "mask", "E": "first loss"}),
        ("long_sequences", "A", {"B": "GPipe", "C": "raises", "D": "for each other", "E": "an error"}),
    ],
)
def test_a_cause(capsys, problem, right, hints):
    assert_letter(capsys, getattr(problems, problem), right, hints)


@pytest.mark.parametrize(
    "answer, hint",
    [
        ((8, 8, 55.69, 5.82), "✓"),
        ((2, 32, 91.3, 6.8), "The first stage's GPUs hold 91 GB: the first of"),
        ((4, 16, 67.5, 5.95), "takes 5.95 s"),
        ((16, 4, 49.8, 19.9), "leaves the node"),
        ((32, 2, 46.9, 30), "leaves the node"),
        ((8, 8, 45.05, 5.82), "Those are the states"),
        ((8, 8, 46.38, 5.82), "keeps eight"),
        ((8, 8, 127.5, 5.82), "never keeps all 64"),
        ((8, 8, 55.69, 5.248), "at both ends"),
        ((8, 8, 55.69, 4.99), "layer while nothing is computed"),
        ((8, 8, 55.69, 4.5), "computing alone"),
        ((8, 8, 55.69, 3.33), "peak; they reach half of"),
        ((8, 8, 55.69, 7), "7 is not right"),
        ((8, 4, 1, 1), "tp times pp should be 64"),
        ((8, 8), "Give four things"),
        (None, "Replace None with four things"),
    ],
)
def test_a_plan(capsys, answer, hint):
    assert hint in verdict(capsys, problems.plan, answer)


@pytest.mark.parametrize(
    "answer, hint",
    [
        ((4, 2907), "✓"),
        ((1, 7135), "7135 MB, most of it gradients"),
        ((8, 3611), "3611 MB, most of it activations"),
        ((4, 1699), "also sum activations"),
        ((4, 1208), "also sum gradients"),
        ((4, 21026), "a sixteenth"),
        ((4, 8004), "a quarter of the layer's"),
        ((4, 2303), "two all-reduces forward"),
        ((4, 1453), "twice"),
        ((5, 2907), "1, 2, 4, 8"),
        ((4,), "Give two things"),
        (None, "Replace None with two things"),
    ],
)
def test_a_mesh(capsys, answer, hint):
    assert hint in verdict(capsys, problems.mesh, answer)


@pytest.mark.parametrize(
    "answer, hint",
    [
        (("D", 29.25, 49), "✓"),
        ([" d ", 29.2, 49], "✓"),
        (("A", 96, 196), "96 GB"),
        (("B", 24, 196), "idles for 196 ms"),
        (("C", 34.5, 98), "34.5 GB"),
        (("E", 24, 84), "idles for 84 ms"),
        (("F", 45, 28), "45 GB"),
        (("D", 24, 49), "more than 1F1B"),
        (("D", 6, 49), "there are more of them"),
        (("D", 34.5, 49), "with two chunks"),
        (("D", 29.25, 196), "With chunks of"),
        (("D", 29.25, 98), "with two chunks"),
        (("D", 29.25, 35), "has two parts"),
        (("D", 29.25, 7), "7 is not right"),
        (("G", 1, 1), "one of the letters"),
        (("D", 29.25), "Give three things"),
        (None, "Replace None with three things"),
    ],
)
def test_an_order(capsys, answer, hint):
    assert hint in verdict(capsys, problems.order, answer)


def test_no_cut_of_32_layers_is_faster_than_the_one_the_check_calls_best():
    cuts = [cut for cut in product(range(1, 14), repeat=4) if sum(cut) == 32]
    assert min(map(problems.cut_seconds, cuts)) == problems.cut_seconds((9, 9, 7, 7))


def test_of_both_orders_only_1f1b_hangs_if_a_send_waits_for_its_receiver():
    schedules.check(schedules.gpipe(4, 8), sends="blocking")
    schedules.check(schedules.one_f_one_b(4, 8), sends="paired")
    with pytest.raises(ValueError, match=r"deadlocks with blocking sends: rank 2.* rank 3"):
        schedules.check(schedules.one_f_one_b(4, 8), sends="blocking")
