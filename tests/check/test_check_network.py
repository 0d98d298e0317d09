"""The checks of the chapter The network say ✓ to right answers and ✗, with a hint, to wrong ones."""

import pytest
import torch
import torch.distributed as dist
from verdicts import verdict

from allranks.check import network


def two_level(t, inside, across):
    mine = torch.empty(len(t) // inside.size(), dtype=t.dtype)
    dist.reduce_scatter_single(mine, t, group=inside)
    dist.all_reduce(mine, group=across)
    dist.all_gather_single(t, mine, group=inside)
    return t


def swapped(t, inside, across):
    return two_level(t, across, inside)


def node_only(t, inside, across):
    dist.all_reduce(t, group=inside)
    return t


@pytest.mark.parametrize(
    "answer, said",
    [
        (two_level, "✓ The sum is right, and"),
        (swapped, "rank 0 reduces 384 bytes between the nodes; 96 are enough"),
        (node_only, "the sum on rank 0 is not the sum over"),
        (lambda t, inside, across: None, "returns nothing yet"),
    ],
)
def test_two_levels(capsys, answer, said):
    assert said in verdict(capsys, network.two_level, answer)


@pytest.mark.parametrize(
    "one_check, answer, said",
    [
        (network.hosts, 65536, "✓ 64³/4 = 65,536 hosts."),
        (network.hosts, 2048, "✗ That is what two levels connect"),
        (network.hosts, None, "✗ Replace None with a number"),
        (network.leaving, 21943, "✓ 21,943 GB/s"),
        (network.leaving, 153600, "✗ That is what the GPUs could send"),
    ],
)
def test_one_number_or_list(capsys, one_check, answer, said):
    assert said in verdict(capsys, one_check, answer)
