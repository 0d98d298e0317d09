"""The running model cut over ranks is the serial one, in loss, gradients, what it holds and what it sends."""

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F

from allranks import collectives, launch
from allranks.memory import rank_parameters
from allranks.model import GPT, Layer, digits, loss_of
from allranks.parallel.tensor import (
    ParallelLayer,
    cut,
    parallel_cross_entropy,
    parallel_loss,
    parallelize,
    wrong_gradients,
)
from allranks.trace import trace
from allranks.transformer import PRESETS


def new_model():
    torch.manual_seed(0)
    return GPT()


def gradients_are(expected, tokens, ways):
    groups = [dist.new_group(range(first, first + ways)) for first in range(0, dist.get_world_size(), ways)]
    group = groups[dist.get_rank() // ways]
    model = parallelize(new_model(), group)
    with trace() as counted:
        loss = parallel_loss(model, tokens, group)
        loss.backward()
    assert not wrong_gradients(model, expected, group)
    dist.barrier()
    return loss.item(), counted.log, sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("world_size, ways", [(1, 1), (2, 2), (4, 4), (4, 2)])
def test_each_rank_has_its_part_of_the_serial_gradients(world_size, ways):
    tokens, model = digits()[:4], new_model()
    serial = loss_of(model, tokens)
    serial.backward()
    expected = {name: p.grad for name, p in model.named_parameters()}
    for loss, calls, held in launch(gradients_are, expected, tokens, ways, world_size=world_size):
        assert loss == pytest.approx(serial.item(), rel=1e-6)
        assert held == rank_parameters(PRESETS["running"], ways)[0]
        assert {call.kind for call in calls} == {"all_reduce"}
        hidden = [call.nbytes for call in calls if call.nbytes == 4 * 4 * 64 * 64]
        assert len(hidden) == 4 * len(model.layers) + 2  # and the embedding and the head
        assert len(calls) == len(hidden) + 3  # and the loss
        a_layer = 4 * collectives.ring_all_reduce_bytes(hidden[0], ways)
        assert a_layer == 4 * 8 * 4 * 64 * 64 * (ways - 1) / ways


def test_a_slice_is_refused_that_ranks_cannot_share_evenly():
    def refused():
        with pytest.raises(ValueError, match="3 ranks cannot share 64 evenly"):
            cut(torch.zeros(64, 2), 0)

    launch(refused, world_size=3)


@pytest.mark.parametrize("heads", [2, 4])
def test_a_layer_is_refused_whose_heads_ranks_cannot_share_evenly(heads):
    def refused():
        with pytest.raises(ValueError, match=f"3 ranks cannot share {heads} heads evenly"):
            ParallelLayer(Layer(48, heads))

    launch(refused, world_size=3)


def test_the_loss_is_in_fp32_whatever_the_logits_are():
    def on_rank():
        logits = 8 * torch.randn(64, 2000, generator=torch.Generator().manual_seed(0)).bfloat16()
        targets = torch.arange(64)
        mine = logits.chunk(dist.get_world_size(), 1)[dist.get_rank()].contiguous().requires_grad_()
        loss = parallel_cross_entropy(mine, targets)
        loss.backward()
        exact = F.cross_entropy(logits.float(), targets)
        return loss.dtype, mine.grad.dtype, abs(loss - exact).item()

    for dtype, of_gradient, error in launch(on_rank, world_size=2):
        assert (dtype, of_gradient) == (torch.float32, torch.bfloat16)
        assert error < 1e-5


def test_a_gradient_of_another_slice_is_named():
    def on_rank():
        torch.manual_seed(0)
        module, expected = torch.nn.Linear(4, 6), {"weight": torch.randn(6, 4), "bias": torch.randn(6)}
        module.weight = cut(module.weight, 0)
        for each in module.parameters():
            each.grad = torch.zeros_like(each)
        module.weight.grad.copy_(expected["weight"].chunk(2)[0])
        module.bias.grad.copy_(expected["bias"])
        return wrong_gradients(module, expected)

    assert launch(on_rank, world_size=2) == [[], ["weight"]]
