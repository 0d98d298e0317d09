"""The checks of FSDP in practice say ✓ to right answers and ✗, with a hint, to wrong ones."""

import pytest
from verdicts import verdict

from allranks.check import fsdp_in_practice as checks


@pytest.mark.parametrize(
    "answer, said",
    [
        ((4, 16), "✓ 13 GB of states on a GPU"),
        ((8, 8), "✗ With 8 shards a GPU holds 26.0 GB"),
        ((1, 64), "✗ 3.2 GB fit"),
        ((2, 16), "✗ 2 × 16 is 32 GPUs; expected"),
        (None, "✗ Replace None with (replicas, shards)"),
        (7, "✗"),
    ],
)
def test_mesh(capsys, answer, said):
    assert said in verdict(capsys, checks.mesh, answer)


@pytest.mark.parametrize(
    "answer, said",
    [
        (3 / 4, "✓ 0.75 of the bytes"),
        (2 / 3, "✗ That is the share if weights are gathered twice"),
        (1 / 2, "✗ Only the weights travel in bf16"),
        (1, "is not right: how"),
        (None, "✗ Replace None with a number"),
    ],
)
def test_share(capsys, answer, said):
    assert said in verdict(capsys, checks.share, answer)
