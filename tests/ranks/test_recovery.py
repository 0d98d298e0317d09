"""Recorded under torchft: survivors go on, no step is lost, and the losses are those of one process."""

from itertools import groupby

import pytest
import torch

from allranks import recovery
from allranks.model import GPT, digits, loss_of

STEPS = [list(each) for _, each in groupby(sorted(recovery.ATTEMPTS, key=lambda a: a.step), lambda a: a.step)]
KEPT = [[attempt for attempt in each if attempt.kept] for each in STEPS]


def test_every_step_was_kept_once_by_all_who_took_part():
    assert [each[0].step for each in KEPT] == list(range(recovery.STEPS))
    for each in KEPT:
        assert len({attempt.replica for attempt in each}) == len(each) == each[0].ranks
        assert len({attempt.weights for attempt in each}) == 1  # equal to the last bit


def test_only_the_step_of_the_death_was_thrown_away_and_only_replica_1_has_two_lives():
    lost = [attempt for attempt in recovery.ATTEMPTS if not attempt.kept]
    assert {attempt.step for attempt in lost} == {recovery.DIED_AT}
    lives = {(attempt.replica, attempt.life) for attempt in recovery.ATTEMPTS}
    assert lives == {(0, 0), (1, 0), (1, 1), (2, 0)}


def test_the_mean_losses_are_those_of_one_process():
    torch.manual_seed(0)
    model, data = GPT(), digits()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for each in KEPT:
        loss = loss_of(model, data[12 * each[0].step % 1200 :][:12])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = sum(attempt.loss for attempt in each) / len(each)
        assert mean == pytest.approx(loss.item(), abs=2e-6)  # the losses are stored to six decimals
