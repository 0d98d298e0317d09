"""Test the answer to a lab's task on ranks, in sizes that the page does not show, before a deadline.

The reader's code runs on ranks only: it can crash, hang or corrupt its process, and the oracle is in another.
"""

import os
import random
import tempfile

import torch
import torch.distributed as dist

from allranks import model
from allranks.check import passed, verdict
from allranks.launch import LaunchError, launch, recorder

DRAW = "ALLRANKS_DRAW"  # the variable that has a submission's number, above 0
SECONDS = 20.0  # a right answer takes less than one


def on_ranks(test, *args, world_size=4, backend=None, timeout=None, **options):
    """Return what `test(*args)` returns on each rank; `test` calls the reader's code. timeout: `SECONDS`."""
    timeout = SECONDS if timeout is None else timeout
    return launch(test, *args, world_size=world_size, timeout=timeout, backend=backend, **options)


def all_on_ranks(hint, test, *args, **options):
    """`on_ranks`; adds `hint` if ranks wait for each other."""
    try:
        return on_ranks(test, *args, **options)
    except LaunchError as failure:
        if "raised" in str(failure) or "exited" in str(failure):
            raise
        raise AssertionError(f"Your function did not finish: {failure}. {hint}") from failure


def groups_used():
    """The ranks of the group of every collective that this process has entered, from any thread."""
    with tempfile.NamedTemporaryFile() as file:
        recorder.write(file.name)
        calls = recorder.read(file.name).calls
    everyone = range(dist.get_world_size())
    members = [everyone if call.members == "all" else call.members for call in calls if call.members]
    return [sorted(ranks) for ranks in members]


def drawn(seed):
    """`seed` in a notebook, whose checks repeat themselves; another for each submission that is graded."""
    return seed + 1000 * int(os.environ.get(DRAW, "0"))


def hidden(cases):
    """The list `cases(random)` for a submission that is graded; `[]` in a notebook."""
    return list(cases(random.Random(drawn(0)))) if drawn(0) else []


def digits():
    """The book's pictures as tokens (pictures, 65); for a submission in an order of its own."""
    pictures = model.digits()
    if drawn(0) == 0:
        return pictures
    return pictures[torch.randperm(len(pictures), generator=torch.Generator().manual_seed(drawn(0)))]


def is_written(*answers):
    """Fail unless each answer is a function (or a class), not a number, `None` or `...`."""
    for answer in answers:
        assert callable(answer), f"The answer to this task is a function, and {answer!r} is not one."


def is_tensor(value, what, shape, dtype=None):
    """Fail unless `value` is a plain tensor of `shape` (and `dtype`); `what` names it in the sentence."""
    assert value is not None and value is not ..., f"{what} is None: the return is missing."
    assert type(value) in (torch.Tensor, torch.nn.Parameter), (
        f"{what} is of type {type(value).__name__}; expected a tensor of shape {tuple(shape)}."
    )
    assert value.shape == torch.Size(shape), (
        f"{what} has shape {tuple(value.shape)}; expected {tuple(shape)}."
    )
    assert dtype in (None, value.dtype), f"{what} is in {value.dtype}; expected {dtype}."


def are_close(value, expected, what, rtol=1e-4, atol=1e-6):
    """Fail unless the tensor `value` is `expected`, up to rounding; `what` names it in the sentence."""
    is_tensor(value, what, expected.shape, expected.dtype)
    value, expected = value.detach().double(), expected.detach().double()
    assert value.isfinite().all(), f"{what} is infinite or NaN; expected finite numbers."
    error = (value - expected).norm() / expected.norm().clamp_min(1e-30)
    assert torch.allclose(value, expected, rtol=rtol, atol=atol), (
        f"{what} has a relative error of {float(error):.2g}; expected at most {rtol:g}."
    )


def _mark(test, answers):
    return "✓" if passed.before(test, tuple(answers)) else verdict(test, *answers)[0]


_listings = []  # of those who want to know what a milestone's tasks are


def tasks_of(lab_milestone, *answers):
    """The tasks that a lab's milestone tries with `answers`; none is tried now, so these can be anything."""
    _listings.append([])
    try:
        lab_milestone(*answers)
    finally:
        tasks = _listings.pop()
    return tasks


def milestone(tasks, whole, reached):
    """Print a line for each task and, if all are solved, whether they work together.

    A check that has passed with the same functions is not run again. `tasks` lists (name, check, answers…);
    `whole()` is a test like that of an exercise, and `reached` the sentence to print when it passes.
    """
    if _listings:
        _listings[-1].extend(tasks)
        return
    marks = [_mark(check.__wrapped__, answers) for _, check, *answers in tasks]
    solved = marks.count("✓")
    for mark, (name, *_) in zip(marks, tasks, strict=True):
        print(mark, name)
    if solved < len(tasks):
        print(f"{solved} of {len(tasks)} tasks are solved.")
        return
    line = verdict(whole)
    print(line)
    if line.startswith("✓"):
        print(f"Milestone reached: {reached}")
