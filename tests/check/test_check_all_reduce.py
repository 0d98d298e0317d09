"""The checks of All-reduce: ✓ for right answers, a hint for the usual wrong ones."""

import pytest
import torch
import torch.distributed as dist
from verdicts import verdict

from allranks import check

HERE = check.all_reduce


def transfer(out, to, into, source):
    moves = [dist.P2POp(dist.isend, out, to), dist.P2POp(dist.irecv, into, source)]
    for work in dist.batch_isend_irecv(moves):
        work.wait()


def ring(t, start=0):
    rank, p = dist.get_rank(), dist.get_world_size()
    left, right = (rank - 1) % p, (rank + 1) % p
    parts = t.tensor_split(p)
    for i in range(p - 1):
        mine = parts[(rank - 1 - i) % p]
        came = torch.empty_like(mine)
        transfer(parts[(rank - i) % p], right, came, left)
        mine += came
    for i in range(p - 1):
        transfer(parts[(rank + start - i) % p], right, parts[(rank + start - 1 - i) % p], left)


def misplaced(t):
    """Right with two ranks, and with a tensor of equal elements."""
    ring(t, start=1)
    if dist.get_world_size() > 2:
        t[1:] = t[1:].flip(0)


def everybody(t):
    rank, p = dist.get_rank(), dist.get_world_size()
    mine, came = t.clone(), torch.empty_like(t)
    for i in range(1, p):
        transfer(mine, (rank + i) % p, came, (rank - i) % p)
        t += came


@pytest.mark.parametrize(
    "one_check, answer, says",
    [
        (HERE.ring, lambda t: ring(t, start=1), "✓ Every rank is in every sum once"),
        (HERE.ring, ring, "✗ With 2 ranks and 2 elements, element 0 of rank 0 has the digits 01"),
        (
            HERE.ring,
            misplaced,
            "✗ With 3 ranks and 3 elements, element 1 of rank 0 holds the complete sum of",
        ),
        (HERE.ring, everybody, "✗ The sums are right, but 3 ranks send 144 bytes"),
        (HERE.ring, lambda t: None, "✗ Nothing was sent yet"),
        (HERE.ring, dist.all_reduce, "✗ It calls all_reduce"),
        (HERE.ring, lambda t: t / 0 + [], "✗ Your function did not finish"),
        (HERE.messages, 7, "✓ 7"),
        (HERE.messages, 14, "✗ That is an all-reduce"),
        (HERE.messages, 8, "✗ The rank that computes the sum"),
        (HERE.messages, 3, "✗ That may be the"),
        (HERE.messages, 56, "✗ 56 is not right"),
        (HERE.messages, None, "✗ Replace None with a number"),
        (HERE.gradients, 27_562_500_000, "✓ 27.6 GB"),
        (HERE.gradients, 27.5625, "✗ Give the answer in bytes"),
        (HERE.gradients, 28e9, "✗ Almost: 2n is"),
        (HERE.gradients, 14e9, "✗ That is the size"),
        (HERE.gradients, 13_781_250_000, "✗ That is half of the"),
        (HERE.gradients, "much", "✗ 'much' is not a number"),
    ],
)
def test_an_answer_gets_its_verdict(capsys, one_check, answer, says):
    assert verdict(capsys, one_check, answer).startswith(says)
