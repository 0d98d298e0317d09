"""On a mesh of data, pipeline and tensor parallelism the running model has the serial loss and norm."""

import math

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from allranks import launch, memory, topology
from allranks.lowering import lower
from allranks.model import GPT, digits, loss_of
from allranks.parallel.combine import Part, build, gradient_norm, groups_of
from allranks.parallel.tensor import cut_parameters
from allranks.schedules import one_f_one_b
from allranks.transformer import PRESETS

MICROBATCHES = 2


def new_model():
    torch.manual_seed(0)
    return GPT()


def two_groups(sizes):
    mesh = init_device_mesh("cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes))
    ranks = dist.get_process_group_ranks
    found = [(ranks(group), ranks(mesh.get_group(axis)), axis) for axis, group in groups_of(sizes).items()]
    dist.barrier()
    return found


@pytest.mark.parametrize("sizes", [{"dp": 2, "pp": 1, "tp": 2}, {"pp": 2, "tp": 3}, {"tp": 4}])
def test_the_groups_are_those_of_torch_s_mesh_and_of_the_topology(sizes):
    mesh = tuple(reversed(sizes.items()))
    for rank, found in enumerate(launch(two_groups, sizes, world_size=math.prod(sizes.values()))):
        for by_hand, by_torch, axis in found:
            assert rank in by_hand and by_hand == by_torch
            assert tuple(by_hand) in topology.groups(mesh, axis)


def one_step(sizes, tokens):
    groups = groups_of(sizes)
    pp, dp = groups["pp"], groups["dp"]
    d, program = dist.get_world_size(dp), lower(one_f_one_b(dist.get_world_size(pp), MICROBATCHES)).steps
    pipe, part = build(new_model(), groups, program, len(tokens), MICROBATCHES)
    mine = tokens.chunk(d)[dist.get_rank(dp)]
    loss = pipe(mine[:, :-1].chunk(MICROBATCHES), mine[:, 1:].chunk(MICROBATCHES)).item()
    for p in part.parameters():
        dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=dp)
    norm = gradient_norm(part, groups)
    dist.barrier()
    cut = sum(p.numel() for p in cut_parameters(part))
    return loss, norm.item(), sum(p.numel() for p in part.parameters()), cut, dist.get_rank(pp)


@pytest.mark.parametrize("sizes", [(1, 1, 1), (1, 2, 2), (2, 1, 2), (2, 2, 1), (1, 4, 1)])
def test_loss_and_norm_are_those_of_one_process(sizes):
    tokens, model = digits()[:8], new_model()
    serial = loss_of(model, tokens)
    serial.backward()
    whole = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()]).item()
    axes = dict(zip(("dp", "pp", "tp"), sizes, strict=True))
    results = launch(one_step, axes, tokens, world_size=math.prod(sizes), rules="nccl")
    d, stages, t = sizes
    assert sum(loss for loss, *_ in results) / d / t == pytest.approx(serial.item(), rel=1e-6)
    for _, norm, held, cut, place in results:
        assert norm == pytest.approx(whole, rel=1e-5)
        assert held == memory.rank_parameters(PRESETS["running"], t, stages, stage=place)[0]
        assert 0 < cut < held


def test_stages_that_would_differ_are_refused():
    with pytest.raises(ValueError, match="3 stages cannot share 4 layers evenly"):
        Part(GPT(), 0, 3)
