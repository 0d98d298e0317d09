"""A model cut into stages has the loss and the gradients of the whole one, and sends what it should."""

import ast
import inspect

import pytest
import torch
import torch.distributed as dist
from torch import nn

from allranks import launch, schedules
from allranks.parallel import pipeline
from allranks.parallel.pipeline import Chunk, Stage, step, step_chunks
from allranks.trace import trace

BATCH, WIDTH = 12, 6


def layers(count=4):
    torch.manual_seed(0)
    return [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(count)]


def data():
    torch.manual_seed(1)
    return torch.randn(BATCH, WIDTH), torch.randn(BATCH, WIDTH)


def on_rank(schedule, rematerialise):
    size, rank = dist.get_world_size(), dist.get_rank()
    part = nn.Sequential(*layers()[4 * rank // size : 4 * (rank + 1) // size])
    x, target = (t.chunk(schedule.microbatches) for t in data())
    stage = Stage(part, nn.functional.mse_loss, x[0].shape, rematerialise=rematerialise)
    with trace() as counted:
        loss = step(stage, schedule.orders[rank], x, target)
    dist.barrier()
    return loss, [p.grad for p in part.parameters()], counted.sent


@pytest.mark.parametrize("rematerialise", [False, True])
@pytest.mark.parametrize("make", [schedules.gpipe, schedules.one_f_one_b])
@pytest.mark.parametrize("stages, microbatches", [(1, 3), (2, 4), (3, 2), (4, 6)])
def test_a_pipeline_equals_one_process(make, stages, microbatches, rematerialise):
    model = nn.Sequential(*layers())
    x, target = data()
    loss = nn.functional.mse_loss(model(x), target)
    loss.backward()
    results = launch(on_rank, make(stages, microbatches), rematerialise, world_size=stages)
    assert results[-1][0] == pytest.approx(loss.item(), rel=1e-5)
    gradients = [gradient for _, mine, _ in results for gradient in mine]
    torch.testing.assert_close(gradients, [p.grad for p in model.parameters()])
    boundaries = [(rank > 0) + (rank < stages - 1) for rank in range(stages)]
    assert [sent for *_, sent in results] == [n * BATCH * WIDTH * 4 for n in boundaries]


def chunks_on_rank(schedule):
    rank, count = dist.get_rank(), schedule.stages * schedule.chunks
    x, target = (t.chunk(schedule.microbatches) for t in data())
    chunks = {}
    for number in range(rank, count, schedule.stages):
        part = nn.Sequential(*layers(8)[8 * number // count : 8 * (number + 1) // count])
        chunks[number] = Chunk(number, count, part, nn.functional.mse_loss, x[0].shape)
    with trace() as counted:
        loss = step_chunks(chunks, schedule.orders[rank], x, target)
    dist.barrier()
    gradients = [[p.grad for p in chunk.module.parameters()] for chunk in chunks.values()]
    return loss, gradients, counted.sent, any(chunk.kept for chunk in chunks.values())


@pytest.mark.parametrize(
    "stages, microbatches, chunks", [(2, 2, 2), (2, 6, 4), (3, 6, 2), (4, 4, 2), (4, 12, 1)]
)
def test_interleaved_chunks_equal_one_process(stages, microbatches, chunks):
    model = nn.Sequential(*layers(8))
    x, target = data()
    loss = nn.functional.mse_loss(model(x), target)
    loss.backward()
    schedule = schedules.interleaved(stages, microbatches, chunks)
    results = launch(chunks_on_rank, schedule, world_size=stages, timeout=20)
    assert results[-1][0] == pytest.approx(loss.item(), rel=1e-5)
    assert not any(kept for *_, kept in results)
    virtual = range(stages * chunks)
    gradients = [gradient for n in virtual for gradient in results[n % stages][1][n // stages]]
    torch.testing.assert_close(gradients, [p.grad for p in model.parameters()])
    boundaries = [2 * chunks - (rank == 0) - (rank == stages - 1) for rank in range(stages)]
    assert [sent for *_, sent, _ in results] == [n * BATCH * WIDTH * 4 for n in boundaries]


@pytest.mark.parametrize("stages, chunks", [(2, 2), (3, 4), (8, 3)])
def test_interleaving_receives_in_the_order_of_the_sends_so_that_nccl_needs_no_tags(stages, chunks):
    schedule = schedules.interleaved(stages, 2 * stages, chunks)
    sent, received = {}, {}
    for rank, order in enumerate(schedule.orders):
        for kind, k, number in order:
            before, after = (number - 1, number + 1) if kind == "F" else (number + 1, number - 1)
            if 0 <= after < stages * chunks:
                sent.setdefault((rank, after % stages), []).append((kind, k, after))
            if 0 <= before < stages * chunks:
                received.setdefault((before % stages, rank), []).append((kind, k, number))
    assert sent == received


def test_the_pipeline_has_under_sixty_lines_of_code():
    tree = ast.parse(inspect.getsource(pipeline))
    definitions = [
        each
        for each in tree.body
        if isinstance(each, ast.FunctionDef | ast.ClassDef) and each.name not in ("Chunk", "step_chunks")
    ]
    documented = sum(ast.get_docstring(node) is not None for node in definitions)
    inside = [node for each in definitions for node in ast.walk(each)]
    assert documented == len(definitions)
    for node in inside:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node):
            node.body = node.body[1:]
    assert sum(len(ast.unparse(each).split("\n")) for each in definitions) < 60
