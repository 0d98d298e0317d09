"""The tasks of Lab 02: a trainer with DDP, from its parts."""

import contextlib
import io
import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from allranks.check import exercise, labs
from allranks.check.labs import are_close, is_tensor, is_written, on_ranks
from allranks.launch import LaunchError
from allranks.model import GPT, digits, loss_of
from allranks.trace import trace

SHAPES = ((), (5,), (2, 3))  # of what is averaged
EPOCHS = (0, 1, 0)  # that a loader is asked for
RATE = 0.0123  # a learning rate that nobody has by accident
SLOW = 0.2  # seconds that writing a checkpoint takes here


def _device():
    return "cuda" if "nccl" in dist.get_backend() else "cpu"


def _plain(found):
    return found.detach() if isinstance(found, torch.Tensor) else found


def _gpt(seed, kind=GPT):
    torch.manual_seed(seed)
    return kind(layers=1, hidden=16, heads=2)


def _weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()]).cpu()


def _is_close(found, expected, rtol=1e-3):
    return bool((found - expected).norm() <= rtol * expected.norm() + 1e-7)


def _named(found):
    """A number or None as it is; of anything else, which may take lines to print, the type."""
    return repr(found) if found is None or isinstance(found, int | float) else f"a {type(found).__name__}"


def _factor(found, expected):
    """How many times `expected` is `found`? None if it is no multiple of it."""
    factor = float((found * expected).sum() / expected.square().sum())
    return factor if factor and _is_close(found, factor * expected) else None


def _all_on_ranks(hint, test, *args, **options):
    """`on_ranks`, with `hint` where ranks wait for each other."""
    try:
        return on_ranks(test, *args, **options)
    except LaunchError as failure:
        if "raised" in str(failure) or "exited" in str(failure):
            raise
        raise AssertionError(f"Your function did not come to its end: {failure}. {hint}") from None


@exercise
def reduce_mean(answer):
    """`answer(x)` is the mean of `x` over all ranks."""
    is_written(answer)

    def values(rank, shape):
        return torch.rand(shape, generator=torch.Generator().manual_seed(31 + rank)) + rank

    def on_rank():
        results = []
        for shape in SHAPES:
            leaf = values(dist.get_rank(), shape).to(_device()).requires_grad_()
            x = leaf * 1  # with a graph behind it, as a loss
            before = x.detach().clone()
            found = answer(x)
            graph = isinstance(found, torch.Tensor) and found.requires_grad
            results.append((_plain(found), torch.equal(x.detach(), before), graph))
        return results

    for world_size in (2, 3, 4):
        for rank, results in enumerate(on_ranks(on_rank, world_size=world_size)):
            for shape, (found, same, graph) in zip(SHAPES, results, strict=True):
                every = torch.stack([values(r, shape) for r in range(world_size)])
                what = f"On {world_size} ranks, what rank {rank} got for a tensor of shape {shape}"
                is_tensor(found, what, shape, torch.float32)
                assert not _is_close(found, every.sum(0)), f"{what} is the sum; the mean is a part of it."
                assert not _is_close(found, every[rank]), (
                    f"{what} is its own value"
                    f"{', but rank 0 may have the mean: every rank needs it' if rank else ''}."
                )
                factor = _factor(found, every.mean(0))
                assert factor is None or abs(factor - 1) < 1e-3, f"{what} is {factor:.3g} times the mean."
                are_close(found, every.mean(0), what)
                assert same, f"On rank {rank}, the tensor that was given has changed; sum a copy."
                assert not graph, (
                    f"{what} carries a graph, which stays in memory as long as the number; detach it first."
                )
    return "The mean over 2, 3 and 4 ranks, on each of them, and the input is as it was."


