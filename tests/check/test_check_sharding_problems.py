"""The ten problems: ✓ for the right answer, what was forgotten for a wrong one, never an exception."""

import pytest
from verdicts import assert_letter, assert_number, verdict

from allranks import memory
from allranks.check import sharding_problems as problems


@pytest.mark.parametrize(
    "problem, right, wrong, hint",
    [
        ("tied", 13.92, 40.97, "Only one is not averaged yet"),
        ("tied", 13.92, 12.16, "126 rounds"),
        ("tied", 13.92, 6.961, "passes everything on twice"),
        ("tied", 13.92, 4.804, "takes four bytes"),
        ("tied", 13.92, 7.843, "in fp32"),
        ("tied", 13.92, 3.284, "sold by bits"),
        ("tied", 13.92, 0, "is the last"),
        ("beside_ddp", 3.2, 4.706, "a second time"),
        ("beside_ddp", 3.2, 4.571, "buckets, which are whole"),
        ("beside_ddp", 3.2, 2.5, "the moments are sharded"),
        ("beside_ddp", 3.2, 2, "the moments whole"),
        ("beside_ddp", 3.2, 40, "stay whole"),
        ("beside_ddp", 3.2, 5.926, "no copy in 16 bits"),
        ("out_of_the_node", 1.5875, 12.7, "only one rank of a node"),
        ("out_of_the_node", 1.5875, 12, "only one rank of a node"),
        ("out_of_the_node", 1.5875, 1.5, "a 128th"),
        ("out_of_the_node", 1.5875, 3.175, "slice on twice"),
        ("out_of_the_node", 1.5875, 1.058, "gathers each weight twice"),
        ("out_of_the_node", 1.5875, 0.63, "turn the fraction"),
        ("host", 27.43, 30, "share one host"),
        ("host", 27.43, 109.7, "in the same host"),
        ("host", 27.43, 32, "Gradients leave"),
        ("host", 27.43, 24, "stay on the GPUs"),
        ("host", 27.43, 39, "not one pool"),
        ("units", 508, 592.7, "a seventh of it"),
        ("units", 508, 338.7, "gathered twice"),
        ("units", 508, 169.3, "three collectives"),
        ("units", 508, 1016, "126"),
        ("units", 508, 8.064, "takes 63 rounds"),
        ("units", 508, 15.88, "one layer of 32"),
        ("units", 508, 0.508, "seconds"),
        ("printed", 409.6, 2048, "the states alone"),
        ("printed", 409.6, 2000, "the printed number"),
        ("printed", 409.6, 102.4, "all 1,024 ranks"),
        ("printed", 409.6, 1638, "which also divides whole layers"),
        ("printed", 409.6, 877.7, "the next one is whole"),
        ("printed", 409.6, 558.5, "six bytes"),
    ],
)
def test_a_number(capsys, problem, right, wrong, hint):
    assert_number(capsys, getattr(problems, problem), right, wrong, hint)


@pytest.mark.parametrize(
    "problem, right, hints",
    [
        ("four_times", "C", {"A": "12.3 GB", "B": "latency", "D": "one number", "E": "3.1 GB once a step"}),
        ("peak", "B", {"A": "shorter ones", "C": "0.6 GB", "D": "after a step", "E": "an eighth"}),
        ("stopped", "D", {"A": "range of fp32", "B": "no ranks", "C": "overflows", "E": "far above"}),
    ],
)
def test_a_cause(capsys, problem, right, hints):
    assert_letter(capsys, getattr(problems, problem), right, hints)


@pytest.mark.parametrize(
    "answer, hint",
    [
        ((3, 2, 57.57, 84.76), "✓"),
        ([3, 2, 57.6, 84.8], "✓"),
        ((0, 2, 57.6, 84.8), "1129 GB on each GPU"),
        ((1, 2, 57.6, 84.8), "295 GB on each GPU"),
        ((2, 1, 0, 0), "157 GB on each GPU"),
        ((3, 1, 40.3, 133), "sends for 133 s and computes for 85 s"),
        ((3, 4, 92.2, 84.8), "bring each GPU to 92 GB"),
        ((3, 8, 161.5, 84.8), "bring each GPU to 162 GB"),
        ((3, 2, 17.64, 84.8), "Those are the states"),
        ((3, 2, 52.28, 84.8), "one layer's gradients are whole"),
        ((3, 2, 53.35, 84.8), "computes one layer again"),
        ((3, 2, 48.63, 84.8), "logits"),
        ((3, 2, 57.6, 66.7), "what sending takes"),
        ((3, 2, 57.6, 151.4), "only the longer counts"),
        ((3, 2, 57.6, 42.4), "peak; they reach half of"),
        ((3, 2, 57.6, 63.8), "computed again"),
        ((3, 2, 57.6, 74.8), "without weights"),
        ((3, 2, 57.6, 7), "7 is not right"),
        ((3, 3, 57.6, 84.8), "1, 2, 4 or 8 sequences"),
        ((4, 2, 57.6, 84.8), "stage 0, 1, 2 or 3"),
        ((3, 2), "Give four things"),
        (None, "Replace None with four things"),
        (4, "four things"),
    ],
)
def test_a_plan(capsys, answer, hint):
    assert hint in verdict(capsys, problems.plan, answer)


def test_twice_the_sequences_in_a_micro_batch_halve_what_stage_3_sends():
    assert [problems.sent(3, 1) / problems.sent(3, size) for size in (2, 4, 8)] == [2, 4, 8]


def test_by_the_states_alone_1024_gpus_hold_16_times_what_64_do():
    """Which is the last row of the table that the last problem reads, without its model parallelism."""
    fit = [memory.trainable_parameters(32e9, ranks, 3) for ranks in (64, 1024)]
    assert fit == [128e9, 2048e9]
