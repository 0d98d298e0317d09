"""The checks of the chapter PipeDream say ✓ to right answers and ✗, with a hint, to wrong ones."""

import pytest
from verdicts import verdict

from allranks.check import pipedream


def late(order):
    updates, seen, found = 0, {}, []
    for kind, k, _ in order:
        if kind == "F":
            seen[k] = updates
        else:
            found.append(updates - seen[k])
            updates += 1
    return found


@pytest.mark.parametrize(
    "one_check, answer, said",
    [
        (pipedream.late, late, "✓"),
        (pipedream.late, lambda order: [0] * (len(order) // 2), "expected [0, 1, 2, 3, 3, 3, 3, 3]"),
        (pipedream.late, lambda order: None, "returns nothing yet"),
        (
            pipedream.stash,
            (16, 72),
            "✓ 16 GB on the first rank, as much as the whole model, and 72 GB",
        ),
        (pipedream.stash, (2, 16), "2 GB is one version; batches"),
        (pipedream.stash, (14, 72), "and backward; you have 7"),
        (pipedream.stash, (16, 128), "the fewer versions it holds"),
        (pipedream.stash, (16, 64), "do not hold 64 GB"),
        (pipedream.stash, None, "✗ Replace None with (first, all)"),
    ],
)
def test_each_check_has_one_line(capsys, one_check, answer, said):
    assert said in verdict(capsys, one_check, answer)