@exercise
def loader(make_loader, in_epoch):
    """`make_loader(data, batch_size, seed)`, and `in_epoch(loader, epoch)`: this rank's batches."""
    is_written(make_loader, in_epoch)

    def rows(count):
        return torch.arange(count)[:, None] * torch.tensor([1, 3, 7])

    def on_rank(count, batch_size):
        data = rows(count)
        results = []
        for seed, epochs in ((3, EPOCHS), (4, (0,))):
            made = make_loader(data, batch_size, seed)
            if not isinstance(made, DataLoader):
                return _named(made)
            for epoch in epochs:
                found = in_epoch(made, epoch)
                if found is None:
                    return None
                results.append([_plain(batch) for batch in found])
        return results, torch.equal(data, rows(count))

    first_batches = {}
    for world_size, count, batch_size in ((4, 35, 12), (2, 35, 12), (3, 24, 6)):
        case = f"With {count} rows on {world_size} ranks and batch_size={batch_size}"
        returned = on_ranks(on_rank, count, batch_size, world_size=world_size)
        for found in returned:
            assert found is not None, "in_epoch returned None: it returns the batches, or the loader itself."
            assert isinstance(found, tuple), f"make_loader returned {found}, and not a DataLoader."
            assert found[1], "The data have changed; take copies, or rows."
        # epochs[e][rank][k] lists the rows of batch k
        epochs = [
            [_numbers(epoch, case, batch_size, world_size) for epoch in ranks]
            for ranks in zip(*(found for found, _ in returned), strict=True)
        ]
        for ranks in epochs:
            _is_partition(ranks, case, count, batch_size)
        first, second, again, other_seed = epochs
        assert any(row != sorted(row) for row in map(_chained, first)), (
            f"{case} the rows come in their order in the data: they have to be shuffled."
        )
        assert first != second, (
            f"{case} epoch 1 has the order of epoch 0: the sampler has to be told the epoch (set_epoch)."
        )
        assert first == again, (
            f"{case} epoch 0 has another order when it is asked for again: a resumed training could not "
            "find its place."
        )
        assert first != other_seed, f"{case} seed 4 gives the order of seed 3."
        first_batches[world_size] = [set(_chained(batches)) for batches in zip(*first, strict=True)]
    assert first_batches[4] == first_batches[2], (
        "With 35 rows and batch_size=12 the first batches of 4 ranks together have other rows than those of "
        "2 ranks; then a training on 4 ranks cannot be compared with one on 2."
    )
    return "Every rank has its part of each batch, each row comes once, in another order each epoch."


def _chained(lists):
    return [row for one in lists for row in one]


def _numbers(batches, case, batch_size, world_size):
    """The numbers of the rows in each of `batches`, which have to be whole batches of a rank."""
    share = batch_size // world_size
    for batch in batches:
        assert isinstance(batch, torch.Tensor), (
            f"{case} a batch is of type {type(batch).__name__}: tensors of rows make tensors."
        )
        assert len(batch) != batch_size, (
            f"{case} a rank has {batch_size} rows in a batch: that is the batch of all ranks together."
        )
        assert len(batch) == share, (
            f"{case} a rank has a batch of {len(batch)} rows, and has to have {share} in each; "
            "what does not fill a batch is left out."
        )
        is_tensor(batch, f"{case} a batch", (share, 3), torch.int64)
    return [batch[:, 0].tolist() for batch in batches]


def _is_partition(ranks, case, count, batch_size):
    """Fail unless no row comes twice on `ranks`, and only the last, incomplete batch is left out."""
    owned = [set(_chained(batches)) for batches in ranks]
    met = len(_chained(_chained(ranks)))
    twice = met - len(set.union(*owned))
    assert not twice or any(owned[0] != other for other in owned[1:]), (
        f"{case} all ranks have the same rows: each needs a part of its own."
    )
    assert twice == 0 or twice >= len(ranks), (
        f"{case} {met - twice} rows come in an epoch and {twice} of them twice: "
        "the sampler repeats some so that the parts are of one size; it can leave out some instead."
    )
    assert twice == 0, f"{case} {twice} rows come twice in an epoch: each rank needs a part of its own."
    lengths = [len(batches) for batches in ranks]
    assert len(set(lengths)) == 1, (
        f"{case} the ranks have {', '.join(map(str, lengths))} batches: some would wait for others."
    )
    assert lengths[0] == count // batch_size, (
        f"{case} an epoch has {lengths[0]} batches, and {count // batch_size} can be filled: "
        "batch_size is for all ranks together."
    )


