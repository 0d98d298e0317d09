"""The checks of What a collective costs: ✓ for right answers, a hint for the usual wrong ones."""

import pytest
import torch
import torch.distributed as dist

from allranks import check

HERE = check.cost_of_a_collective


def verdict(capsys, one_check, answer):
    one_check(answer)
    return capsys.readouterr().out.strip()


@pytest.mark.parametrize(
    "one_check, answer, says",
    [
        (HERE.crossover, 13_464_000, "✓ 13.5 MB"),
        (HERE.crossover, 1_530_000, "✗ That is α/β"),
        (HERE.crossover, 13.464, "✗ In bytes"),
        (HERE.crossover, 1e9, "✗ 1,000,000,000 bytes cost"),
        (HERE.buckets, 39.77, "✓ 40 times"),
        (HERE.buckets, 300, "✗ 300 times the latency"),
        (HERE.buckets, 1 / 39.77, "✗ That is how many times"),
        (HERE.buckets, 7, "✗ Not 7 times"),
        (HERE.between_nodes, 0.1875, "✓ 0.1875"),
        (HERE.between_nodes, 1.5, "✗ That is what a whole node sends"),
        (HERE.between_nodes, 1.9375, "✗ That is a flat ring"),
        (HERE.between_nodes, 0.09375, "✗ An all-reduce goes around twice"),
        (HERE.between_nodes, None, "✗ Put a number"),
        (HERE.buckets, "many", "✗ 'many' is not a number"),
        (HERE.halving_doubling, lambda t, transfer: None, "✗ Nothing was sent yet"),
    ],
)
def test_an_answer_gets_its_verdict(capsys, one_check, answer, says):
    assert verdict(capsys, one_check, answer).startswith(says)


def test_recursive_doubling_is_no_halving_and_doubling(capsys):
    def doubling(t, transfer):
        distance = 1
        while distance < dist.get_world_size():
            came = torch.empty_like(t)
            transfer(t, dist.get_rank() ^ distance, came, dist.get_rank() ^ distance)
            t += came
            distance *= 2

    said = verdict(capsys, HERE.halving_doubling, doubling)
    assert said == "✗ The sum is right, but with 2 ranks it takes 2·log2 p = 2 rounds, and rank 0 counted 1."


def test_a_sum_that_is_wrong_is_named(capsys):
    def once(t, transfer):
        came = torch.empty_like(t)
        transfer(t, dist.get_rank() ^ 1, came, dist.get_rank() ^ 1)

    said = verdict(capsys, HERE.halving_doubling, once)
    assert said.startswith("✗ With 2 ranks, 47 of 48 elements of rank 0 are not the sum.")
