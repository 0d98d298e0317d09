"""The check of the chapter DTensor says ✓ to right placements and ✗, with a hint, to wrong ones."""

import pytest
from torch.distributed.tensor import Partial, Replicate, Shard
from verdicts import verdict

from allranks.check import dtensor


@pytest.mark.parametrize(
    "answer, says",
    [
        ((Replicate(), Shard(1), Shard(0)), "✓"),
        ((Shard(0), Replicate(), Replicate()), "holds 1 of up"),
        ((Replicate(), Shard(0), Shard(1)), "the products need"),
        ((Shard(0), Shard(1), Shard(0)), "the products need"),
        ((Replicate(), Shard(2), Shard(0)), "only 0 and 1"),
        ((Partial(), Shard(1), Shard(0)), "pending sum"),
        ((Replicate(), "columns", Shard(0)), "a placement, for"),
        ((Replicate(), Shard(1)), "placements: of x"),
        (None, "None"),
    ],
)
def test_columns_then_rows_need_no_collective(capsys, answer, says):
    assert says in verdict(capsys, dtensor.placed, answer)
