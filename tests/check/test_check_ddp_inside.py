"""The checks of the chapter on DDP say ✓ to right answers and ✗, with a hint, to wrong ones."""

import pytest
import torch
import torch.distributed as dist
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
        (Reducer, "✓ Right in either order"),
        (Eager, "an all-reduce adds whatever the ranks send"),
        (AtTheEnd, "the first bucket has to leave before the second is ready"),
        (Never, "✗ Rank 0 gets"),
        (None, "✗"),
    ],
)
def test_any_order(capsys, answer, said):
    assert said in verdict(capsys, checks.any_order, answer)


def ink_of_all(microbatches):
    ink = torch.tensor(sum(int((t[:, 1:] != 0).sum()) for t in microbatches))
    dist.all_reduce(ink)
    return ink.item()


def right(model, microbatches, ink_loss, scale=None):
    scale = (scale or dist.get_world_size()) / ink_of_all(microbatches)
    with model.no_sync():
        for tokens in microbatches[:-1]:
            (ink_loss(model, tokens)[0] * scale).backward()
    (ink_loss(model, microbatches[-1])[0] * scale).backward()


def not_times_the_ranks(model, microbatches, ink_loss):
    right(model, microbatches, ink_loss, scale=1)


def loud(model, microbatches, ink_loss):
    ink = ink_of_all(microbatches)
    for tokens in microbatches:
        (ink_loss(model, tokens)[0] * dist.get_world_size() / ink).backward()


def mean_of_means(model, microbatches, ink_loss):
    for tokens in microbatches:
        loss, count = ink_loss(model, tokens)
        (loss / count / len(microbatches)).backward()


@pytest.mark.parametrize(
    "answer, said",
    [
        (right, "✓ The gradient of all ink"),
        (not_times_the_ranks, "DDP divides by the number of ranks"),
        (loud, "✗ The gradient is right, but 3 times"),
        (mean_of_means, "a pixel of ink has to count the same"),
        (lambda model, microbatches, ink_loss: None, "some parameters have no gradient"),
        (None, "✗"),
    ],
)
def test_accumulate(capsys, answer, said):
    assert said in verdict(capsys, checks.accumulate, answer)


@pytest.mark.parametrize(
    "answer, said",
    [
        (45, "✓ 45 ms"),
        (15, "the last bucket alone"),
        (35, "Almost"),
        (115, "when all is done"),
        (1, "✗"),
        (None, "None"),
    ],
)
def test_exposed(capsys, answer, said):
    assert said in verdict(capsys, checks.exposed, answer)
