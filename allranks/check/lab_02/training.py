"""The trainer, and all tasks together: stopped on four ranks, resumed on two."""

import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

from allranks.check import exercise, labs
from allranks.check.lab_02.common import RATE, device_of_rank, new_gpt, quoted
from allranks.check.lab_02.loading import loader
from allranks.check.lab_02.means import average_gradients, reduce_mean
from allranks.check.lab_02.saving import checkpoint, saved_otherwise
from allranks.check.lab_02.stepping import evaluate, train_step
from allranks.check.labs import is_written, on_ranks
from allranks.model import GPT, digits, loss_of


def _loader(data, batch_size):
    sampler = DistributedSampler(data, seed=6, drop_last=True)
    return DataLoader(data, batch_size // dist.get_world_size(), sampler=sampler, drop_last=True)


def _global_batches(data, batch_size, epoch):
    sampler = DistributedSampler(data, num_replicas=1, rank=0, seed=6, drop_last=True)
    sampler.set_epoch(epoch)
    return list(data[list(sampler)].split(batch_size))[: len(data) // batch_size]


def _serial(model, optimizer, epochs, held_out):
    """Losses of each step, and the loss on `held_out` after each epoch, of one process."""
    losses, scores = [], []
    for batches in epochs:
        for batch in batches:
            loss = loss_of(model, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        with torch.no_grad():
            scores.append(loss_of(model, held_out).item())
    return losses, scores


def _floats(found):
    """(losses, scores) as lists of floats; what it is instead, in words."""
    if not isinstance(found, tuple | list) or len(found) != 2:
        return f"fit returned {quoted(found)}, and not two lists, losses and scores"
    try:
        return [[float(value) for value in values] for values in found]
    except (TypeError, ValueError):
        return "fit returned something else than lists of numbers"


def _agree(found, expected):
    return len(found) == len(expected) and all(abs(a / b - 1) < 1e-4 for a, b in zip(found, expected))


@exercise
def fit(answer):
    """`answer(model, optimizer, loader, held_out, epochs, micro_batches, path)`: (losses, scores)."""
    is_written(answer)
    data, held_out, batch_size, steps = digits()[700:741], digits()[800:807], 12, 3

    def on_rank(path, epochs):
        model = new_gpt(24 + dist.get_rank()).to(device_of_rank())
        optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
        with saved_otherwise() as files:
            found = answer(model, optimizer, _loader(data, batch_size), held_out, epochs, 2, path)
        dist.barrier()
        return _floats(found), len(files)

    def serial(order):
        model = new_gpt(24)
        optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
        epochs = [_global_batches(data, batch_size, epoch) for epoch in order]
        return _serial(model, optimizer, epochs, held_out)

    losses, scores = serial((0, 1, 2))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "last.pt")
        first = on_ranks(on_rank, path, 2, world_size=3)
        for found, _ in first:
            assert not isinstance(found, str), f"{found}."
        there = path.exists()
        for rank, (found, _) in enumerate(first):
            what = f"In 2 epochs of {steps} batches on 3 ranks, rank {rank}"
            assert len(found[0]) == 2 * steps, f"{what} returned {len(found[0])} losses, and not {2 * steps}."
            assert len(found[1]) == 2, f"{what} returned {len(found[1])} scores, and not 2: one an epoch."
            assert not _agree(found[0], serial((0, 0))[0]), (
                f"{what} had the batches of epoch 0 twice: use in_epoch, with the number of the epoch."
            )
            assert _agree(found[0][:1], losses[:1]), (
                f"{what} has loss {found[0][0]:.4f} at its first step, one process has {losses[0]:.4f}: "
                "are all batches mean losses of all ranks, and are all models rank 0's?"
            )
            assert _agree(found[0], losses[: 2 * steps]), f"{what} has other losses than one process."
            assert _agree(found[1], scores[:2]), (
                f"{what} has scores {found[1][0]:.4f} and {found[1][1]:.4f} on the held-out pictures, "
                f"one process has {scores[0]:.4f} and {scores[1]:.4f}."
            )
        assert there, "After fit there is no checkpoint at `path`."
        assert first[0][1] == 2, f"In 2 epochs {first[0][1]} checkpoints were written; one an epoch is right."
        second = on_ranks(on_rank, path, 3, world_size=2)
        third = on_ranks(on_rank, path, 3, world_size=1)
    for rank, (found, _) in enumerate(second):
        what = f"Resumed on 2 ranks after 2 of 3 epochs, rank {rank}"
        assert not isinstance(found, str), f"{found}."
        assert len(found[0]) != 3 * steps, f"{what} has trained 3 epochs: two of them were done."
        assert len(found[0]) == steps, f"{what} returned {len(found[0])} losses, and not {steps}."
        assert _agree(found[0][:1], losses[2 * steps : 2 * steps + 1]), (
            f"{what} begins with loss {found[0][0]:.4f}; without a stop it is {losses[2 * steps]:.4f}: "
            "load the weights, and take the batches of epoch 2."
        )
        assert _agree(found[0], losses[2 * steps :]), (
            f"{what} begins right and goes on with other losses: the optimizer has to be resumed too."
        )
        assert _agree(found[1], scores[2:]), f"{what} has other scores than a training without a stop."
    assert third[0][0] == [[], []], (
        f"With 3 of 3 epochs done there is nothing to train, and fit returned {third[0][0]}; it returns two "
        "empty lists."
    )
    return (
        "2 epochs on 3 ranks, stop, one more on 2: the losses and scores of one process that never stopped."
    )


def milestone(mean, make_loader, in_epoch, average, step, score, save, load, trainer):
    """Try every task, and then all of them together: the running model, trained, stopped and resumed."""
    data, held_out, batch_size, seed = digits()[900:980], digits()[1200:1230], 24, 8
    stop, end = 2, 4

    def on_rank(path, epochs):
        device = device_of_rank()
        torch.manual_seed(60 + dist.get_rank())
        model = GPT().to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        loader = make_loader(data, batch_size, seed)
        batches = [[batch.cpu() for batch in in_epoch(loader, epoch)] for epoch in range(end)]
        found = trainer(model, optimizer, loader, held_out, epochs, 3, path)
        dist.barrier()
        return _floats(found), batches

    def by_hand():
        torch.manual_seed(60)
        model = GPT().to(device_of_rank())
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        losses = []
        for batch in in_epoch(make_loader(data, batch_size, seed), 0):
            loss = loss_of(model, batch)
            optimizer.zero_grad()
            loss.backward()
            average(model)
            optimizer.step()
            losses.append(mean(loss).item())
        return losses

    def whole():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "last.pt")
            first = on_ranks(on_rank, path, stop)
            second = on_ranks(on_rank, path, end, world_size=2)
        epochs = [
            [torch.cat(parts) for parts in zip(*(batches[epoch] for _, batches in first), strict=True)]
            for epoch in range(end)
        ]
        torch.manual_seed(60)
        model = GPT()
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        losses, scores = _serial(model, optimizer, epochs, held_out)
        cut = len(losses) * stop // end
        for where, results, expected in (
            ("4 ranks", first, (losses[:cut], scores[:stop])),
            ("2 ranks, resumed", second, (losses[cut:], scores[stop:])),
        ):
            for found, _ in results:
                assert not isinstance(found, str), f"{found}."
                for what, one, other in zip(("losses", "scores"), found, expected, strict=True):
                    assert _agree(one, other), f"The {what} of the running model on {where} are not serial's."
        for found in on_ranks(by_hand):
            assert _agree(found, losses[: len(found)]), "Averaging by hand, the losses are not serial's."
        return (
            f"{end} epochs of the running model: {stop} on 4 ranks, {end - stop} on 2, and every one of "
            f"{len(losses)} losses is that of one process, from {losses[0]:.3f} to {losses[-1]:.3f}."
        )

    labs.milestone(
        [
            ("a mean over ranks", reduce_mean, mean),
            ("a loader for ranks", loader, make_loader, in_epoch),
            ("gradients by hand", average_gradients, average),
            ("a step with micro-batches", train_step, step),
            ("everybody counts once", evaluate, score),
            ("a checkpoint", checkpoint, save, load),
            ("the trainer", fit, trainer),
        ],
        whole,
        "a trainer that stops, resumes on other ranks, and stays the training of one process.",
    )
