"""The checks of the chapter Experts: a router and two all-to-alls."""

import pytest
import torch.distributed as dist
from verdicts import verdict

from allranks.check import experts

AVG = dist.ReduceOp.AVG


@pytest.mark.parametrize(
    "answer, says",
    [
        (587.2, "✓"),
        (None, "None"),
        (146.8, "How many"),
        (293.6, "forward alone"),
        (671.1, "eighth"),
        (469.8, "empty slots"),
        (1, "is not"),
    ],
)
def test_what_a_layer_of_mixtral_sends(capsys, answer, says):
    assert says in verdict(capsys, experts.megabytes_sent, answer)


def as_one_process(gradient, of_expert, same):
    if of_expert:
        dist.all_reduce(gradient, group=same)
        gradient /= dist.get_world_size()
    else:
        dist.all_reduce(gradient, op=AVG)


def like_data_parallelism(gradient, of_expert, same):
    dist.all_reduce(gradient, op=AVG)


def left_alone(gradient, of_expert, same):
    if not of_expert:
        dist.all_reduce(gradient, op=AVG)


def mean_of_the_copies(gradient, of_expert, same):
    dist.all_reduce(gradient, op=AVG, group=same if of_expert else None)


def sum_of_the_copies(gradient, of_expert, same):
    if of_expert:
        dist.all_reduce(gradient, group=same)
    else:
        dist.all_reduce(gradient, op=AVG)


def divided_alone(gradient, of_expert, same):
    if of_expert:
        gradient /= 4
    else:
        dist.all_reduce(gradient, op=AVG)


def over_two_ranks(gradient, of_expert, same):
    dist.all_reduce(gradient, op=AVG, group=same)


@pytest.mark.parametrize(
    "answer, says",
    [
        (as_one_process, "✓"),
        (like_data_parallelism, "different experts"),
        (left_alone, "unchanged"),
        (mean_of_the_copies, "twice too large"),
        (sum_of_the_copies, "is a sum"),
        (divided_alone, "is not the gradient of the mean loss"),
        (over_two_ranks, "gradient of the gate"),
    ],
)
def test_copies_of_an_expert_are_added_and_divided_by_all_ranks(capsys, answer, says):
    assert says in verdict(capsys, experts.average, answer)
