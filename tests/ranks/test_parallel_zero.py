"""ZeRO in every stage trains the serial model, holds what the formulas say and sends what they say."""

import pytest
import torch
import torch.distributed as dist

from allranks import launch, memory
from allranks.model import GPT, digits, draw, loss_of, train
from allranks.parallel import zero
from allranks.trace import trace

STAGES = (zero.Zero0, zero.Zero1, zero.Zero2, zero.Zero3)
LR = 3e-3


def new_model():
    torch.manual_seed(0)
    return GPT(layers=2, hidden=16, heads=2)


def sharded(stage):
    model = new_model()
    units = zero.shard(stage, [*model.layers, model])
    return model, units, torch.optim.AdamW([unit.mine for unit in units], lr=LR)


def train_on_ranks(stage, batches, microbatches=1):
    model, units, optimizer = sharded(stage)
    losses = []
    for batch in batches:
        mine = batch.chunk(dist.get_world_size())[dist.get_rank()]
        total = torch.zeros(())
        for tokens in mine.chunk(microbatches):
            loss = loss_of(model, tokens) / microbatches
            loss.backward()
            total += loss.detach()
        zero.step(optimizer, units)
        dist.all_reduce(total, op=dist.ReduceOp.AVG)
        losses.append(total.item())
    return losses


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("world_size, microbatches", [(1, 1), (2, 3), (3, 2), (4, 1)])
def test_every_stage_takes_the_steps_of_one_process(stage, world_size, microbatches):
    batches = digits()[:72].split(24)
    serial = train(new_model(), batches, lr=LR)
    for losses in launch(train_on_ranks, stage, batches, microbatches, world_size=world_size):
        torch.testing.assert_close(losses, serial, rtol=1e-5, atol=0)


def count(stage, tokens, microbatches):
    model, units, optimizer = sharded(stage)
    with trace() as counted:
        for _ in range(microbatches):
            loss_of(model, tokens).backward()
        zero.step(optimizer, units)
    dist.barrier()
    elements = sum(unit.weights.numel() for unit in units)
    whole = sum(unit.weights.untyped_storage().nbytes() for unit in units)
    moments = sum(t.nbytes for s in optimizer.state.values() for t in s.values() if t.dim())
    return counted.sent, elements, whole, moments


@pytest.mark.parametrize("zero_stage", range(4))
@pytest.mark.parametrize("microbatches", [1, 3])
def test_each_rank_sends_and_keeps_what_the_paper_says(zero_stage, microbatches):
    for sent, elements, whole, moments in launch(
        count, STAGES[zero_stage], digits()[:2], microbatches, world_size=4
    ):
        assert sent == memory.zero_sent_bytes(elements, 4, zero_stage, "fp32", microbatches)
        assert moments == memory.zero_states(elements, 4, zero_stage, "fp32").optimizer
        assert whole == (0 if zero_stage == 3 else 4 * elements)


def test_slices_cover_a_vector_that_the_ranks_do_not_divide():
    def padded():
        linear = torch.nn.Linear(3, 3, bias=False)
        flat = zero.flatten(list(linear.parameters()))
        return len(flat), len(zero.my_slice(flat)), torch.equal(flat[:9], linear.weight.flatten())

    assert launch(padded, world_size=4) == [(12, 3, True)] * 4


def draw_on_ranks():
    model, *_ = sharded(zero.Zero3)
    torch.manual_seed(1)
    return draw(model, digits=[3])


def test_a_model_in_slices_draws_what_the_whole_one_draws():
    whole = new_model()
    torch.manual_seed(1)
    expected = draw(whole, digits=[3])
    assert all(torch.equal(drawn, expected) for drawn in launch(draw_on_ranks, world_size=2))
