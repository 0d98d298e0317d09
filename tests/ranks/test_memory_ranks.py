"""What real ranks hold: weights, gradients, optimizer states, buckets, equal to the formulas to the byte."""

import warnings

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from allranks import launch, memory
from allranks.memory import RECIPES
from allranks.model import GPT, PIXELS, loss_of
from allranks.transformer import PRESETS, parameters

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of the TorchScript that comes with it
    from torch.distributed.optim import ZeroRedundancyOptimizer

Ψ = parameters(PRESETS["running"])
TENSORS = 69
pytestmark = pytest.mark.usefixtures("nothing_is_left_behind")


def tokens():
    return torch.randint(28, (4, PIXELS + 1))


def nbytes(tensors):
    """Bytes of the tensors on this rank; of a sharded one, its shard."""
    local = (tensor.to_local() if hasattr(tensor, "to_local") else tensor for tensor in tensors)
    return sum(tensor.numel() * tensor.element_size() for tensor in local)


def states(model, optimizer):
    """Bytes of weights, gradients and optimizer after one step; `step` itself is a number a tensor."""
    loss_of(model, tokens()).backward()
    optimizer.step()
    inner = getattr(optimizer, "optim", optimizer)
    moments = [t for state in inner.state.values() for name, t in state.items() if name != "step"]
    counters = [t for state in inner.state.values() for name, t in state.items() if name == "step"]
    own, gradients = list(model.parameters()), [p.grad for p in model.parameters()]
    return (nbytes(own), nbytes(gradients), nbytes(moments)), nbytes(counters)


def replicated():
    model = DistributedDataParallel(GPT())
    return states(model, torch.optim.AdamW(model.parameters()))


def optimizer_sharded():
    model = DistributedDataParallel(GPT())
    return states(model, ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW))


def fully_sharded():
    model = GPT()
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    return states(model, torch.optim.AdamW(model.parameters()))


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_with_ddp_every_rank_holds_what_stage_0_says(world_size):
    for held, counters in launch(replicated, world_size=world_size):
        assert held == memory.zero_states(Ψ, world_size, 0, "fp32")
        assert counters == 4 * TENSORS


@pytest.mark.parametrize("world_size", [2, 4])
def test_a_sharded_optimizer_holds_what_stage_1_says(world_size):
    on_ranks = launch(optimizer_sharded, world_size=world_size)
    expected = memory.zero_states(Ψ, world_size, 1, "fp32")
    moments = [held[2] for held, _ in on_ranks]
    assert all(held[:2] == expected[:2] for held, _ in on_ranks)
    assert sum(moments) == world_size * expected.optimizer
    # It gives whole tensors to ranks, so the shares are equal up to the largest tensor.
    assert max(moments) - min(moments) <= 8 * 64 * 256


@pytest.mark.parametrize("world_size", [2, 4])
def test_fully_sharded_each_rank_holds_what_stage_3_says(world_size):
    for held, _ in launch(fully_sharded, world_size=world_size):
        assert held == memory.zero_states(Ψ, world_size, 3, "fp32")


def test_where_the_rows_do_not_divide_the_last_rank_holds_less():
    def shards():
        model = GPT()
        fully_shard(model)
        return [(tuple(p.shape), p.to_local().numel()) for p in model.parameters()]

    on_ranks = launch(shards, world_size=3)
    for rank, held in enumerate(on_ranks):
        for (rows, *width), elements in held:
            row = 1 if not width else width[0]
            assert elements == memory.shard_elements(rows, row, 3, rank)


@pytest.mark.parametrize("limit", [None, 0.1])
def test_ddp_s_buckets_are_those_of_the_rule(limit):
    def buckets():
        model = DistributedDataParallel(GPT(), bucket_cap_mb=limit)
        for _ in range(3):
            loss_of(model, tokens()).backward()
        data = model._get_ddp_logging_data()
        alone, sizes = GPT(), []
        for p in alone.parameters():
            p.register_post_accumulate_grad_hook(lambda p: sizes.append(4 * p.numel()))
        loss_of(alone, tokens()).backward()  # the order in which gradients are ready
        return data["rebuilt_bucket_sizes"], sizes

    shown, sizes = launch(buckets, world_size=2)[0]
    first = memory.buffers.FIRST_BUCKET if limit is None else int(limit * 2**20)
    cap = memory.buffers.BUCKET if limit is None else first
    expected = [sum(sizes[i] for i in bucket) for bucket in memory.ddp_buckets(sizes, first, cap)]
    assert [int(size) for size in shown.split(",")] == expected


def test_gradients_that_are_views_of_buckets_save_as_much_as_the_gradients():
    def held(as_view):
        model = DistributedDataParallel(GPT(), gradient_as_bucket_view=as_view)
        for _ in range(3):
            loss_of(model, tokens()).backward()
        return len({p.grad.untyped_storage().data_ptr() for p in model.parameters()})

    assert launch(held, True, world_size=2) == [1, 1]
    assert launch(held, False, world_size=2) == [TENSORS, TENSORS]
    assert memory.ddp_bucket_bytes(Ψ, "fp32", gradient_as_bucket_view=True) == 0
    assert memory.ddp_bucket_bytes(Ψ, "fp32") == RECIPES["fp32"].gradients * Ψ


def tensor_parallel():
    """Parameters on a rank, cut by torch as Megatron cuts them, and bytes that a layer keeps for backward."""
    world_size = dist.get_world_size()
    mesh, model = init_device_mesh("cpu", (world_size,)), GPT()
    columns, rows = ColwiseParallel(), RowwiseParallel()
    cut = dict.fromkeys(("query", "key", "value", "up"), columns) | dict.fromkeys(("out", "down"), rows)
    for layer in model.layers:
        layer.heads //= world_size
        parallelize_module(layer, mesh, cut)
    words = RowwiseParallel(input_layouts=Replicate()), ColwiseParallel(output_layouts=Replicate())
    parallelize_module(model, mesh, dict(zip(("token", "head"), words, strict=True)))
    own = [p.to_local() if hasattr(p, "to_local") else p for p in model.parameters()]
    seen, kept = {p.untyped_storage().data_ptr() for p in own}, []

    def keep(tensor):
        storage = (tensor.to_local() if hasattr(tensor, "to_local") else tensor).untyped_storage()
        if storage.data_ptr() not in seen:
            seen.add(storage.data_ptr())
            kept.append(storage.nbytes())
        return tensor

    x = torch.randn(2, PIXELS, 64, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = model.layers[0](x).sum()
    loss.backward()
    return sum(p.numel() for p in own), sum(kept)


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_tensor_parallel_ranks_hold_and_keep_what_is_predicted(world_size):
    model = PRESETS["running"]
    others, experts = memory.rank_parameters(model, tensor_parallel=world_size)
    how = {"element": 4, "dropout": False, "fused": True, "small": True}
    kept = memory.layer_activation_bytes(model, 2, world_size, **how)
    assert launch(tensor_parallel, world_size=world_size) == [(others, kept)] * world_size
    assert experts == 0


def test_full_recomputation_keeps_the_input_of_each_layer():
    def inputs():
        model, sizes = GPT(), []
        x = torch.randn(2, PIXELS, 64, requires_grad=True)
        with torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(nbytes([t])) or t, lambda t: t):
            for layer in model.layers:
                x = checkpoint(layer, x, use_reentrant=False)
        return sizes

    model = PRESETS["running"]
    a_layer = memory.layer_activation_bytes(model, 2, recomputation="full", element=4, dropout=False)
    assert launch(inputs, world_size=1) == [[a_layer] * model.layers]
