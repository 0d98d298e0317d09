"""What do the tasks of the lab share? Ranks under NCCL's rules, pairs of ranks, refusals that name a rank."""

import contextlib
import itertools
import random
from datetime import timedelta

import torch
import torch.distributed as dist

from allranks import private
from allranks.check.labs import on_ranks as run_on_ranks

# How far off a tensor may be, in parts of its length and beside that: the gradient of a key's bias is 0 but
# for the rounding of numbers of size ten, whose length reached 6e-7 in 300 draws.
RELATIVE, ABSOLUTE = 1e-4, 1e-5
_steps = itertools.count()  # of `agreed`, on each rank alike


class Refusal(Exception):
    """What is wrong with the reader's answer, found on a rank: a sentence."""


def must(condition, sentence):
    """Raise `Refusal` with this sentence, behind the rank's number, unless the condition holds."""
    if not condition:
        raise Refusal(f"Rank {dist.get_rank()}: {sentence}")


@contextlib.contextmanager
def agreed():
    """What one rank refuses in this block, all refuse at its end: none waits for one that has gone."""
    sentence = ""
    try:
        yield
    except Refusal as refusal:
        sentence = str(refusal)
    store, step = private.default_store(), next(_steps)
    keys = [f"lab_07 step {step}, rank {rank}" for rank in range(dist.get_world_size())]
    store.set(keys[dist.get_rank()], sentence)
    store.wait(keys, timedelta(days=1))  # the deadline is that of the launch
    said = [store.get(key).decode() for key in keys]
    if any(said):
        raise Refusal(next(filter(None, said)))


def _heard(test, *args):
    """What `test` returns, or the sentence of its `Refusal`: (sentence or None, result)."""
    try:
        return None, test(*args)
    except Refusal as refusal:
        return str(refusal), None


def on_ranks(test, *args, world_size):
    """What `test(*args)` returns on each CPU rank; fail with the sentence of the first `Refusal`."""
    ranks = run_on_ranks(_heard, test, *args, world_size=world_size, backend="gloo", rules="nccl")
    for sentence, _ in ranks:
        assert sentence is None, sentence
    return [result for _, result in ranks]


def drawn(*size):
    """Random numbers of this size, drawn anew in each check."""
    draw = torch.Generator().manual_seed(random.randrange(2**31))
    return torch.randn(*size, generator=draw)


def pair():
    """This rank's group of two: ranks 0 and 1, 2 and 3."""
    groups = [dist.new_group([first, first + 1]) for first in range(0, dist.get_world_size(), 2)]
    return groups[dist.get_rank() // 2]


def part(whole, dim):
    """This rank's half of `whole` along `dim`: ranks 0 and 2 have the first one."""
    return whole.chunk(2, dim)[dist.get_rank() % 2]


def must_be(found, expected, what, why):
    """Refuse a tensor that is not the expected one, up to rounding.

    Its length counts, not each of its numbers: one that is small only because large ones cancel has their
    rounding error, which is no mistake.
    """
    must(torch.is_tensor(found), f"{what} is {type(found).__name__}; expected a tensor. {why}")
    must(
        found.shape == expected.shape,
        f"{what} has shape {tuple(found.shape)}; expected {tuple(expected.shape)}. {why}",
    )
    off, length = float((found.detach() - expected).norm()), float(expected.norm())
    must(
        off <= RELATIVE * length + ABSOLUTE,
        f"{what} has a relative error of {off / max(length, 1e-30):.2g}; expected at most {RELATIVE:g}. "
        f"{why}",
    )


def must_be_cut(found, expected, what):
    """Refuse a parameter that is not this rank's slice, or that is a view of the whole."""
    must(isinstance(found, torch.nn.Parameter), f"{what} is not an nn.Parameter.")
    must_be(found, expected, what, "It should be this rank's slice, by its number in `group`.")
    must(
        found.untyped_storage().nbytes() == expected.numel() * expected.element_size(),
        f"{what} keeps {found.untyped_storage().nbytes():,} bytes in memory; expected "
        f"{expected.numel() * expected.element_size():,}: a view keeps the whole tensor alive, a clone "
        "does not.",
    )
