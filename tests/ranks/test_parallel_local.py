"""Local updates are what one process computes that plays all ranks, and what torch's averager computes."""

import pytest
import torch
import torch.distributed as dist

from allranks import launch, local_updates
from allranks.parallel.local import LEVELS, FourBits, Fragment, Rounds, pack, unpack
from allranks.trace import trace


def layer_of(width=5):
    torch.manual_seed(0)
    return torch.nn.Linear(width, 3)


def walk(model, rank, step):
    """A stand-in for an inner step: another one on every rank."""
    generator = torch.Generator().manual_seed(1000 * rank + step)
    with torch.no_grad():
        for p in model.parameters():
            p += torch.randn(p.shape, generator=generator)


def flat(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def meet(steps, every, **options):
    model, outer = layer_of(), {k: options.pop(k) for k in ("rate", "momentum") if k in options}
    fragments = [Fragment([p], **outer) for p in model.parameters()]
    rounds = Rounds(fragments, local_updates.sending_steps(every, 2), every, **options)
    seen = []
    for step in range(steps):
        walk(model, dist.get_rank(), step)
        rounds.step()
        seen.append([p.detach().clone() for p in model.parameters()])
    return seen


def in_one_process(ranks, steps, every, rate=1.0, momentum=0.0, delay=0, keep=0.0):
    """The same, with every rank's weights in a list, and the outer step written out."""
    models, at = [layer_of() for _ in range(ranks)], local_updates.sending_steps(every, 2)
    start = [p.detach().clone() for p in layer_of().parameters()]
    speed, due, seen = [torch.zeros_like(s) for s in start], [], []
    for step in range(steps):
        for rank, model in enumerate(models):
            walk(model, rank, step)
        for k in range(2):
            if step % every == at[k]:
                mean = torch.stack([list(m.parameters())[k].detach() for m in models]).mean(0)
                due.append((step + delay, k, start[k] - mean))
        for _, k, gradient in [one for one in due if one[0] == step]:
            speed[k] = momentum * speed[k] + gradient
            start[k] = start[k] - rate * (gradient + momentum * speed[k])
            for model in models:
                p = list(model.parameters())[k]
                p.data = keep * p.data + (1 - keep) * start[k]
        seen.append([[p.detach().clone() for p in model.parameters()] for model in models])
    return seen


@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"rate": 0.7, "momentum": 0.9},
        {"rate": 0.7, "momentum": 0.9, "delay": 2, "keep": 0.5},
        {"delay": 1},
    ],
)
def test_ranks_are_the_one_process_that_plays_them(world_size, options):
    ranks = launch(meet, 14, 4, world_size=world_size, **options)
    serial = in_one_process(world_size, 14, 4, **options)
    for rank, seen in enumerate(ranks):
        for ours, theirs in zip(seen, serial):
            torch.testing.assert_close(ours, theirs[rank], atol=1e-5, rtol=1e-5)


def average_of(rate, momentum):
    model = layer_of()
    fragment = Fragment(model.parameters(), rate, momentum)
    walk(model, dist.get_rank(), 0)
    own = flat(model)
    fragment.send()
    fragment.receive()
    return own, flat(model)


def test_rate_1_without_momentum_averages():
    ranks = launch(average_of, 1.0, 0.0, world_size=3)
    mean = torch.stack([own for own, _ in ranks]).mean(0)
    for _, after in ranks:
        torch.testing.assert_close(after, mean)
    assert not torch.allclose(launch(average_of, 0.5, 0.0, world_size=3)[0][1], mean, atol=1e-3)


def works_while_it_travels():
    model = layer_of()
    fragment = Fragment(model.parameters())
    fragment.send()
    before = flat(model)
    walk(model, dist.get_rank(), 0)
    moved = flat(model) - before
    fragment.receive(keep=1.0)
    return moved, flat(model) - before


def test_a_share_of_1_keeps_what_a_rank_did_meanwhile():
    for moved, kept in launch(works_while_it_travels, world_size=2):
        torch.testing.assert_close(moved, kept)


@pytest.mark.parametrize("count", [1, 2, 7, 1000])
def test_four_bits_are_sign_and_power_of_two_nearest_to_each_element(count):
    vector = torch.randn(count, generator=torch.Generator().manual_seed(0))
    packed = pack(vector)
    assert packed.dtype == torch.uint8 and len(packed) == (count + 1) // 2 + 4
    allowed = torch.cat([LEVELS, -LEVELS]) * vector.abs().max()
    nearest = allowed[(vector[:, None] - allowed).abs().argmin(1)]
    torch.testing.assert_close(unpack(packed, count), nearest)


def test_what_has_four_bits_already_arrives_as_it_was():
    vector = torch.tensor([0.0, 3.0, -1.5, 0.75, -3 / 64, 3.0])
    assert torch.equal(unpack(pack(vector), 6), vector)
    assert torch.equal(unpack(pack(torch.zeros(3)), 3), torch.zeros(3))


def meet_in_four_bits(rate, momentum):
    model = layer_of()
    fragment = FourBits(model.parameters(), rate, momentum)
    start = flat(model)
    walk(model, dist.get_rank(), 0)
    own = start - flat(model)
    with trace() as counted:
        fragment.send()
    fragment.receive()
    return own, start - flat(model), int(counted.sent)


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_ranks_average_in_float32_what_each_sends_in_four_bits(world_size):
    ranks = launch(meet_in_four_bits, 0.5, 0.0, world_size=world_size)
    mean = torch.stack([unpack(pack(own), len(own)) for own, _, _ in ranks]).mean(0)
    for _, step, sent in ranks:
        torch.testing.assert_close(step, 0.5 * mean)
        assert sent == (world_size - 1) * (len(mean) // 2 + 4)
