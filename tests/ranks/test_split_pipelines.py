"""A step with split backwards has one process's gradients, and its schedule's memory and messages."""

import pytest
import torch
import torch.nn.functional as F

from allranks import launch, schedules, split_pipelines
from allranks.model import GPT, digits, loss_of
from allranks.parallel.combine import Part
from allranks.simulate import simulate


def mean_loss(logits, targets, m):
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten()) / m


def new_model():
    torch.manual_seed(0)
    return GPT(layers=4)


def train_step(schedule, batch):
    return split_pipelines.train_step(schedule, new_model(), batch, mean_loss)


@pytest.mark.parametrize("make, cuts", [(schedules.zb_h1, 1), (schedules.zb_v, 2)])
def test_a_step_has_the_gradients_of_one_process_and_what_its_schedule_holds_and_sends(make, cuts):
    schedule, model, batch = make(2, 4), new_model(), digits()[:4]
    loss = loss_of(model, batch)
    loss.backward()
    results = launch(train_step, schedule, batch, world_size=2, rules="nccl")
    assert sum(each[0] for each in results) == pytest.approx(loss.item(), abs=1e-5)
    for _, gradients, *_ in results:
        for stage, found in gradients.items():
            part = Part(model, stage, 2 * schedule.chunks)
            torch.testing.assert_close(found, [p.grad for p in part.parameters()], rtol=1e-4, atol=1e-6)
    assert [held for _, _, held, _ in results] == list(simulate(schedule).peak_activations)
    assert [sent for *_, sent in results] == [cuts * 4 * 64 * 64 * 4] * 2
