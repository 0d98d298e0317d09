"""A module whose ranks start alike, may leave parameters unused, and accumulate without sending."""

import contextlib
import copy

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from allranks.check import exercise
from allranks.check.lab_02.branching import branches_of, loss_of_step, new_module, weights_now
from allranks.check.lab_02.common import (
    RATE,
    WORLDS,
    Sent,
    device_of_rank,
    gradients_of,
    is_close,
    is_mean,
    told_on_ranks,
)
from allranks.check.labs import is_written

OPTIONS = {"lr": RATE, "betas": (0.8, 0.95), "weight_decay": 0.3}
CAP = 100  # bytes that close a bucket
IN_EVALUATION = 4  # the step whose forward runs in evaluation mode, which changes nothing in torch's DDP
SAME = (
    "All ranks must send the same messages in the same order. Here some ranks have no gradient for a branch "
    "that others use. What waits in a bucket leaves first, with zeros for what is missing; the message that "
    "says which parameters were used comes after it."
)
UNSENT = (
    "A bucket has not left: this rank has no gradient for some of its parameters, and finish() has to send "
    "zeros for them."
)
HINTS = {
    "doesn't require gradient": "A hook cannot be put on a parameter that needs no gradient: skip the frozen "
    "ones.",
    "before its wait()": "finish() has to wait for each bucket before it uses the result.",
    "still running": SAME,
    "exited": SAME,
    "one collective": SAME,
    "zip()": UNSENT,
    "NoneType": "A bucket left before all of its gradients were there: send zeros for a branch that this "
    "rank did not use, and do not count what was ready in no_sync.",
}


def _trained(answer):
    """Steps of AdamW, whose gradients, buffers and weights are kept."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    module = new_module(rank).to(device_of_rank())
    ddp = answer(module, CAP)
    optimizer = torch.optim.AdamW([p for p in module.parameters() if p.requires_grad], **OPTIONS)
    start, steps = weights_now(module), []
    for step, branches in enumerate(branches_of(rank, world_size)):
        optimizer.zero_grad()
        module.train(step != IN_EVALUATION)
        loss = loss_of_step(ddp, module, rank, step, branches)
        buffers = {name: t.cpu() for name, t in module.entered.items()}
        loss.backward()
        ddp.finish()
        steps.append((gradients_of(module), buffers))
        optimizer.step()
    return start, steps, weights_now(module)


def _by_torch():
    rank, world_size = dist.get_rank(), dist.get_world_size()
    module = new_module(rank).to(device_of_rank())
    ddp = DistributedDataParallel(module, find_unused_parameters=True)
    optimizer = torch.optim.AdamW([p for p in module.parameters() if p.requires_grad], **OPTIONS)
    for step, branches in enumerate(branches_of(rank, world_size)):
        optimizer.zero_grad()
        loss_of_step(ddp, module, rank, step, branches).backward()
        optimizer.step()
    return weights_now(module)


def _accumulating(rank):
    """The branches of the first micro-batch: no later one uses branch 0."""
    return (0, 1) if rank == 0 else (1,)


class _Oops(Exception):
    pass


def _accumulated(answer):
    """Messages that leave before backward ends: as usual, in no_sync, after it, after an error in it."""
    rank = dist.get_rank()
    module = new_module(rank, drift=0.0).to(device_of_rank())
    ddp, sent = answer(module, CAP), []

    def backward(step, branches):
        loss = loss_of_step(ddp, module, rank, step, branches)
        with Sent() as counted:
            loss.backward()
        sent.append(len(counted.sums))

    backward(0, (0, 1))
    ddp.finish()
    module.zero_grad()
    with ddp.no_sync():
        backward(6, (0, 1))
    if sent[-1]:
        return sent, {}, {}
    module.zero_grad()
    with ddp.no_sync():
        backward(1, _accumulating(rank))
        backward(2, (1,))
    own = gradients_of(module)
    backward(3, (1,))
    ddp.finish()
    gradients = gradients_of(module)
    module.zero_grad()
    backward(4, (0, 1))
    ddp.finish()
    with contextlib.suppress(_Oops), ddp.no_sync():
        raise _Oops
    module.zero_grad()
    backward(5, (0, 1))
    ddp.finish()
    return sent, own, gradients


@contextlib.contextmanager
def _noted(made):
    """Let `made` list each of torch's own DDP that is made in the block."""
    real = DistributedDataParallel.__init__

    def noted(self, *args, **options):
        made.append(True)
        real(self, *args, **options)

    DistributedDataParallel.__init__ = noted
    try:
        yield
    finally:
        DistributedDataParallel.__init__ = real


@exercise
def ddp(answer):
    """`answer(module, bucket_bytes)`: called like the module; it has `no_sync()` and `finish()`."""
    is_written(answer)

    def on_rank(with_torch):
        made = []
        with _noted(made):
            answer(new_module(0).to(device_of_rank()), CAP)
        if made:
            return None
        trained, accumulated = _trained(answer), _accumulated(answer)
        dist.barrier()
        return trained, accumulated, _by_torch() if with_torch else None

    for world_size, options in WORLDS:
        ranks = told_on_ranks(HINTS, on_rank, world_size == 2, world_size=world_size, **options)
        assert None not in ranks, "This is torch's own DistributedDataParallel; here you write it."
        expected = _in_one_process(world_size)
        _is_training([trained for trained, *_ in ranks], expected, [by_torch for *_, by_torch in ranks])
        for rank, (_, accumulated, _) in enumerate(ranks):
            _is_accumulation(*accumulated, rank, world_size)
    return "Five steps of AdamW equal one process; on two ranks, they equal torch's DDP bit by bit."


