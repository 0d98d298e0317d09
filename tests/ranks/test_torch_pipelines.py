"""torch's schedules run the operations of ours, and what is recorded is what ran."""

import pytest
import torch
import torch.nn.functional as F
from torch.distributed.pipelining import Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B

from allranks import launch, schedules, sleeping, torch_pipelines
from allranks.model import GPT, digits, loss_of
from allranks.pieces import part_of

SAME = [
    (ScheduleGPipe, schedules.gpipe(2, 4)),
    (Schedule1F1B, schedules.one_f_one_b(2, 4)),
    (ScheduleInterleaved1F1B, schedules.interleaved(2, 4, 2)),
]


def new_model():
    torch.manual_seed(0)
    return GPT(layers=2)


def mean_loss(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def step_on_rank(make, cut, numbers, batch):
    rank = torch.distributed.get_rank()
    parts = {n: part_of(new_model(), cut, n) for n in numbers[rank]}
    loss, gradients, order, listed = torch_pipelines.step(make, parts, len(cut), 4, batch, mean_loss)
    return loss, gradients, order, torch_pipelines.operations(listed)


@pytest.mark.parametrize("make, ours", SAME)
def test_torch_trains_the_same_model_in_the_same_order(make, ours):
    cut = [3, 3] if ours.chunks == 1 else [1, 2, 2, 1]
    batch, model = digits()[:8], new_model()
    numbers = [range(rank, len(cut), 2) for rank in range(2)]
    results = launch(step_on_rank, make, cut, numbers, batch, world_size=2)
    loss = loss_of(model, batch)
    loss.backward()
    assert results[0][0] == 0.0
    assert results[1][0] == pytest.approx(loss.item(), rel=1e-5)
    for _, gradients, *_ in results:
        for n, mine in gradients.items():
            expected = [p.grad for p in part_of(model, cut, n).parameters()]
            torch.testing.assert_close(mine, expected, rtol=1e-4, atol=1e-6)
    assert tuple(order for *_, order, _ in results) == ours.orders
    assert results[0][3][0] == ours.orders[0]


@pytest.mark.parametrize("make, ours", SAME[1:])
def test_sleeping_stages_of_torch_log_what_ours_log(make, ours):
    naps = {"F": 0.004, "BW": 0.008}
    logs = launch(torch_pipelines.sleep, make, ours.chunks, 4, naps, repeats=2, world_size=2)
    assert [len(each) for each in logs] == [2, 2]
    measured = sleeping.quickest(logs, 0.004)
    expected = [(rank, kind) for rank, order in enumerate(ours.orders) for kind, *_ in order]
    assert [bar[:2] for bar in measured] == expected
