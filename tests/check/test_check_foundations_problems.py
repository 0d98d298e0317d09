"""The ten problems: ✓ for the right answer, what was forgotten for a wrong one, never an exception."""

import pytest
import torch
from verdicts import assert_letter, assert_number, verdict

from allranks import precision
from allranks.check import foundations_problems as problems


@pytest.mark.parametrize(
    "problem, right, wrong, hint",
    [
        ("bucket", 6.4512, 0.0063, "one message"),
        ("bucket", 6.4512, 7.168, "of the whole"),
        ("bucket", 6.4512, 0.7168, "equally long"),
        ("bucket", 6.4512, 51.61, "sold by bits"),
        ("bucket", 6.4512, 12.9, "twice the bytes"),
        ("bucket", 6.4512, 6451, "megabytes"),
        ("ones", 256, 512, "256 + 1"),
        ("ones", 256, 2048, "fp16"),
        ("ones", 256, 128, "one apart"),
        ("days", 49.62, 41.28, "without weights"),
        ("days", 49.62, 65.26, "no recomputation"),
        ("days", 49.62, 55.04, "second forward"),
        ("days", 49.62, 16.54, "is the forward"),
        ("days", 49.62, 19.85, "40 %"),
        ("days", 49.62, 25405, "on a single GPU"),
        ("two_levels", 138.2, 75.7, "ranks share the"),
        ("two_levels", 138.2, 62.5, "inside the nodes"),
        ("two_levels", 138.2, 641, "one card"),
        ("two_levels", 138.2, 665.1, "only an eighth"),
        ("two_levels", 138.2, 276.4, "not four"),
        ("two_levels", 138.2, 69.1, "two bytes"),
        ("two_levels", 138.2, 107, "all-gather"),
        ("two_levels", 138.2, 0.1382, "seconds"),
        ("microbatch", 5, 7, "states, which take"),
        ("microbatch", 5, 15, "scores, kept in"),
        ("microbatch", 5, 84, "every layer recomputed"),
        ("microbatch", 5, 6, "stays free"),
        ("printed", 33.56, 44.75, "forward twice"),
        ("printed", 33.56, 59.7, "out instead of"),
        ("printed", 33.56, 67.1, "312 TFLOP/s"),
        ("printed", 33.56, 0.3356, "per cent"),
    ],
)
def test_a_number(capsys, problem, right, wrong, hint):
    assert_number(capsys, getattr(problems, problem), right, wrong, hint)


@pytest.mark.parametrize(
    "problem, right, hints",
    [
        ("summed", "C", {"A": "first losses", "B": "drift apart", "D": "less data", "E": "last digits"}),
        ("evaluation", "E", {"A": "3.1 GB once", "B": "18.7 GB, once", "C": "8 kB", "D": "only a part of"}),
        ("moved", "B", {"A": "0.19 s", "C": "0.67 s", "D": "not faster", "E": "the cards can send"}),
    ],
)
def test_a_cause(capsys, problem, right, hints):
    assert_letter(capsys, getattr(problems, problem), right, hints)


@pytest.mark.parametrize(
    "answer, hint",
    [
        ((8, 2, 4, 70.55, 1.766), "✓"),
        ([8, 2, 4, 70.6, 1.77], "✓"),
        ((1, 1, 64, 1129, 1), "1129 GB on each GPU"),
        ((8, 1, 8, 141, 1), "141 GB on each GPU"),
        ((16, 1, 4, 70.6, 1), "send for 5.6 s"),
        ((16, 2, 2, 35.3, 1), "more than a node"),
        ((8, 2, 4, 8.82, 1.77), "Those are the weights"),
        ((8, 2, 4, 17.64, 1.77), "only tp and pp"),
        ((8, 2, 4, 1129, 1.77), "are the states of"),
        ((8, 2, 4, 70.6, 6.587), "dp varies fastest"),
        ((8, 2, 4, 70.6, 3.778), "two nodes"),
        ((8, 2, 4, 70.6, 12.56), "eight nodes"),
        ((8, 2, 4, 70.6, 1.458), "tp alone"),
        ((8, 2, 4, 70.6, 0.3587), "one micro-batch"),
        ((8, 2, 4, 70.6, 7.97), "GPUs compute"),
        ((8, 2, 4, 70.6, 5), "5 is not right"),
        ((8, 4, 2, 35, 1), "pp should be 1 or 2"),
        ((8, 2, 8, 35, 1), "whose product is 64"),
        ((8, 2, 4), "Give five things"),
        (None, "Replace None with five things"),
        (8, "five things"),
    ],
)
def test_a_plan(capsys, answer, hint):
    assert hint in verdict(capsys, problems.plan, answer)


@pytest.mark.parametrize("optimizer, times", [(torch.optim.SGD, 4), (torch.optim.AdamW, 1)])
def test_a_sum_of_four_gradients_moves_a_weight_four_times_as_far_only_under_sgd(optimizer, times):
    moved = []
    for factor in (1, 4):
        weight = torch.zeros(2, requires_grad=True)
        weight.grad = factor * torch.tensor([0.3, -0.002])
        optimizer([weight], lr=0.1).step()
        moved.append(weight.detach())
    assert torch.allclose(moved[1], times * moved[0], rtol=1e-4)


@pytest.mark.parametrize("dtype, stops", [("bf16", 256), ("fp16", 2048)])
def test_a_running_sum_of_ones_stops_where_the_next_number_is_two_away(dtype, stops):
    assert precision.rounded(dtype, stops + 1) == stops
    assert all(precision.rounded(dtype, n + 1) == n + 1 for n in range(stops))
