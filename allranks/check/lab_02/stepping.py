"""A step with DDP and micro-batches, and an evaluation over unequal parts."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler

from allranks.check import exercise
from allranks.check.lab_02.common import all_on_ranks, device_of_rank, is_close, new_gpt, plain, weights_of
from allranks.check.labs import are_close, is_tensor, is_written, on_ranks
from allranks.model import GPT, digits, loss_of
from allranks.trace import trace


@exercise
def train_step(answer):
    """`answer(model, batch, micro_batches, optimizer)`: one step of a DDP model; the mean loss."""
    is_written(answer)
    rate = 0.5
    pictures = digits()[200:260]

    def on_rank(rows, micro_batches):
        model = DistributedDataParallel(new_gpt(21).to(device_of_rank()))
        seen = []
        model.module.register_forward_pre_hook(lambda _, args: seen.append(len(args[0])))
        optimizer = torch.optim.SGD(model.parameters(), lr=rate)
        rank, world_size = dist.get_rank(), dist.get_world_size()
        results = []
        for batch in pictures.split(rows * world_size)[:2]:
            mine = batch[rank * rows : (rank + 1) * rows].clone()
            with trace() as counted:
                loss = answer(model, mine, micro_batches, optimizer)
            graph = isinstance(loss, torch.Tensor) and loss.requires_grad
            same = torch.equal(mine, batch[rank * rows : (rank + 1) * rows])
            sent = counted.bytes["all_reduce"]
            results.append((plain(loss), graph, same, weights_of(model), sent, max(seen, default=0)))
        dist.barrier()
        return results

    for world_size, rows, micro_batches in ((2, 7, 3), (3, 5, 2), (4, 3, 1)):
        parts = ", ".join(str(len(part)) for part in torch.empty(rows).tensor_split(micro_batches))
        case = f"With {rows} rows a rank on {world_size} ranks, in micro-batches of {parts}"
        model = new_gpt(21)
        start, optimizer = weights_of(model), torch.optim.SGD(model.parameters(), lr=rate)
        returned = on_ranks(on_rank, rows, micro_batches, world_size=world_size)
        for step, batch in enumerate(pictures.split(rows * world_size)[:2]):
            own = [loss_of(model, part).item() for part in batch.split(rows)]
            loss = loss_of(model, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            expected = weights_of(model)
            found = [results[step] for results in returned]
            weights = [w for _, _, _, w, _, _ in found]
            _is_step([w - start for w in weights], expected - start, case, step, micro_batches)
            nbytes = expected.nbytes
            sent, largest = max(f[4] for f in found), max(f[5] for f in found)
            assert sent < 1.5 * nbytes, (
                f"{case} the step is right, but the gradients are sent {sent / nbytes:.0f} times; "
                "no_sync has to be around forward and backward of all micro-batches but the last."
            )
            assert largest <= -(-rows // micro_batches), (
                f"{case} the model saw {largest} rows at once: memory is what micro-batches save."
            )
            for rank, (loss_found, graph, same, *_) in enumerate(found):
                what = f"{case}, the loss that rank {rank} returned"
                assert same, f"{case}, rank {rank}'s batch has changed."
                is_tensor(loss_found, what, (), torch.float32)
                assert abs(loss_found - own[rank]) > 1e-5, f"{what} is that of its own rows; average it."
                factor = float(loss_found / loss.detach())
                assert abs(factor - 1) < 1e-4, f"{what} is {factor:.4g} times the mean over all rows."
                assert not graph, f"{what} carries a graph, and keeps all activations alive; detach it."
            start = expected
    return "The step of the whole batch, the gradients sent once, the mean loss on every rank."


def _is_step(found, expected, case, step, micro_batches):
    """Fail unless the change of the weights on each rank is `expected`."""
    assert any(f.norm() > 0 for f in found), f"{case} no weight has changed."
    if all(is_close(f, expected) for f in found):
        return
    assert all(is_close(f, found[0]) for f in found), (
        f"{case} the ranks have different weights after a step: the last micro-batch sends the gradients."
    )
    factor = float(found[0].norm() / expected.norm())
    assert step or 2 / 3 < factor < 3 / 2, (
        f"{case} the step is {factor:.2g} times as long as that of one process with all rows: "
        "its loss is a mean over all of them, and not a sum over micro-batches or ranks."
    )
    assert not step, (
        f"{case} the first step is right, the second is not: what is left of the first gradients?"
    )
    raise AssertionError(
        f"{case} the step is not that of one process with all rows: a row counts the same, whether its "
        "micro-batch is large or small."
        if micro_batches > 1
        else f"{case} the step is not that of one process with all rows."
    )


class Watched(GPT):
    """A model with dropout and a buffer, which notes what it is called with."""

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
    pictures = digits()[400:440]

    def on_rank(count, batch_size, training):
        model = DistributedDataParallel(new_gpt(22, Watched).to(device_of_rank())).train(training)
        before = weights_of(model)
        found = answer(model, pictures[:count], batch_size)
        dist.barrier()
        kept = model.training == model.module.training == model.module.drop.training == training
        graph = isinstance(found, torch.Tensor) and found.requires_grad
        return plain(found), graph, kept, torch.equal(before, weights_of(model)), model.module.seen

    hint = (
        "Ranks may have different numbers of batches, and then none may wait for another in each of them; "
        "calling DDP sends rank 0's buffers around, model.module does not."
    )
    for world_size, count, batch_size, training in ((2, 7, 3, True), (3, 13, 2, False), (4, 3, 2, True)):
        with torch.no_grad():
            model = new_gpt(22)
            own = torch.stack([loss_of(model, row[None]) for row in pictures[:count]])
        case = f"With {count} pictures on {world_size} ranks"
        results = all_on_ranks(hint, on_rank, count, batch_size, training, world_size=world_size)
        calls = [call for *_, seen in results for call in seen]
        for rank, (found, graph, kept, same, _) in enumerate(results):
            what = f"{case}, what rank {rank} returned"
            is_tensor(found, what, (), torch.float32)
            assert not any(in_training for _, in_training, _ in calls), (
                f"{case} the model was in training mode, where dropout changes the loss."
            )
            assert not found.isnan(), (
                f"{what} is not a number. {f'Rank {world_size - 1} has no picture: ' * (count < world_size)}"
                "the mean over nothing is 0 / 0."
            )
            for mistake, value in _wrong_means(own, world_size, rank):
                assert abs(value - own.mean()) < 1e-5 or abs(found - value) > 1e-6, f"{what} is {mistake}."
            are_close(found, own.mean(), what, rtol=1e-5)
            assert sum(rows for rows, _, _ in calls) == count, (
                f"{case} the mean is right, but the ranks computed {sum(c[0] for c in calls)}: share them."
            )
            largest = max(rows for rows, _, _ in calls)
            assert largest <= batch_size, f"{case} there were {largest} at once, and {batch_size} may be."
            assert not any(grad for *_, grad in calls) and not graph, (
                f"{case} the loss has a graph: without torch.no_grad() all activations are kept."
            )
            assert kept, f"{case} the model is not left in the mode (train or eval) in which it was."
            assert same, f"{case} the weights have changed."
    return "Every picture counts once, also where ranks have different numbers, or none."


def _wrong_means(own, world_size, rank):
    """Yield (what it is, value) for means of the losses `own` that are usual mistakes on `rank`."""

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
            yield "the mean of the ranks' means, and their parts are not of one size", means.mean()
        if rank < len(parts) and len(parts[rank]):
            yield "the mean over its own pictures; it has to be over all", parts[rank].mean()
    yield "the mean with some pictures counted twice: the sampler repeats them", sampled(False).mean()
    if len(sampled(True)):
        yield "a mean that leaves out some pictures: the sampler drops them", sampled(True).mean()
    yield "the sum over the ranks", own.mean() * world_size
