"""A step with DDP and micro-batches, and an evaluation over unequal parts."""

import itertools

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler

from allranks.check import exercise
from allranks.check.lab_02.common import device_of_rank, is_close, new_gpt, plain, weights_of
from allranks.check.labs import all_on_ranks, are_close, digits, hidden, is_tensor, is_written, on_ranks
from allranks.model import GPT, loss_of
from allranks.trace import trace


@exercise
def train_step(answer):
    """`answer(model, batch, micro_batches, optimizer)`: one step of a DDP model; the mean loss."""
    is_written(answer)
    rate = 0.5
    examples = digits()[200:260]

    def on_rank(rows, micro_batches):
        model = DistributedDataParallel(new_gpt(21).to(device_of_rank()))
        events = []
        model.module.register_forward_pre_hook(lambda _, args: events.append(len(args[0])))
        next(model.module.parameters()).register_hook(lambda _: events.append(0))
        optimizer = torch.optim.SGD(model.parameters(), lr=rate)
        rank, world_size = dist.get_rank(), dist.get_world_size()
        results = []
        for step, batch in enumerate(examples.split(rows * world_size)[:2]):
            part = batch[rank * rows : (rank + 1) * rows].clone()
            for p in model.parameters() if step else ():
                p.grad = torch.ones_like(p)  # left from an earlier step
            events.clear()
            with trace() as counted:
                loss = answer(model, part, micro_batches, optimizer)
            graph = isinstance(loss, torch.Tensor) and loss.requires_grad
            unchanged = torch.equal(part, batch[rank * rows : (rank + 1) * rows])
            sent = counted.bytes["all_reduce"]
            kept = any(a and b for a, b in itertools.pairwise(events))  # two forwards, no backward between
            seen = max(events, default=0), kept
            results.append((plain(loss), graph, unchanged, weights_of(model), sent, seen))
        dist.barrier()
        return results

    more = hidden(lambda draw: [(2, draw.randrange(8, 15), draw.choice((3, 4, 5)))])
    for world_size, rows, micro_batches in ((2, 7, 3), (3, 5, 2), (4, 3, 1), *more):
        parts = ", ".join(str(len(part)) for part in torch.empty(rows).tensor_split(micro_batches))
        case = f"With {rows} rows a rank on {world_size} ranks, in micro-batches of {parts}"
        model = new_gpt(21)
        start, optimizer = weights_of(model), torch.optim.SGD(model.parameters(), lr=rate)
        returned = on_ranks(on_rank, rows, micro_batches, world_size=world_size)
        for step, batch in enumerate(examples.split(rows * world_size)[:2]):
            own = [loss_of(model, part).item() for part in batch.split(rows)]
            loss = loss_of(model, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            expected = weights_of(model)
            results = [steps[step] for steps in returned]
            weights = [w for _, _, _, w, _, _ in results]
            _is_step([w - start for w in weights], expected - start, case, step, micro_batches)
            nbytes = expected.nbytes
            sent, largest = max(r[4] for r in results), max(r[5][0] for r in results)
            assert sent < 1.5 * nbytes, (
                f"{case}, the step is right, but the gradients are sent {sent / nbytes:.0f} times; "
                "no_sync should enclose forward and backward of all micro-batches but the last."
            )
            assert largest <= -(-rows // micro_batches), (
                f"{case}, the model saw {largest} rows at once; expected at most {-(-rows // micro_batches)}."
            )
            assert not any(kept for *_, (_, kept) in results), (
                f"{case}, a forward began before the backward of the one before it: both keep their "
                "activations, which together do not fit."
            )
            for rank, (mean, graph, unchanged, *_) in enumerate(results):
                what = f"{case}, the loss that rank {rank} returned"
                assert unchanged, f"{case}, rank {rank}'s batch has changed."
                is_tensor(mean, what, (), torch.float32)
                _is_mean_loss(float(mean), loss.item(), own[rank], what)
                assert not graph, f"{what} carries a graph, which keeps all activations alive; detach it."
            start = expected
    return "The step is the whole batch's; gradients are sent once; every rank has the mean loss."


def _is_mean_loss(mean, right, own, what):
    """Fail unless `mean` is the loss of all rows, `right`, near which the rank's own can be by chance."""
    factor = mean / right
    if abs(factor - 1) >= 1e-4:
        assert abs(mean - own) > 1e-5, f"{what} is the loss of its own rows only; average it."
        raise AssertionError(f"{what} is {factor:.4g} times the mean over all rows.")


def _is_step(changes, expected, case, step, micro_batches):
    """Fail unless `changes`, by which the weights moved on each rank, are all `expected`."""
    assert any(change.norm() > 0 for change in changes), f"{case}, no weight has changed on any rank."
    if all(is_close(change, expected) for change in changes):
        return
    assert all(is_close(change, changes[0]) for change in changes), (
        f"{case}, the ranks have different weights after a step: the last micro-batch has to send."
    )
    factor = float(changes[0].norm() / expected.norm())
    assert step or 2 / 3 < factor < 3 / 2, (
        f"{case}, the step is {factor:.2g} times as long as in one process with all rows: "
        "the loss is the mean over all of them, not a sum over micro-batches or ranks."
    )
    assert not step, (
        f"{case}, the first step is right but the second is wrong, since it began with old gradients in "
        "p.grad: call zero_grad before the first backward."
    )
    raise AssertionError(
        f"{case}, the step differs from that of one process with all rows: every row has the same weight, "
        "whether its micro-batch is large or small."
        if micro_batches > 1
        else f"{case}, the step differs from that of one process with all rows."
    )


class Watched(GPT):
    """A model with dropout and a buffer that records its calls."""

    def __init__(self, **sizes):
        super().__init__(**sizes)
        self.drop, self.seen = nn.Dropout(0.3), []
        self.register_buffer("calls", torch.zeros(3))

    def forward(self, tokens):
        self.seen.append((len(tokens), self.training, torch.is_grad_enabled()))
        return self.drop(super().forward(tokens))


@exercise
def evaluate(answer):
    """`answer(model, data, batch_size)`: mean loss of a DDP model over all of `data`, on every rank."""
    is_written(answer)
    examples = digits()[400:440]

    def on_rank(count, batch_size, training):
        model = DistributedDataParallel(new_gpt(22, Watched).to(device_of_rank())).train(training)
        before = weights_of(model)
        score = answer(model, examples[:count], batch_size)
        dist.barrier()
        kept = model.training == model.module.training == model.module.drop.training == training
        graph = isinstance(score, torch.Tensor) and score.requires_grad
        return plain(score), graph, kept, torch.equal(before, weights_of(model)), model.module.seen

    hint = (
        "Ranks may have different numbers of batches, so no batch may need a collective. "
        "Calling the DDP model broadcasts rank 0's buffers; calling model.module does not."
    )
    more = hidden(lambda draw: [(draw.choice((2, 3)), draw.randrange(14, 31), draw.randrange(4, 8), True)])
    cases = (2, 7, 3, True), (3, 13, 2, False), (4, 3, 2, True), *more
    for world_size, count, batch_size, training in cases:
        with torch.no_grad():
            model = new_gpt(22)
            own = torch.stack([loss_of(model, row[None]) for row in examples[:count]])
        case = f"With {count} examples on {world_size} ranks"
        results = all_on_ranks(hint, on_rank, count, batch_size, training, world_size=world_size)
        calls = [call for *_, seen in results for call in seen]
        for rank, (score, graph, kept, unchanged, _) in enumerate(results):
            what = f"{case}, what rank {rank} returned"
            is_tensor(score, what, (), torch.float32)
            assert not any(in_training for _, in_training, _ in calls), (
                f"{case}, the model was in training mode, where dropout changes the loss."
            )
            assert not score.isnan(), (
                f"{what} is NaN. {f'Rank {world_size - 1} has no example: ' * (count < world_size)}"
                "the mean over nothing is 0 / 0."
            )
            for mistake, value in _wrong_means(own, world_size, rank):
                assert abs(value - own.mean()) < 1e-5 or abs(score - value) > 1e-6, f"{what} is {mistake}."
            are_close(score, own.mean(), what, rtol=1e-5)
            assert sum(rows for rows, _, _ in calls) == count, (
                f"{case}, the mean is right, but the ranks computed {sum(c[0] for c in calls)}: divide them."
            )
            most = max(sum(rows for rows, _, _ in seen) for *_, seen in results)
            rounds = -(-count // (world_size * batch_size))
            assert most <= rounds * batch_size, (
                f"{case}, one rank computed {most} of them while others waited: give every rank a part."
            )
            largest = max(rows for rows, _, _ in calls)
            assert largest <= batch_size, (
                f"{case}, a rank computed {largest} at once; batch_size allows {batch_size}."
            )
            assert not any(grad for *_, grad in calls) and not graph, (
                f"{case}, the loss has a graph: without torch.no_grad() all activations are kept."
            )
            assert kept, (
                f"{case}, rank {rank} leaves the model in another mode; expected "
                f"{'training' if training else 'evaluation'} mode, as before."
            )
            assert unchanged, f"{case}, the weights on rank {rank} have changed."
    return "Every example counts once, even if ranks have different numbers of them, or none."


def _wrong_means(own, world_size, rank):
    """Yield (description, value) of the usual wrong means of the losses `own` on `rank`."""

    def sampled(drop_last):
        samplers = [
            DistributedSampler(own, world_size, r, shuffle=False, drop_last=drop_last)
            for r in range(world_size)
        ]
        return torch.cat([own[list(sampler)] for sampler in samplers])

    striped = [own[r::world_size] for r in range(world_size)]
    for parts in (striped, own.tensor_split(world_size), own.chunk(world_size)):
        if all(len(part) for part in parts):
            means = torch.stack([part.mean() for part in parts])
            yield "the mean of the ranks' means, whose parts differ in size", means.mean()
        if rank < len(parts) and len(parts[rank]):
            yield "the mean over its own examples; it should be over all", parts[rank].mean()
    yield "the mean with some examples counted twice: the sampler repeats them", sampled(False).mean()
    if len(sampled(True)):
        yield "a mean that leaves out some examples: the sampler drops them", sampled(True).mean()
    yield "the sum over the ranks", own.mean() * world_size
