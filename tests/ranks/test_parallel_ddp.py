"""The DDP of the chapter is torch's: the same buckets and the same gradients, to the last bit."""

import ast
import inspect

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from allranks import launch, memory
from allranks.model import GPT, digits, loss_of
from allranks.parallel import ddp
from allranks.parallel.ddp import DDP, packed
from allranks.trace import trace


def new_model():
    torch.manual_seed(0)
    return GPT(layers=2, hidden=16, heads=2)


def tied(model):
    model.head.weight = model.token.weight
    return model


def steps(batches, kind, cap, change=lambda model: model):
    model = change(new_model())
    if kind == "torch":
        call = DistributedDataParallel(model, bucket_cap_mb=cap / 2**20)
    else:
        call, _ = model, DDP(model, cap, cap)
    gradients, messages = [], []
    for batch in batches:
        model.zero_grad()
        with trace() as counted:
            loss_of(call, batch.chunk(dist.get_world_size())[dist.get_rank()]).backward()
        gradients += [p.grad.flatten() for p in model.parameters()]
        messages.append([c.nbytes for c in counted.log if c.kind == "all_reduce"])
    dist.barrier()
    return torch.cat(gradients), messages


@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize("cap", [1, 8_000, 2**20])
def test_gradients_and_buckets_are_those_of_torch(world_size, cap):
    batches = digits()[:36].split(12)
    ours = launch(steps, batches, "ours", cap, world_size=world_size)
    theirs = launch(steps, batches, "torch", cap, world_size=world_size)
    for (mine, sent), (its, its_sent) in zip(ours, theirs, strict=True):
        assert torch.equal(mine, its)
        assert sent == its_sent


def test_tied_weights_are_sent_once_and_last():
    batches = digits()[:24].split(12)
    ours = launch(steps, batches, "ours", 1, tied, world_size=2)
    theirs = launch(steps, batches, "torch", 1, tied, world_size=2)
    weight = new_model().token.weight.nbytes
    for (mine, sent), (its, its_sent) in zip(ours, theirs, strict=True):
        assert torch.equal(mine, its)
        assert sent == its_sent
        assert sent[1][-1] == weight and sent[1].count(weight) == 1


def test_it_has_as_many_lines_as_the_chapter_says():
    tree = ast.parse(inspect.getsource(ddp))
    taught = [node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    for node in taught:
        del node.body[0]  # its docstring
    lines = "\n".join(map(ast.unparse, taught)).splitlines()
    assert sum(bool(line) for line in lines) == 59


@pytest.mark.parametrize("first, cap", [(1, 1), (100, 5_000), (5_000, 100), (2**20, 25 * 2**20)])
def test_parameters_are_packed_as_the_formula_says(first, cap):
    parameters = list(new_model().parameters())
    by_formula = memory.ddp_buckets([p.nbytes for p in parameters], first, cap)
    lists = packed(parameters, first, cap)
    assert [[p.nbytes for p in each] for each in lists] == [
        [parameters[i].nbytes for i in bucket] for bucket in by_formula
    ]


def accumulated(batch, quiet):
    model = new_model()
    reducer = DDP(model, 4_000, 4_000)
    *others, last = batch.chunk(dist.get_world_size())[dist.get_rank()].chunk(3)
    with trace() as counted:
        reducer.sync = not quiet
        for tokens in others:
            (loss_of(model, tokens) / 3).backward()
        reducer.sync = True
        (loss_of(model, last) / 3).backward()
    dist.barrier()
    return torch.cat([p.grad.flatten() for p in model.parameters()]), counted.bytes["all_reduce"]


def test_gradients_that_are_not_sent_add_up():
    batch = digits()[:12]
    model = new_model()
    loss_of(model, batch).backward()
    expected = torch.cat([p.grad.flatten() for p in model.parameters()])
    for quiet, times in ((False, 3), (True, 1)):
        for gradient, sent in launch(accumulated, batch, quiet, world_size=2):
            torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-6)
            assert sent == times * expected.nbytes


def from_other_weights():
    torch.manual_seed(dist.get_rank())
    model = GPT(layers=1, hidden=16, heads=2)
    model.position.weight.requires_grad_(False)
    reducer = DDP(model)
    dist.barrier()
    return [p.detach() for p in model.parameters()], len(reducer.bucket_of)


def test_all_ranks_start_from_rank_0_and_what_is_frozen_is_in_no_bucket():
    (first, count), *others = launch(from_other_weights, world_size=2)
    assert count == len(first) - 1
    for weights, _ in others:
        assert all(map(torch.equal, weights, first))