def _in_one_process(world_size):
    """The start, and of each step the ranks' gradients, their mean, and the buffers; the final weights."""
    module = new_module(0)
    optimizer = torch.optim.AdamW([p for p in module.parameters() if p.requires_grad], **OPTIONS)
    start, steps = weights_now(module), []
    for step in range(len(branches_of(0, world_size))):
        every, centres = [], []
        buffers = {name: t.clone() for name, t in module.named_buffers()}
        for rank in range(world_size):
            one = copy.deepcopy(module)
            one.zero_grad()
            loss_of_step(one, one, rank, step, branches_of(rank, world_size)[step]).backward()
            every.append(gradients_of(one))
            centres.append(one.centre)
        means = {name: _mean([own[name] for own in every], world_size) for name in every[0]}
        for name, p in module.named_parameters():
            p.grad = None if means[name] is None else means[name].clone()
        optimizer.step()
        module.centre.copy_(centres[0])
        steps.append((every, means, buffers))
    return start, steps, weights_now(module)


def _mean(gradients, world_size):
    given = [g for g in gradients if g is not None]
    return sum(given) / world_size if given else None


def _is_training(ranks, expected, by_torch):
    cases = [f"On {len(ranks)} ranks, rank {rank}" for rank in range(len(ranks))]
    for case, (start, *_) in zip(cases, ranks, strict=True):
        for name, value in start.items():
            assert value.equal(expected[0][name]), (
                f"{case}'s {name}{' (frozen)' * name.startswith('frozen')} is not rank 0's after "
                "DDP(module, …): "
                "all ranks start from rank 0's parameters, frozen ones too."
            )
    for step, (every, means, buffers) in enumerate(expected[1]):
        for case, (_, steps, _) in zip(cases, ranks, strict=True):
            mode = ", in evaluation mode" * (step == IN_EVALUATION)
            _are_buffers(steps[step][1], buffers, f"{case}, step {step}{mode}")
        for rank, (case, (_, steps, _)) in enumerate(zip(cases, ranks, strict=True)):
            for name, mean in means.items():
                what = f"{case}, step {step}, gradient of {name}"
                _is_gradient(steps[step][0][name], mean, [own[name] for own in every], rank, what)
    for case, (*_, end), torchs in zip(cases, ranks, by_torch, strict=True):
        for name, value in end.items():
            assert is_close(value, expected[2][name], 1e-4), f"{case}'s {name} differs from one process's."
            assert torchs is None or value.equal(torchs[name]), (
                f"{case}'s {name} is not torch's bit by bit: is the sum divided in the gradient's own dtype?"
            )


def _are_buffers(seen, expected, case):
    assert seen, f"{case}: the module itself was not called; DDP wraps the one that it is given, not a copy."
    for name, value in seen.items():
        note = " It is not persistent, so it is not in the state_dict." if name == "scale" else ""
        assert is_close(value, expected[name]), (
            f"{case}: forward sees another buffer {name} than rank 0's. Each call outside no_sync gives all "
            "ranks "
            f"rank 0's buffers first.{note}"
        )


def _is_gradient(gradient, mean, own, rank, what):
    """`is_mean`, and what is usual where some ranks have no gradient."""
    given = [g for g in own if g is not None]
    if not given:
        assert gradient is None, (
            f"{what}: no rank used it, and it should stay None; with zeros, AdamW applies weight decay to it."
        )
        return
    if gradient is None:
        if not mean.any():
            raise AssertionError(
                f"{what} is None; it was zeros, and a gradient of zeros is a gradient: AdamW decays the "
                "weight."
            )
        raise AssertionError(
            f"{what} is None{'' if own[rank] is not None else ', since this rank did not use it'}; every "
            "rank "
            "needs the mean, or the ranks drift apart."
        )
    if len(own) > 1 and len(given) < len(own) and mean.any():
        assert not is_close(gradient, sum(given) / len(given)), (
            f"{what} is the mean of the {len(given)} ranks that used it; the others count as zero."
        )
    is_mean(gradient, mean, own[rank] if own[rank] is not None else torch.zeros_like(mean), what, len(own))


def _is_accumulation(sent, own, gradients, rank, world_size):
    case = f"On {world_size} ranks, rank {rank}"
    usual, in_no_sync, *others = sent
    assert usual, (
        f"{case}: the gradients are right, but none is sent before backward ended: buckets leave when they "
        "are "
        "full."
    )
    assert not in_no_sync, f"{case} sends {in_no_sync} messages inside no_sync; expected none."
    *_, after, after_error = others
    every = [_accumulated_alone(r) for r in range(world_size)]
    for name in gradients:
        mean = _mean([one[name] for one in every], world_size)
        local = own[name]
        if mean is not None and gradients[name] is not None and not is_close(gradients[name], mean):
            raise AssertionError(
                f"{case}: after two micro-batches in no_sync and one outside, the gradient of {name} is not "
                "what "
                "they added up to. A bucket may leave only when the last micro-batch's gradients have come."
            )
        _is_gradient(
            gradients[name],
            mean,
            [one[name] for one in every],
            rank,
            f"{case}, after no_sync, gradient of {name}"
            f"{' (used in no_sync only)' * (local is not None and name.startswith('branches.0'))}",
        )
    assert after, f"{case}: after no_sync, nothing is sent during backward any more: it has to end."
    assert after_error, (
        f"{case}: after an error inside no_sync, nothing is sent any more: use try and finally."
    )


def _accumulated_alone(rank):
    module = new_module(0, drift=0.0)
    for step, branches in ((1, _accumulating(rank)), (2, (1,)), (3, (1,))):
        loss_of_step(module, module, rank, step, branches).backward()
    return gradients_of(module)
