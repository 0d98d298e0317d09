"""The checks of the chapter on checkpoints say ✓ to right answers and ✗, with a hint, to wrong ones."""

import pytest
from verdicts import verdict

from allranks.check import checkpoints as checks


def chunks(order, consumed, batch, rank, ranks):
    return order[consumed : consumed + batch].chunk(ranks)[rank]


def strides(order, consumed, batch, rank, ranks):
    return order[consumed : consumed + batch][rank::ranks].tolist()


def from_the_start(order, consumed, batch, rank, ranks):
    return order[:batch].chunk(ranks)[rank]


def own_shard(order, consumed, batch, rank, ranks):
    share = batch // ranks
    mine = order[rank::ranks]
    return mine[consumed // ranks : consumed // ranks + share]


def own_block(order, consumed, batch, rank, ranks):
    share, mine = batch // ranks, order.chunk(ranks)[rank]
    return mine[consumed // ranks : consumed // ranks + share]


@pytest.mark.parametrize(
    "answer, said",
    [
        (chunks, "✓ Each row is read once"),
        (strides, "✓ Each row is read once"),
        (own_shard, "✓ Each row is read once"),  # the stride of a shared order: the same rows
        (from_the_start, "12 rows were read twice: begin"),
        (own_block, "were left out"),
        (lambda order, consumed, batch, rank, ranks: order[consumed : consumed + batch], "each should get 3"),
        (
            lambda order, consumed, batch, rank, ranks: order[consumed : consumed + 3],
            "two ranks got the same",
        ),
        (lambda order, consumed, batch, rank, ranks: consumed + rank, "a number; return"),
        (lambda order, consumed, batch, rank, ranks: None, "None; return a"),
        (None, "✗"),
    ],
)
def test_rows(capsys, answer, said):
    assert said in verdict(capsys, checks.rows, answer)
