"""Communication beside products gives what it gives without, starts before them, and is waited for behind."""

import pytest
import torch
import torch.distributed as dist
from torch.nn.functional import linear as whole_linear

from allranks import launch
from allranks.parallel import overlap, tensor
from allranks.trace import trace


def layer():
    torch.manual_seed(0)
    return torch.randn(2, 4, 8, requires_grad=True), torch.randn(16, 8), torch.randn(2, 4, 16)


def beside():
    rank, ranks = dist.get_rank(), dist.get_world_size()
    x, weight, dy = layer()
    part = weight.chunk(ranks)[rank].clone().requires_grad_()
    with trace() as counted:
        y = overlap.linear(x, part, start=overlap.noted(overlap.start_sum, counted.events))
        y.backward(dy.chunk(ranks, -1)[rank])
    return y.detach(), x.grad, part.grad, counted.events, counted.sent


@pytest.mark.parametrize("rules", [None, "nccl"])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_the_input_gradient_is_summed_beside_the_weight_gradient(rules, ranks):
    x, weight, dy = layer()
    weight.requires_grad_()
    y = whole_linear(x, weight)
    y.backward(dy)
    found = launch(beside, world_size=ranks, backend="gloo", rules=rules)
    for rank, (part, of_x, of_weight, events, sent) in enumerate(found):
        torch.testing.assert_close(part, y.detach().chunk(ranks, -1)[rank])
        torch.testing.assert_close(of_x, x.grad)
        torch.testing.assert_close(of_weight, weight.grad.chunk(ranks)[rank])
        assert events == ["product", "product", "all_reduce", "product", "wait"]
        assert sent == pytest.approx(2 * (ranks - 1) / ranks * x.numel() * 4)


def chunked(tokens):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    x, up, down = torch.randn(tokens, 8), torch.randn(16, 8), torch.randn(8, 16)
    up, down = up.chunk(ranks)[rank], down.chunk(ranks, 1)[rank].contiguous()
    x = x.chunk(ranks)[rank].clone()
    events, results = [], []
    for function, weight in ((overlap.gather_product, up), (overlap.product_scatter, down)):
        with trace() as counted:
            x = function(x, weight, start=overlap.noted(overlap.start_shift, counted.events))
        results.append(x)
        events.append(counted.events)
    return results, events


@pytest.mark.parametrize("rules", [None, "nccl"])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_pieces_of_a_product_travel_beside_the_others(rules, ranks):
    torch.manual_seed(0)
    x, up, down = torch.randn(8, 8), torch.randn(16, 8), torch.randn(8, 16)
    hidden = x @ up.T
    found = launch(chunked, 8, world_size=ranks, backend="gloo", rules=rules)
    for rank, (results, events) in enumerate(found):
        torch.testing.assert_close(results[0], hidden.chunk(ranks, 1)[rank])
        torch.testing.assert_close(results[1], (hidden @ down.T).chunk(ranks)[rank])
        gather, scatter = (
            [event if event in ("product", "wait") else "start" for event in each if event != "recv"]
            for each in events
        )
        assert gather == ["start", "product", "wait"] * (ranks - 1) + ["product"]
        assert scatter == ["product"] + ["start", "product", "wait"] * (ranks - 1)


def test_the_serial_layer_sums_before_its_weight_gradient():
    def on_rank():
        x, weight, dy = layer()
        part = weight.chunk(2)[dist.get_rank()].clone().requires_grad_()
        with trace() as counted:
            whole_linear(tensor.f(x), part).backward(dy.chunk(2, -1)[dist.get_rank()])
        return counted.events[-1]

    assert launch(on_rank, world_size=2, backend="gloo") == ["all_reduce"] * 2


def test_tokens_that_ranks_cannot_share_are_refused():
    def on_rank():
        with pytest.raises(ValueError, match="2 ranks cannot share 3 tokens evenly"):
            overlap.product_scatter(torch.ones(3, 2), torch.ones(4, 2))

    launch(on_rank, world_size=2, backend="gloo")