class Detours(nn.Module):
    """A tied embedding, frozen weights, a layer that nobody uses and one that only some ranks use."""

    def __init__(self):
        super().__init__()
        self.token, self.head = nn.Embedding(7, 5), nn.Linear(5, 7, bias=False)
        self.head.weight = self.token.weight
        self.frozen = nn.Linear(5, 5).requires_grad_(False)
        self.unused, self.detour = nn.Linear(5, 3), nn.Linear(5, 5)

    def forward(self, tokens, detour):
        x = self.frozen(self.token(tokens))
        return F.cross_entropy(self.head(x + self.detour(x) if detour else x), tokens)


def _chain():
    return nn.Sequential(nn.Linear(6, 5), nn.GELU(), nn.Linear(5, 3))


def _with_gradients(kind, rank, device="cpu"):
    """A model after the `backward` of a rank; with `kind` "some", ranks from 2 on take the detour."""
    torch.manual_seed(7)
    model = (_chain() if kind == "chain" else Detours()).to(device)
    torch.manual_seed(50 + rank)
    if kind == "chain":
        model(torch.randn(4, 6).to(device)).square().sum().backward()
    else:
        model(torch.randint(7, (6,)).to(device), kind == "some" and rank >= 2).backward()
    return model


@exercise
def average_gradients(answer):
    """`answer(model)` makes every gradient the mean over ranks, in two all-reduces at most."""
    is_written(answer)

    def on_rank(kind):
        model = _with_gradients(kind, dist.get_rank(), _device())
        before = _weights(model)
        with trace() as counted:
            answer(model)
        dist.barrier()
        gradients = {name: _plain(p.grad) for name, p in model.named_parameters()}
        return gradients, torch.equal(_weights(model), before), counted.calls["all_reduce"]

    hints = {
        "chain": "",
        "none": "No rank has a gradient for unused.weight, and frozen.weight needs none.",
        "some": "Only ranks 2 and 3 have gradients for the layer `detour`; still all ranks have to send the "
        "same messages.",
    }
    most = 0
    for kind, world_size in (("chain", 2), ("none", 3), ("some", 4)):
        own = [
            {name: p.grad for name, p in _with_gradients(kind, rank).named_parameters()}
            for rank in range(world_size)
        ]
        results = _all_on_ranks(hints[kind], on_rank, kind, world_size=world_size)
        for rank, (gradients, same, _) in enumerate(results):
            assert same, f"On rank {rank} the weights have changed; it is their gradients that are averaged."
            for name, found in gradients.items():
                _is_mean(found, name, rank, [gradients_of_rank[name] for gradients_of_rank in own])
        most = max(most, *(calls for *_, calls in results))
    assert most <= 2, (
        f"All gradients are right, and took {most} all-reduces: put them into one vector, and send that."
    )
    return "Every gradient is the mean over ranks, and who has none anywhere keeps none."


def _is_mean(found, name, rank, own):
    """Fail unless `found` is the mean of the ranks' `own` gradients of the parameter `name`."""
    world_size = len(own)
    what = f"On {world_size} ranks, rank {rank}'s gradient of {name}"
    given = [g for g in own if g is not None]
    if not given:
        assert found is None, (
            f"{what} was None on each rank and is a tensor now: AdamW would let its weight decay."
        )
        return
    expected = sum(given) / world_size
    if found is None:
        raise AssertionError(
            f"{what} is None, and other ranks have one: they will step there, and rank {rank} will not."
        )
    is_tensor(found, what, expected.shape, expected.dtype)
    if own[rank] is not None and not _is_close(own[rank], expected):
        assert not _is_close(found, own[rank]), f"{what} is still its own."
    assert not _is_close(found, sum(given)), f"{what} is the sum; there are {world_size} ranks."
    if len(given) < world_size:
        assert not _is_close(found, sum(given) / len(given)), (
            f"{what} is the mean of the {len(given)} ranks that have one: the others count as zero."
        )
    factor = _factor(found, expected)
    tied = " It is tied to head.weight: two names, one gradient." if name == "token.weight" else ""
    assert factor is None or abs(factor - 1) < 1e-3, f"{what} is {factor:.3g} times the mean.{tied}"
    are_close(found, expected, what)


