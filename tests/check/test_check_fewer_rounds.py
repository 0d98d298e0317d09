"""The checks of Fewer rounds: ✓ for right answers, a hint for the usual wrong ones."""

import pytest
import torch
import torch.distributed as dist
from verdicts import verdict

from allranks import check

HERE = check.fewer_rounds


def transfer(out, to, into, source):
    moves = [dist.P2POp(dist.isend, out, to), dist.P2POp(dist.irecv, into, source)]
    for work in dist.batch_isend_irecv(moves):
        work.wait()


def in_few_rounds(mine, in_order=True, all_of_it=False):
    rank, p = dist.get_rank(), dist.get_world_size()
    have, d = mine, 1
    while d < p:
        out = have if all_of_it else have[: (p - d) * len(mine)]
        came = torch.empty_like(out)
        transfer(out, (rank - d) % p, came, (rank + d) % p)
        have, d = torch.cat([have, came]), 2 * d
    have = have[: p * len(mine)]
    return have.roll(rank * len(mine)) if in_order else have


def round_the_ring(mine):
    rank, p = dist.get_rank(), dist.get_world_size()
    parts = [mine.clone() for _ in range(p)]
    for i in range(p - 1):
        transfer(parts[(rank - i) % p], (rank + 1) % p, parts[(rank - 1 - i) % p], (rank - 1) % p)
    return torch.cat(parts)


def with_torch(mine):
    whole = mine.repeat(dist.get_world_size())
    dist.all_gather_single(whole, mine)
    return whole


@pytest.mark.parametrize(
    "one_check, answer, says",
    [
        (HERE.gather, in_few_rounds, "✓ It sends a ring's bytes in a tree's"),
        (
            HERE.gather,
            lambda mine: in_few_rounds(mine, in_order=False),
            "✗ With 2 ranks, rank 1 returned [100, 0]; expected [0, 100]. All parts are there",
        ),
        (
            HERE.gather,
            lambda mine: in_few_rounds(mine, all_of_it=True),
            "✗ All parts are in order, in few rounds",
        ),
        (
            HERE.gather,
            round_the_ring,
            "✗ All parts are in order. But with 4 ranks, 2 rounds are enough, and rank",
        ),
        (HERE.gather, with_torch, "✗ It calls all_gather"),
        (HERE.gather, lambda mine: None, "✗ The function returns nothing yet"),
        (HERE.gather, lambda mine: mine, "✗ With 2 ranks, rank 0 returned [0]; expected [0, 100]"),
        (HERE.thousand, (20, 1 + 2 * 511 / 512), "✓ 20 rounds and 3 n; a ring sends 2"),
        (HERE.thousand, (20, 3), "✗ 3 n is not right"),
        (HERE.thousand, (18, 3), "✗ 18 rounds are halving and doubling on 512"),
        (HERE.thousand, (1998, 2), "✗ Those are the ring's"),
        (HERE.thousand, (10, 3), "✗ 10 rounds is not right: what"),
        (HERE.thousand, (20, 1.998), "✗ Almost: a rank"),
        (HERE.thousand, (20, 10), "✗ 10 n is not right"),
        (HERE.thousand, (None, None), "✗ Replace None with numbers"),
        (HERE.thousand, 20, "✗ Give two numbers"),
    ],
)
def test_an_answer_gets_its_verdict(capsys, one_check, answer, says):
    assert verdict(capsys, one_check, answer).startswith(says)
