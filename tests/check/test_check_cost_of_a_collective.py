"""The checks of What a collective costs: ✓ for right answers, a hint for the usual wrong ones."""

import pytest
import torch.distributed as dist
from verdicts import verdict

from allranks import check

HERE = check.cost_of_a_collective


@pytest.mark.parametrize(
    "one_check, answer, says",
    [
        (HERE.crossover, 13_464_000, "✓ 13.5 MB"),
        (HERE.crossover, 1_530_000, "✗ That is α/β"),
        (HERE.crossover, 13.464, "✗ Give the answer in bytes"),
        (HERE.crossover, 1e9, "✗ At 1,000,000,000 bytes the two times differ"),
        (HERE.buckets, 15.66, "✓ 16 times"),
        (HERE.buckets, 39.77, "✗ That is with Simple for both"),
        (HERE.buckets, 300, "✗ The latency is 300 times"),
        (HERE.buckets, 1 / 15.66, "✗ That is the inverse: how"),
        (HERE.buckets, 7, "✗ 7 times is not right: how"),
        (HERE.between_nodes, 0.1875, "✓ 0.1875"),
        (HERE.between_nodes, 1.5, "✗ That is what a whole node sends"),
        (HERE.between_nodes, 1.9375, "✗ That is a flat ring"),
        (HERE.between_nodes, 0.09375, "✗ An all-reduce goes around twice"),
        (HERE.between_nodes, None, "✗ Replace None with a number"),
        (HERE.buckets, "many", "✗ 'many' is not a number"),
        (HERE.pieces, 298, "✓ 298 pieces: 1.46 times"),
        (HERE.pieces, 297.6, "✓ 298 pieces"),
        (HERE.pieces, 64, "✗ 64 pieces take 1."),
        (HERE.pieces, 0, "✗ 0 is not a number"),
        (HERE.pieces, None, "✗ Replace None with a number"),
        (HERE.chain, lambda t, k, transfer: None, "✗ Nothing was sent yet"),
    ],
)
def test_an_answer_gets_its_verdict(capsys, one_check, answer, says):
    assert verdict(capsys, one_check, answer).startswith(says)


def along(t, k, transfer, wait=False, last=True):
    """A chain that may `wait` for all pieces before it sends, or forget the `last` one."""
    rank, p = dist.get_rank(), dist.get_world_size()
    parts = t.chunk(k)[: k if last else k - 1]
    if wait and rank > 0:
        for part in parts:
            transfer(into=part, source=rank - 1)
    for i in range(len(parts) + 1):
        receives = not wait and rank > 0 and i < len(parts)
        sends = rank < p - 1 and i > 0
        if receives or sends:
            transfer(
                parts[i - 1] if sends else None,
                rank + 1 if sends else None,
                parts[i] if receives else None,
                rank - 1 if receives else None,
            )


def test_a_chain_in_pieces_is_right(capsys):
    assert verdict(capsys, HERE.chain, along)[0] == "✓"


def test_a_chain_that_waits_takes_too_many_rounds(capsys):
    def waits(t, k, transfer):
        along(t, k, transfer, wait=True)

    assert "can pass a piece on while it receives" in verdict(capsys, HERE.chain, waits)


def test_a_chain_that_forgets_a_piece_is_wrong(capsys):
    def forgets(t, k, transfer):
        along(t, k, transfer, last=k == 1)

    assert "12 of 48 elements on rank 1 differ from rank 0's." in verdict(capsys, HERE.chain, forgets)


def test_a_star_is_no_chain(capsys):
    def star(t, k, transfer):
        rank, p = dist.get_rank(), dist.get_world_size()
        if rank > 0:
            return transfer(into=t, source=0)
        for other in range(1, p):
            transfer(out=t, to=other)

    assert "sends to rank 2; expected the next rank" in verdict(capsys, HERE.chain, star)
