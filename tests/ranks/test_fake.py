"""What a rank of a large world holds, keeps and calls, counted by one process, is what real ranks count."""

import torch
import torch.distributed as dist

from allranks import fake, launch
from allranks.trace import trace


def new_model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.GELU(), torch.nn.Linear(32, 8))


def one_step(model, batch):
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    model(torch.zeros(batch, 8)).sum().backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
    optimizer.step()
    return fake.held_by(model, optimizer)


def really(batch):
    with trace() as counted:
        return one_step(new_model(), batch), counted.sent


def in_fake(batch):
    model = new_model()
    with fake.step_of(model) as (kept, counted):
        model.to_empty(device="cpu")
        held = one_step(model, batch)
    return held, counted.sent, sum(kept.values()), dist.get_rank()


def test_a_fake_world_holds_and_sends_what_a_real_one_does():
    real = launch(really, 6, world_size=4)
    held, sent, kept, rank = launch(fake.as_one_of, 4, 3, in_fake, 6, world_size=1)[0]
    assert (held, sent) == real[3] and rank == 3
    assert kept == 4 * 6 * (8 + 32 + 32)  # inputs of both products and of GELU, and no weights
