"""A split backward is the whole one, W costs no more than it must, and any order of F, B, W equals serial."""

import copy

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from allranks import launch, lowering, schedules
from allranks.model import Layer
from allranks.parallel.pipeline import Mail, step
from allranks.parallel.zero_bubble import PASSES, SplitStage, split, weight_grad
from allranks.simulate import simulate
from allranks.trace import trace

BATCH, WIDTH, SEQUENCE, HIDDEN = 24, 6, 32, 16

SCHEDULES = [
    schedules.gpipe(2, 3),
    schedules.one_f_one_b(4, 6),
    schedules.interleaved(2, 4, 2),
    schedules.zb_h1(1, 2),
    schedules.zb_h1(4, 6),
    schedules.zb_h2(3, 6),
    schedules.zb_v(1, 3),
    schedules.zb_v(4, 8),
    schedules.zero_bubble(4, 8, 5),
    schedules.dualpipe_v(3, 6),
]


def layer_and_gradient():
    torch.manual_seed(0)
    layer = Layer(HIDDEN, 2)
    x = torch.randn(3, SEQUENCE, HIDDEN, requires_grad=True)
    return layer, x, torch.randn(3, SEQUENCE, HIDDEN)


def test_b_and_then_w_give_the_gradients_of_one_backward():
    layer, x, gradient = layer_and_gradient()
    whole, later = copy.deepcopy(layer), []
    split(layer, later)(x).backward(gradient)
    assert len(later) == 6 and layer.up.module.weight.grad is None
    weight_grad(later)
    assert later == []
    expected = x.detach().requires_grad_()
    whole(expected).backward(gradient)
    torch.testing.assert_close(x.grad, expected.grad)
    for mine, theirs in zip(layer.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad)


def test_weights_used_twice_in_a_stage_get_both_gradients():
    torch.manual_seed(0)
    twice, later = nn.Linear(4, 4), []
    model = nn.Sequential(twice, nn.Tanh(), twice)
    whole = copy.deepcopy(model)
    x = torch.randn(2, 4)
    split(model, later)(x.clone().requires_grad_()).sum().backward()
    weight_grad(later)
    whole(x).sum().backward()
    torch.testing.assert_close(twice.weight.grad, whole[0].weight.grad)


def test_weights_get_their_gradients_where_the_input_needs_none():
    layer, x, gradient = layer_and_gradient()
    whole, later = copy.deepcopy(layer), []
    x = x.detach()
    split(layer, later)(x).backward(gradient)
    assert len(later) == 6 and layer.query.module.weight.grad is None
    weight_grad(later)
    whole(x).backward(gradient)
    for mine, theirs in zip(layer.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad)


def test_a_layer_right_behind_the_data_is_deferred():
    torch.manual_seed(0)
    first, later, x = nn.Linear(4, 4), [], torch.randn(2, 4)
    whole = copy.deepcopy(first)
    split(nn.Sequential(first), later)(x).sum().backward()
    assert len(later) == 1 and first.weight.grad is None
    weight_grad(later)
    whole(x).sum().backward()
    torch.testing.assert_close(first.weight.grad, whole.weight.grad)


def test_gradients_add_up_over_micro_batches_in_any_order():
    layer, x, gradient = layer_and_gradient()
    whole, later = copy.deepcopy(layer), []
    split(layer, later)
    waiting = []
    for part in x.detach().split(1):
        layer(part.requires_grad_()).backward(gradient[:1])
        waiting.append(later.copy())
        later.clear()
    for each in reversed(waiting):
        weight_grad(each)
    whole(x).backward(gradient[:1].expand_as(x))
    for mine, theirs in zip(layer.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=1e-5)


def test_f_b_and_w_take_the_flops_of_table_1():
    layer, x, gradient = layer_and_gradient()
    later, sbh = [], 3 * SEQUENCE * HIDDEN
    split(layer, later)

    def flops(run):
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            run()
        return counter.get_total_flops()

    outputs = []
    assert flops(lambda: outputs.append(layer(x))) == sbh * (24 * HIDDEN + 4 * SEQUENCE)
    assert flops(lambda: outputs[0].backward(gradient)) == sbh * (24 * HIDDEN + 8 * SEQUENCE)
    assert flops(lambda: weight_grad(later)) == sbh * 24 * HIDDEN


def layers(count):
    torch.manual_seed(0)
    return [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(count)]


def data():
    torch.manual_seed(1)
    return torch.randn(BATCH, WIDTH), torch.randn(BATCH, WIDTH)


def on_rank(schedule):
    rank, count = dist.get_rank(), schedule.stages * schedule.chunks
    every, held = layers(count), []

    def share_of_loss(y, target):
        return nn.functional.mse_loss(y, target) / schedule.microbatches

    x, target = (t.chunk(schedule.microbatches) for t in data())
    stages = {}
    for number in sorted({stage for _, _, stage in schedule.orders[rank]}):
        loss_of = share_of_loss if number == count - 1 else None
        stages[number] = SplitStage(every[number], number, loss_of)

    def counted(run):
        def counting(*args):
            loss = run(*args)
            held.append(sum(len(stage.kept) + len(stage.waiting) for stage in stages.values()))
            return loss

        return counting

    mail, program = Mail(x[0]), lowering.lower(schedule).steps[rank]
    with trace() as seen:
        loss = step(stages, mail, program, x, target, {kind: counted(run) for kind, run in PASSES.items()})
    gradients = {n: [p.grad for p in stage.module.parameters()] for n, stage in stages.items()}
    left = len(mail.results) + len(mail.pending) + held[-1]
    return loss.item(), gradients, max(held), left, seen.sent


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda made: f"{made.name}-{made.stages}")
def test_every_order_has_the_loss_and_the_gradients_of_one_process(schedule):
    model = nn.Sequential(*layers(schedule.stages * schedule.chunks))
    x, target = data()
    loss = nn.functional.mse_loss(model(x), target)
    loss.backward()
    results = launch(on_rank, schedule, world_size=schedule.stages, timeout=20, rules="nccl")
    assert sum(each[0] for each in results) == pytest.approx(loss.item(), rel=1e-5)
    for _, gradients, *_ in results:
        for stage, mine in gradients.items():
            torch.testing.assert_close(mine, [p.grad for p in model[stage].parameters()])
    peaks = simulate(schedule).peak_activations
    assert [held for _, _, held, _, _ in results] == [peak * schedule.chunks for peak in peaks]
    assert all(left == 0 for *_, left, _ in results)
    home = {stage: rank for rank, order in enumerate(schedule.orders) for _, _, stage in order}
    borders = [home[stage] != home[stage + 1] for stage in range(len(home) - 1)]
    assert sum(sent for *_, sent in results) == 2 * sum(borders) * BATCH * WIDTH * 4


def test_two_copies_of_a_dualpipe_hold_the_gradient_together():
    schedule = schedules.dualpipe(2, 4)
    model = nn.Sequential(*layers(2))
    x, target = data()
    nn.functional.mse_loss(model(x), target).backward()
    results = launch(on_rank, schedule, world_size=2, timeout=20, rules="nccl")
    for stage in (0, 1):
        both = [sum(pair) for pair in zip(*(gradients[stage] for _, gradients, *_ in results), strict=True)]
        torch.testing.assert_close(both, [p.grad for p in model[stage].parameters()])
