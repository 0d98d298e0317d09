"""The exercises of the chapter on context parallelism."""

import torch
import torch.distributed as dist
import torch.nn.functional as F

from allranks import launch
from allranks.check import exercise
from allranks.trace import trace

SECONDS = 20.0
SIZES = ((4, 16), (2, 8), (4, 64), (8, 64))  # ranks, tokens


def _pairs(positions):
    """The (query, key) pairs of a rank whose queries are at `positions`; keys come no later than queries."""
    return sum(position + 1 for position in positions)


@exercise
def split(answer):
    """`answer(sequence, ranks)` lists the positions of each rank, with equal work under a causal mask."""
    for ranks, sequence in SIZES:
        given = [list(positions) for positions in answer(sequence, ranks)]
        case = f"{sequence} tokens on {ranks} ranks"
        assert len(given) == ranks, f"{case}: there are {len(given)} lists; expected one for each rank."
        assert sorted(position for positions in given for position in positions) == list(range(sequence)), (
            f"{case}: each position should occur exactly once."
        )
        assert len({len(positions) for positions in given}) == 1, (
            f"{case}: the ranks have {list(map(len, given))} tokens; expected equal parts."
        )
        work = [_pairs(positions) for positions in given]
        uneven = max(work) / (sum(work) / ranks)
        assert uneven < 1.5, (
            f"{case}: the busiest rank computes {uneven:.2f} times the mean. Late queries meet many keys, "
            "early ones few: what else should a rank with late ones have?"
        )
        assert uneven == 1, (
            f"{case}: the ranks compute {work} pairs, nearly equal. "
            "Which two tokens together meet s + 1 keys?"
        )
    return (
        f"Every rank computes the same number of pairs: {work[0]:,} for {sequence} tokens on {ranks} ranks."
    )


@exercise
def combine(answer):
    """`answer(out, lse)` is the attention to the keys of all ranks, from each rank's attention to its own."""
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 4, 1, 8), torch.randn(2, 4, 64, 8), torch.randn(2, 4, 64, 8)
    cases = [("", k), (" with large scores", 300 * k)]
    limit = 2 * 2 * 4 * (8 + 1 + 1)  # twice an output, a sum and a maximum, in elements

    def on_rank(k):
        keys, values = (t.chunk(4, dim=2)[dist.get_rank()] for t in (k, v))
        scores = q @ keys.mT / 8**0.5
        lse = scores.logsumexp(-1, keepdim=True)
        with trace() as counted:
            out = answer((scores - lse).exp() @ values, lse)
        dist.barrier()
        return out, sum(counted.bytes.values())

    for name, keys in cases:
        expected = F.scaled_dot_product_attention(q, keys, v)
        for rank, (out, nbytes) in enumerate(launch(on_rank, keys, world_size=4, timeout=SECONDS)):
            assert getattr(out, "shape", None) == expected.shape, (
                f"Rank {rank} should return a tensor of shape {tuple(expected.shape)}."
            )
            assert not out.isnan().any(), (
                f"Rank {rank} returns nan{name}: exp overflows. First subtract the largest score of all "
                "ranks."
            )
            assert torch.allclose(out, expected, rtol=1e-4, atol=1e-5), (
                f"Rank {rank}'s output{name} differs from that of a single process. Weight each rank's "
                "output by its sum of exponentials, exp(lse)."
            )
            assert nbytes <= 4 * limit, (
                f"The output is right, but its messages have {nbytes:,} bytes; {4 * limit:,} are enough. "
                "Does a rank need the others' outputs one by one?"
            )
    return f"The output equals that of a single process, in {nbytes} bytes, however many keys there are."
