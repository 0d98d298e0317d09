"""A model cut into stages has the loss and the gradients of the whole one, and sends what it should."""

import ast
import inspect
import weakref
from functools import partial

import pytest
import torch
import torch.distributed as dist
from torch import nn

from allranks import launch, lowering, schedules
from allranks.parallel import pipeline
from allranks.parallel.pipeline import Mail, Stage, step
from allranks.trace import trace

BATCH, WIDTH = 12, 6
SCHEDULES = [
    (schedules.gpipe, (1, 3)),
    (schedules.gpipe, (3, 2)),
    (schedules.gpipe, (4, 6)),
    (schedules.one_f_one_b, (2, 4)),
    (schedules.one_f_one_b, (3, 2)),
    (schedules.one_f_one_b, (4, 6)),
    (schedules.interleaved, (2, 2, 2)),
    (schedules.interleaved, (2, 6, 4)),
    (schedules.interleaved, (3, 6, 2)),
    (schedules.interleaved, (4, 4, 2)),
    (schedules.interleaved, (3, 4, 2)),
    (schedules.interleaved, (4, 2, 2)),
    (schedules.looped_bfs, (3, 4, 2)),
    (schedules.pipedream, (3, 4)),
]


def layers(count=8, dtype=torch.float32):
    torch.manual_seed(0)
    return [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()).to(dtype) for _ in range(count)]


def data(dtype=torch.float32):
    torch.manual_seed(1)
    return torch.randn(BATCH, WIDTH, dtype=dtype), torch.randn(BATCH, WIDTH, dtype=dtype)


def share_of_loss(y, target, m):
    return nn.functional.mse_loss(y, target) / m


def stages_on_rank(schedule, rank, dtype=torch.float32, **more):
    count, every = schedule.stages * schedule.chunks, layers(dtype=dtype)
    stages = {}
    for number in range(rank, count, schedule.stages):
        part = nn.Sequential(*every[8 * number // count : 8 * (number + 1) // count])
        loss_of = partial(share_of_loss, m=schedule.microbatches) if number == count - 1 else None
        stages[number] = Stage(part, number, loss_of, **more)
    return stages


def on_rank(program, rematerialise=False, dtype=torch.float32):
    schedule, rank = program.schedule, dist.get_rank()
    x, target = (t.chunk(schedule.microbatches) for t in data(dtype))
    stages = stages_on_rank(schedule, rank, dtype, rematerialise=rematerialise)
    mail = Mail(x[0].clone())
    with trace() as counted:
        loss = step(stages, mail, program.steps[rank], x, target)
    assert not mail.results and not mail.pending and not any(stage.kept for stage in stages.values())
    gradients = {n: [p.grad for p in stage.module.parameters()] for n, stage in stages.items()}
    return loss.item(), gradients, counted.sent, sum(counted.host_syncs.values())


def gradients_of(results):
    found = {number: gradients for _, mine, *_ in results for number, gradients in mine.items()}
    return [gradient for number in sorted(found) for gradient in found[number]]


@pytest.mark.parametrize("rematerialise", [False, True])
@pytest.mark.parametrize("make, sizes", SCHEDULES, ids=lambda given: getattr(given, "__name__", str(given)))
def test_a_pipeline_equals_one_process_under_nccl_s_rules(make, sizes, rematerialise):
    schedule = make(*sizes)
    model = nn.Sequential(*layers())
    x, target = data()
    loss = nn.functional.mse_loss(model(x), target)
    loss.backward()
    results = launch(
        on_rank, lowering.lower(schedule), rematerialise, world_size=sizes[0], rules="nccl", timeout=30
    )
    assert results[-1][0] == pytest.approx(loss.item(), rel=1e-5)
    torch.testing.assert_close(gradients_of(results), [p.grad for p in model.parameters()])
    ends = [2 * schedule.chunks - (rank == 0) - (rank == sizes[0] - 1) for rank in range(sizes[0])]
    assert [sent for _, _, sent, _ in results] == [n * BATCH * WIDTH * 4 for n in ends]
    assert not any(stops for *_, stops in results), "no operation of a step stops the host"


def test_activations_travel_in_their_own_dtype():
    program = lowering.lower(schedules.one_f_one_b(2, 4))
    results = launch(on_rank, program, False, torch.bfloat16, world_size=2)
    assert [sent for _, _, sent, _ in results] == [BATCH * WIDTH * 2] * 2
    assert all(gradient.dtype == torch.bfloat16 for gradient in gradients_of(results))


def in_a_group(program, groups):
    """Two pipelines side by side, each with its own batch."""
    group = next(group for group in [dist.new_group(ranks) for ranks in groups] if dist.get_rank(group) >= 0)
    x, target = (t.chunk(2) for t in data())
    place = dist.get_rank(group)
    stages = stages_on_rank(program.schedule, place)
    return step(stages, Mail(x[0], group), program.steps[place], x, target).item()


def test_a_pipeline_stays_in_its_group():
    program = lowering.lower(schedules.one_f_one_b(2, 2))
    losses = launch(in_a_group, program, [[0, 2], [1, 3]], world_size=4, rules="nccl")
    x, target = data()
    serial = nn.functional.mse_loss(nn.Sequential(*layers())(x), target).item()
    assert losses == [0, 0, pytest.approx(serial, rel=1e-5), pytest.approx(serial, rel=1e-5)]


def outputs_alive(program):
    """How many outputs of rank 0's stage still have their numbers after its first backward."""
    rank, alive = dist.get_rank(), []
    x, target = (t.chunk(4) for t in data())
    stages, mail = stages_on_rank(program.schedule, rank), Mail(x[0])
    if rank == 0:
        stages[0].module = nn.Sequential(
            stages[0].module, nn.Identity(), Doubled()
        )  # keeps nothing for backward
    outputs = []

    def noting(*args):
        before = len(mail.results)
        pipeline.forward(*args)
        outputs.extend(weakref.ref(t.untyped_storage()) for t in list(mail.results.values())[before:])
        return 0.0

    def looking(*args):
        pipeline.backward(*args)
        alive.append(sum(one() is not None for one in outputs))
        return 0.0

    step(stages, mail, program.steps[rank], x, target, {"F": noting, "BW": looking})
    return alive[0]


class Doubled(nn.Module):
    def forward(self, x):
        return x + x


def test_an_output_is_given_back_once_it_has_been_sent():
    assert launch(outputs_alive, lowering.lower(schedules.gpipe(2, 4)), world_size=2)[0] == 0


def test_the_pipeline_has_under_seventy_lines_of_code():
    tree = ast.parse(inspect.getsource(pipeline))
    definitions = [each for each in tree.body if isinstance(each, ast.FunctionDef | ast.ClassDef)]
    documented = sum(ast.get_docstring(node) is not None for node in definitions)
    inside = [node for each in definitions for node in ast.walk(each)]
    assert documented == len(definitions)
    for node in inside:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node):
            node.body = node.body[1:]
    assert sum(len(ast.unparse(each).split("\n")) for each in definitions) < 70
