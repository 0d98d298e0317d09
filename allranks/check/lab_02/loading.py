"""A loader that gives every rank its part of each epoch."""

import torch
from torch.utils.data import DataLoader

from allranks.check import exercise
from allranks.check.lab_02.common import plain, quoted
from allranks.check.labs import is_tensor, is_written, on_ranks

EPOCHS = (0, 1, 0)  # that a loader is asked for


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
                found = in_epoch(made, epoch)
                if found is None:
                    return None
                results.append([plain(batch) for batch in found])
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