@exercise
def train_step(answer):
    """`answer(model, batch, micro_batches, optimizer)`: one step of a DDP model; the mean loss."""
    is_written(answer)
    rate = 0.5
    pictures = digits()[200:260]

    def on_rank(rows, micro_batches):
        model = DistributedDataParallel(_gpt(21).to(_device()))
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
            results.append((_plain(loss), graph, same, _weights(model), sent, max(seen, default=0)))
        dist.barrier()
        return results

    for world_size, rows, micro_batches in ((2, 7, 3), (3, 5, 2), (4, 3, 1)):
        parts = ", ".join(str(len(part)) for part in torch.empty(rows).tensor_split(micro_batches))
        case = f"With {rows} rows a rank on {world_size} ranks, in micro-batches of {parts}"
        model = _gpt(21)
        start, optimizer = _weights(model), torch.optim.SGD(model.parameters(), lr=rate)
        returned = on_ranks(on_rank, rows, micro_batches, world_size=world_size)
        for step, batch in enumerate(pictures.split(rows * world_size)[:2]):
            own = [loss_of(model, part).item() for part in batch.split(rows)]
            loss = loss_of(model, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            expected = _weights(model)
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
    if all(_is_close(f, expected) for f in found):
        return
    assert all(_is_close(f, found[0]) for f in found), (
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
        model = DistributedDataParallel(_gpt(22, Watched).to(_device())).train(training)
        before = _weights(model)
        found = answer(model, pictures[:count], batch_size)
        dist.barrier()
        kept = model.training == model.module.training == model.module.drop.training == training
        graph = isinstance(found, torch.Tensor) and found.requires_grad
        return _plain(found), graph, kept, torch.equal(before, _weights(model)), model.module.seen

    hint = (
        "Ranks may have different numbers of batches, and then none may wait for another in each of them; "
        "calling DDP sends rank 0's buffers around, model.module does not."
    )
    for world_size, count, batch_size, training in ((2, 7, 3, True), (3, 13, 2, False), (4, 3, 2, True)):
        with torch.no_grad():
            model = _gpt(22)
            own = torch.stack([loss_of(model, row[None]) for row in pictures[:count]])
        case = f"With {count} pictures on {world_size} ranks"
        results = _all_on_ranks(hint, on_rank, count, batch_size, training, world_size=world_size)
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


@contextlib.contextmanager
def _saving(before=None, instead=None):
    """Let `torch.save` call `before()` first, or `instead`; yield the list of files that it is given."""
    save, files = torch.save, []

    def watched(what, file, *args, **kwargs):
        files.append(str(file))
        if instead:
            return instead(save, what, file)
        if before:
            before()
        return save(what, file, *args, **kwargs)

    torch.save = watched
    try:
        yield files
    finally:
        torch.save = save  # results are sent with it


def _fill_the_disk(save, what, file):
    whole = io.BytesIO()
    save(what, whole)
    half = whole.getvalue()[: whole.tell() // 2]
    file.write(half) if hasattr(file, "write") else Path(file).write_bytes(half)
    raise OSError("No space left on device")


def _train(model, optimizer, pictures):
    for tokens in pictures.split(4):
        optimizer.zero_grad()
        loss_of(model, tokens).backward()
        optimizer.step()


def _states(model, optimizer):
    """All numbers of a model, and all of its optimizer, as two vectors."""
    state = optimizer.state_dict()
    moments = [value.flatten().cpu() for slot in state["state"].values() for value in slot.values()]
    rates = torch.tensor([group["lr"] for group in state["param_groups"]])
    return _weights(model), torch.cat([*moments, rates])


@exercise
def checkpoint(save, load):
    """`save(path, model, optimizer, epoch)` and `load(path, model, optimizer)`, which returns the epoch."""
    is_written(save, load)
    pictures = digits()[600:608]

    def saving(path):
        model = DistributedDataParallel(_gpt(23).to(_device()))
        optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
        there = []
        with _saving(before=lambda: time.sleep(SLOW)) as files:
            for epoch in (1, 2):
                _train(model, optimizer, pictures)
                at = path.stat().st_mtime_ns if path.exists() else 0
                dist.barrier()
                save(path, model, optimizer, epoch)
                there.append(path.exists() and path.stat().st_mtime_ns != at)
                dist.barrier()
        return len(files), there, _states(model, optimizer)

    def started(rank):
        model = _gpt(90 + rank).to(_device())
        return model, torch.optim.AdamW(model.parameters(), lr=0.5)

    def alone(path):
        model, optimizer = started(5)
        try:
            saved = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:
            return f"torch.load cannot read it: {str(error).splitlines()[0][:80]}"
        if not isinstance(saved, dict) or not {"model", "optimizer", "epoch"} <= saved.keys():
            return "it has to be a dict with model, optimizer and epoch."
        if not isinstance(saved["model"], dict):
            return "under model it has to have a state dict."
        names = set(saved["model"]), set(model.state_dict())
        if names[0] != names[1]:
            wrong = sorted(names[0] - names[1]) or [f"no {name}" for name in sorted(names[1] - names[0])]
            return f"under model it has {wrong[0]}, and the model has {sorted(names[1])[0]} and others."
        epoch = load(path, model, optimizer)
        return _plain(epoch), _states(model, optimizer)

    def dying(path):
        model, optimizer = started(5)
        with contextlib.suppress(OSError), _saving(instead=_fill_the_disk):
            save(path, model, optimizer, 8)
        try:
            return torch.load(path, map_location="cpu", weights_only=True)["epoch"]
        except Exception:
            return None

    def loading(path):
        model, optimizer = started(dist.get_rank())
        model = DistributedDataParallel(model)
        epoch = load(path, model, optimizer)
        dist.barrier()
        return _plain(epoch), _states(model, optimizer)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "last.pt")
        hint = "A barrier is for all ranks: outside of what only rank 0 does."
        saved = _all_on_ranks(hint, saving, path)
        for rank, (count, _, _) in enumerate(saved):
            assert count == 0 or rank == 0, (
                f"Rank {rank} has written too: all into one file, and rank 0 is enough."
            )
        assert path.exists(), "After save there is no file at `path`."
        for rank, (_, there, _) in enumerate(saved):
            assert all(there), (
                f"Rank {rank} has left save before the file was there: all wait until rank 0 is done."
            )
        left = sorted(set(os.listdir(folder)) - {path.name})
        assert not left, f"Beside the checkpoint, {left[0]} was left in its folder."
        weights, moments = saved[0][2]
        one = on_ranks(alone, path, world_size=1)[0]
        assert not isinstance(one, str), f"The file is not as specified: {one}"
        on_three = on_ranks(loading, path, world_size=3)
        spared = on_ranks(dying, path, world_size=1)[0]
    for where, (epoch, (found_weights, found_moments)) in (
        ("In one process", one),
        *((f"On rank {rank} of 3", result) for rank, result in enumerate(on_three)),
    ):
        assert torch.equal(found_weights, weights), (
            f"{where} the model has not the weights that 4 ranks have saved: every rank loads all of them."
        )
        assert found_moments.shape == moments.shape and torch.equal(found_moments, moments), (
            f"{where} the optimizer is not the saved one: AdamW's moments and the learning rate belong to it."
        )
        assert epoch == 2, f"{where} load returned {_named(epoch)}, and saved was epoch 2."
    assert spared is not None, (
        "When the disk was full in the middle of a save, the checkpoint of before was lost with it: "
        "write another file, and put it in the place of the old one when it is complete."
    )
    assert spared == 2, "The check's full disk was not noticed: write with torch.save."
    return "Saved by rank 0 of 4, loaded in one process and on 3; a full disk spares the one before."


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
        return f"fit returned {_named(found)}, and not two lists, losses and scores"
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
        model = _gpt(24 + dist.get_rank()).to(_device())
        optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
        with _saving() as files:
            found = answer(model, optimizer, _loader(data, batch_size), held_out, epochs, 2, path)
        dist.barrier()
        return _floats(found), len(files)

    def serial(order):
        model = _gpt(24)
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
        device = _device()
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
        model = GPT().to(_device())
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
            ("an evaluation that counts everybody once", evaluate, score),
            ("a checkpoint", checkpoint, save, load),
            ("a trainer that can be stopped", fit, trainer),
        ],
        whole,
        "a trainer that stops, resumes on other ranks, and stays the training of one process.",
    )
