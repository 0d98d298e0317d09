"""The checks of the chapter on DDP say ✓ to right answers and ✗, with a hint, to wrong ones."""

import pytest
from verdicts import verdict

from allranks.check import ddp_inside as checks
from allranks.parallel.ddp import Reducer


class Eager(Reducer):
    def ready(self, p):
        bucket = self.bucket_of[p]
        bucket.put(p)
        if not bucket.missing:
            bucket.leave()
        if not any(b.missing for b in self.buckets):
            self.finish()


class AtTheEnd(Reducer):
    def ready(self, p):
        self.bucket_of[p].put(p)
        if not any(b.missing for b in self.buckets):
            for bucket in self.buckets:
                bucket.leave()
            self.finish()


class Never(Reducer):
    def ready(self, p):
        pass


@pytest.mark.parametrize(
    "answer, said",
    [
        (Reducer, "✓ The gradients are right in either order"),
        (Eager, "an all-reduce adds whatever the ranks send"),
        (AtTheEnd, "first bucket has to leave before the second"),
        (Never, "✗ Rank 0 gets"),
        (None, "✗"),
    ],
)
def test_any_order(capsys, answer, said):
    assert said in verdict(capsys, checks.any_order, answer)


@pytest.mark.parametrize(
    "answer, said",
    [
        (45, "✓ 45 ms"),
        (15, "the last bucket alone"),
        (35, "Almost"),
        (115, "when everything is done"),
        (1, "✗"),
        (None, "None"),
    ],
)
def test_exposed(capsys, answer, said):
    assert said in verdict(capsys, checks.exposed, answer)
