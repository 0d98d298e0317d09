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
    through_buffers,
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


def test_all_that_a_mixture_spread_over_ranks_holds_moves_to_a_device():
    def moved():
        held = ExpertParallel(new_mixture(1.0)).to("meta")
        return all(t.is_meta for t in [held.bias, *held.parameters()])

    assert launch(moved, world_size=2) == [True, True]


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


def random_routes(seed, tokens=TOKENS, k=2):
    """A router that nobody trained: some experts far more popular than others, each choice once a token."""
    generator = torch.Generator().manual_seed(seed)
    popular = torch.randn(NUMBER, generator=generator) * (seed % 4)
    return (torch.randn(tokens, NUMBER, generator=generator) + popular).topk(k).indices


@pytest.mark.parametrize("capacity", [1, 3, 6, 2 * TOKENS])
def test_what_comes_back_from_buffers_is_the_definition_for_any_router(capacity):
    mlps = new_mixture(1).experts
    for seed in range(20):
        chosen = random_routes(seed, k=1 + seed % 3)
        x = torch.randn(TOKENS, HIDDEN, requires_grad=True)
        kept = experts.dispatch(chosen.tolist(), NUMBER, capacity).kept
        expected = torch.zeros(*chosen.shape, HIDDEN)
        for token, choice in torch.tensor(kept).nonzero().tolist():
            e = chosen[token, choice]
            visit = torch.nn.functional.gelu(x[token] @ mlps.up[e]) @ mlps.down[e]
            expected[token, choice] = visit
        got = through_buffers(x, chosen, capacity, NUMBER, mlps)
        torch.testing.assert_close(got, expected)
        weights = torch.randn_like(got)
        parts = [x, *mlps.parameters()]
        wanted = torch.autograd.grad((expected * weights).sum(), parts)
        for mine, its in zip(torch.autograd.grad((got * weights).sum(), parts), wanted):
            torch.testing.assert_close(mine, its, rtol=1e-4, atol=1e-5)


def both_ways(seeds):
    """Visits by fixed buffers that drop nothing and without padding, and what would stop the host in each."""
    found = []
    for seed in seeds:
        chosen = random_routes(seed * dist.get_world_size() + dist.get_rank())
        x = torch.randn(TOKENS, HIDDEN)
        for kind in (ExpertParallel, Dropless):
            mixture, mine = kind(new_mixture(NUMBER / 2)), x.clone().requires_grad_()
            y = mixture.visit(mine, chosen)
            y.square().sum().backward()
            found.append([y.detach(), mine.grad, *(p.grad for p in mixture.experts.parameters())])
    return found


@pytest.mark.parametrize("rules", [None, "nccl"])
def test_fixed_buffers_and_no_buffers_agree_for_any_router_that_drops_nothing(rules):
    for found in launch(both_ways, range(10), world_size=4, rules=rules):
        for fixed, exact in zip(found[::2], found[1::2]):
            for one, other in zip(fixed, exact, strict=True):
                torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def host_syncs_of_a_step(kind, factor):
    mixture = kind(new_mixture(factor))
    with trace() as counted:
        step(mixture, torch.randn(TOKENS, HIDDEN))
        average_gradients(mixture)
    return counted.host_syncs


@pytest.mark.parametrize("factor", [0.5, 1.25, NUMBER / 2])
def test_a_step_with_a_fixed_capacity_never_waits_for_the_host(factor):
    assert launch(host_syncs_of_a_step, ExpertParallel, factor, world_size=2) == [{}, {}]


def test_one_without_a_capacity_does():
    for counted in launch(host_syncs_of_a_step, Dropless, 1, world_size=2):
        assert counted["tolist"] == 3


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
