"""A loader that gives every rank its part of each epoch."""

import torch
from torch.utils.data import DataLoader

from allranks.check import exercise
from allranks.check.lab_02.common import plain, quoted
from allranks.check.labs import is_tensor, is_written, on_ranks

EPOCHS = (0, 1, 2, 0)  # requested from a loader


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
                return quoted(made)
            for epoch in epochs:
                batches = in_epoch(made, epoch)
                if batches is None:
                    return None
                results.append([plain(batch) for batch in batches])
        return results, torch.equal(data, rows(count))

    first_batches = {}
    for world_size, count, batch_size in ((4, 35, 12), (2, 35, 12), (1, 35, 12), (3, 24, 6)):
        case = f"With {count} rows on {world_size} ranks and batch_size={batch_size}"
        returned = on_ranks(on_rank, count, batch_size, world_size=world_size)
        for rank, result in enumerate(returned):
            assert result is not None, (
                f"On rank {rank} in_epoch returned None; it should return the batches, or the loader itself."
            )
            assert isinstance(result, tuple), (
                f"On rank {rank} make_loader returned {result}, not a DataLoader."
            )
            assert result[1], f"On rank {rank} the data have changed; do not write into them."
        # epochs[e][rank][k] lists the rows of batch k
        epochs = [
            [_numbers(epoch, case, batch_size, world_size) for epoch in ranks]
            for ranks in zip(*(results for results, _ in returned), strict=True)
        ]
        for ranks in epochs:
            _is_partition(ranks, case, count, batch_size)
        first, second, third, again, other_seed = epochs
        assert any(row != sorted(row) for row in map(_chained, first)), (
            f"{case}, the rows come in the order of the data; they should be shuffled."
        )
        assert first != second, (
            f"{case}, epoch 1 has the same order as epoch 0: pass the epoch to the sampler (set_epoch)."
        )
        assert third not in (first, second), (
            f"{case}, epoch 2 has the same order as an earlier one: every epoch needs its own order."
        )
        used = [set(_chained(_chained(ranks))) for ranks in (first, second, third)]
        assert count % batch_size == 0 or used[0] != used[1] or used[0] != used[2], (
            f"{case}, all epochs leave out the same rows, which are never trained on: shuffle all rows first."
        )
        assert first == again, (
            f"{case}, epoch 0 has a different order when it is requested again: a resumed run could not "
            "find its place."
        )
        assert first != other_seed, f"{case}, seed 4 gives the same order as seed 3."
        first_batches[world_size] = [set(_chained(batches)) for batches in zip(*first, strict=True)]
    for fewer in (2, 1):
        assert first_batches[4] == first_batches[fewer], (
            "With 35 rows and batch_size=12, batch k of 4 ranks together differs from batch k of "
            f"{fewer} rank{'s' * (fewer > 1)}; a run on 4 ranks then cannot be compared with one on {fewer}."
        )
    return "Every rank has its part of each batch; each row comes once, in a new order each epoch."


def _chained(lists):
    return [row for rows in lists for row in rows]


def _numbers(batches, case, batch_size, world_size):
    """The row numbers in each of `batches`; fail unless each is a full batch of one rank."""
    share = batch_size // world_size
    for batch in batches:
        assert isinstance(batch, torch.Tensor), (
            f"{case}, a batch is of type {type(batch).__name__}; expected a tensor of rows."
        )
        assert world_size == 1 or len(batch) != batch_size, (
            f"{case}, one rank's batch has {batch_size} rows: that is the batch of all ranks together."
        )
        assert len(batch) == share, (
            f"{case}, one rank's batch has {len(batch)} rows; expected {share}. "
            "Leave out rows that do not fill a batch."
        )
        is_tensor(batch, f"{case}, a batch", (share, 3), torch.int64)
    return [batch[:, 0].tolist() for batch in batches]


def _is_partition(ranks, case, count, batch_size):
    """Fail unless no row comes twice on `ranks`, and only the last, incomplete global batch is left out."""
    owned = [set(_chained(batches)) for batches in ranks]
    drawn = len(_chained(_chained(ranks)))
    twice = drawn - len(set.union(*owned))
    assert not twice or len(owned) == 1 or any(owned[0] != other for other in owned[1:]), (
        f"{case}, all ranks have the same rows; each needs its own part."
    )
    assert twice == 0, (
        f"{case}, an epoch has {drawn - twice} rows, and {twice} of them come twice. Either the sampler "
        "repeats "
        "some to make the parts equal (it can leave some out instead), or ranks shuffle with different seeds."
    )
    lengths = [len(batches) for batches in ranks]
    assert len(set(lengths)) == 1, (
        f"{case}, ranks 0 to {len(ranks) - 1} have {', '.join(map(str, lengths))} batches; all need the same "
        "number, or some wait for others."
    )
    assert lengths[0] == count // batch_size, (
        f"{case}, an epoch has {lengths[0]} batches; expected {count // batch_size}: "
        "batch_size is for all ranks together."
    )
