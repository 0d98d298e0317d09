"""A mixture spread over ranks is the one-process mixture, in outputs, gradients, drops and what it sends."""

import pytest
import torch
import torch.distributed as dist

from allranks import collectives, experts, launch
from allranks.model import GPT, digits, loss_of
from allranks.parallel.experts import (
    Dropless,
    ExpertParallel,
    Mixture,
    MixtureLayer,
    average_gradients,
    balance_loss,
    choose,
    my_experts,
    places,
)
from allranks.trace import trace

HIDDEN, NUMBER, TOKENS = 16, 8, 24


def new_mixture(factor):
    torch.manual_seed(0)
    mixture = Mixture(HIDDEN, 32, NUMBER, factor=factor)
    mixture.bias[1] = 0.05  # some are more popular
    return mixture


def step(mixture, x):
    x = x.clone().requires_grad_()
    y = mixture(x)
    (y.pow(2).mean() + 0.01 * mixture.balance).backward()
    return y.detach(), x.grad


def step_on_rank(kind, factor, x):
    mixture = kind(new_mixture(factor))
    mine = x.chunk(dist.get_world_size())[dist.get_rank()]
    with trace() as counted:
        y, gradient = step(mixture, mine)
    average_gradients(mixture)
    experts = [p.grad for p in mixture.experts.parameters()]
    return y, gradient, mixture.gate.weight.grad, *experts, counted.log


@pytest.mark.parametrize("world_size", [1, 2, 4])
@pytest.mark.parametrize(
    "kind, factor", [(ExpertParallel, 1.0), (ExpertParallel, 0.5), (Dropless, NUMBER / 2)]
)
def test_outputs_and_gradients_are_those_of_one_process(kind, factor, world_size):
    x = torch.randn(4 * TOKENS, HIDDEN, generator=torch.Generator().manual_seed(1))
    whole = new_mixture(factor)
    expected = [torch.cat(parts) for parts in zip(*[step(whole, part) for part in x.chunk(world_size)])]
    results = launch(step_on_rank, kind, factor, x, world_size=world_size)
    for i, wanted in enumerate(expected):
        torch.testing.assert_close(torch.cat([each[i] for each in results]), wanted)
    for _, _, gate, up, down, log in results:
        torch.testing.assert_close(gate, whole.gate.weight.grad / world_size, rtol=1e-4, atol=1e-7)
        assert len(log) == (5 if kind is Dropless else 4)
        assert {call.kind for call in log} == {"all_to_all"}
        nbytes = 4 * HIDDEN * 2 * 4 * TOKENS // world_size
        if kind is ExpertParallel:
            assert {call.nbytes for call in log} == {nbytes * factor}
        else:
            assert log[0].nbytes == 8 * NUMBER and log[1].nbytes == nbytes
        assert up.shape[0] == down.shape[0] == NUMBER // world_size
    for i, name in ((3, "up"), (4, "down")):
        gradient = torch.cat([each[i] for each in results])
        torch.testing.assert_close(
            gradient, getattr(whole.experts, name).grad / world_size, rtol=1e-4, atol=1e-7
        )


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("capacity", [0, 2, 7, 100])
def test_places_are_those_of_the_arithmetic(k, capacity):
    routes = experts.route(50, 6, k, 1.0)
    place = places(torch.tensor(routes), 6)
    assert (place < capacity).tolist() == experts.dispatch(routes, 6, capacity).kept


def test_the_bias_changes_the_choice_and_not_the_weights():
    scores = torch.tensor([[0.5, 0.3, 0.2]])
    assert choose(scores)[1].tolist() == [[0, 1]]
    weights, chosen = choose(scores, bias=torch.tensor([0, 0, 1.0]))
    assert chosen.tolist() == [[2, 0]]
    torch.testing.assert_close(weights, torch.tensor([[2 / 7, 5 / 7]]))


def test_the_auxiliary_loss_is_1_if_all_are_alike_and_the_number_if_one_gets_all():
    alike = torch.eye(4)
    torch.testing.assert_close(balance_loss(alike, choose(alike)[1]), torch.tensor(1.0))
    one = torch.eye(4)[[0, 0, 0, 0]]
    torch.testing.assert_close(balance_loss(one, choose(one)[1]), torch.tensor(4.0))


def test_experts_are_refused_that_ranks_cannot_share_evenly():
    def refused():
        with pytest.raises(ValueError, match="3 ranks cannot share 8 experts evenly"):
            my_experts(new_mixture(1).experts)

    launch(refused, world_size=3)


def new_model():
    torch.manual_seed(0)
    model = GPT(layers=2)
    model.layers = torch.nn.ModuleList(MixtureLayer(layer, Mixture(64, 128, 8)) for layer in model.layers)
    return model


def losses_on_rank(tokens):
    model = new_model()
    for layer in model.layers:
        layer.mixture = ExpertParallel(layer.mixture)
    loss = loss_of(model, tokens.chunk(dist.get_world_size())[dist.get_rank()])
    with trace() as counted:
        loss.backward()
    average_gradients(model)
    return loss.item(), {name: p.grad for name, p in model.named_parameters()}, counted


def test_the_running_model_with_mixtures_learns_the_same_on_ranks():
    tokens, model = digits()[:8], new_model()
    losses = [loss_of(model, part) for part in tokens.chunk(4)]
    (sum(losses) / 4).backward()
    results = launch(losses_on_rank, tokens, world_size=4)
    assert [loss for loss, *_ in results] == pytest.approx([loss.item() for loss in losses], rel=1e-5)
    for name, p in model.named_parameters():
        parts = [gradients[name] for _, gradients, _ in results]
        mine = torch.cat(parts) if ".experts." in name else parts[0]
        torch.testing.assert_close(mine, p.grad, rtol=1e-3, atol=1e-6)
    capacity = experts.expert_capacity(2 * 64, 8, 2, 1.25)
    for *_, counted in results:
        assert counted.calls == {"all_to_all": 2 * 2}
        assert counted.sent == 4 * collectives.all_to_all_bytes(8 * capacity * 64 * 4, 4)
