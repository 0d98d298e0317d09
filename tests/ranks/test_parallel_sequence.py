"""The running model with its sequence split is the serial one, and sends what tensor parallelism sends."""

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode

from allranks import collectives, launch
from allranks.memory import rank_parameters
from allranks.model import GPT, digits, loss_of
from allranks.parallel.sequence import GatherAgain, gather, split, sum_gradients, whole_parameters
from allranks.parallel.tensor import parallel_loss, wrong_gradients
from allranks.trace import trace
from allranks.transformer import PRESETS


def new_model():
    torch.manual_seed(0)
    return GPT()


def with_another_norm():
    model = new_model()
    model.norm = nn.RMSNorm(64)
    return model


def gradients_are(expected, tokens, ways, make=new_model):
    groups = [dist.new_group(range(first, first + ways)) for first in range(0, dist.get_world_size(), ways)]
    group = groups[dist.get_rank() // ways]
    model = split(make(), group)
    with trace() as counted:
        loss = parallel_loss(model, tokens, group)
        loss.backward()
    sum_gradients(model, group)
    assert not wrong_gradients(model, expected, group)
    whole = sum(p.numel() for p in whole_parameters(model))
    dist.barrier()
    return loss.item(), counted.log, sum(p.numel() for p in model.parameters()), whole


@pytest.mark.parametrize("world_size, ways", [(1, 1), (2, 2), (4, 4), (4, 2)])
def test_each_rank_has_its_part_of_the_serial_gradients(world_size, ways):
    tokens, model = digits()[:4], new_model()
    serial = loss_of(model, tokens)
    serial.backward()
    expected = {name: p.grad for name, p in model.named_parameters()}
    hidden = 4 * 4 * 64 * 64
    for loss, calls, held, whole in launch(gradients_are, expected, tokens, ways, world_size=world_size):
        assert loss == pytest.approx(serial.item(), rel=1e-6)
        assert held == rank_parameters(PRESETS["running"], ways)[0]
        assert whole == 4 * (4 * 64 + 2 * 64) + 2 * 64 + 64 * 64
        for kind in ("all_gather", "reduce_scatter"):
            assert [call.nbytes for call in calls if call.kind == kind] == [hidden] * (4 * 4 + 2)
        assert len([call for call in calls if call.kind == "all_reduce"]) == 3  # of the loss
        both = collectives.ring_all_gather_bytes(hidden, ways)
        both += collectives.ring_reduce_scatter_bytes(hidden, ways)
        assert both == collectives.ring_all_reduce_bytes(hidden, ways)


def test_gradients_are_summed_of_a_module_that_the_running_model_has_not():
    tokens, model = digits()[:4], with_another_norm()
    loss_of(model, tokens).backward()
    expected = {name: p.grad for name, p in model.named_parameters()}
    launch(gradients_are, expected, tokens, 2, with_another_norm, world_size=2)


def test_tokens_are_refused_that_ranks_cannot_share_evenly():
    def refused():
        with pytest.raises(ValueError, match="2 ranks cannot share 63 tokens evenly"):
            parallel_loss(split(new_model()), digits()[:2, :64])

    launch(refused, world_size=2)


def test_what_is_gathered_again_is_not_kept_and_its_gradients_are_the_same():
    def on_rank():
        torch.manual_seed(dist.get_rank())
        x, *weights = (torch.randn(*shape, requires_grad=True) for shape in ((2, 4, 8), (6, 8), (10, 8)))
        whole = gather(x)
        kept, again = [], []
        with saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
            expected = [F.linear(whole, weight) for weight in weights]
        with saved_tensors_hooks(lambda t: again.append(t.numel()) or t, lambda t: t):
            outputs = GatherAgain.apply(x, None, *weights)
        for output, its in zip(outputs, expected, strict=True):
            torch.testing.assert_close(output, its)
        wanted = torch.autograd.grad(sum(o.pow(2).sum() for o in expected), (x, *weights))
        with trace() as counted:
            gradients = torch.autograd.grad(sum(o.pow(2).sum() for o in outputs), (x, *weights))
        torch.testing.assert_close(gradients, wanted)
        dist.barrier()
        return whole.numel() in kept, whole.numel() in again, counted.calls

    calls = {"all_gather": 1, "reduce_scatter": 1}
    assert launch(on_rank, world_size=2) == [(True, False, calls)] * 2


class Order(TorchDispatchMode):
    """The names of operators, in the order of their calls."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        self.names.append(operator.overloadpacket.__name__)
        return operator(*args, **(kwargs or {}))


def test_products_stand_between_the_start_of_a_collective_and_its_end():
    def on_rank():
        x, weight = torch.randn(2, 4, 8, requires_grad=True), torch.randn(6, 8, requires_grad=True)
        (y,) = GatherAgain.apply(x, None, weight)
        with Order() as order:
            y.sum().backward()
        return [
            name for name in order.names if name in ("mm", "bmm", "_allgather_base_", "_reduce_scatter_base_")
        ]

    for names in launch(on_rank, world_size=2, rules="nccl"):
        assert names[0] == "_allgather_base_" and names[-1] == "mm"
        assert names.index("_reduce_scatter_base_") == len(names) - 2 > 1
