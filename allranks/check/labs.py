"""How is the answer to a lab's task tried? On ranks, in sizes that the page does not show, before a deadline.

The reader's code runs on ranks only: it can end, hang or spoil its process, and the oracle is in another.
"""

import torch

from allranks.check import verdict
from allranks.launch import launch

SECONDS = 20.0  # a right answer takes less than one


def on_ranks(test, *args, world_size=4, backend=None):
    """Return what `test(*args)` returns on each rank; `test` calls the reader's code."""
    return launch(test, *args, world_size=world_size, timeout=SECONDS, backend=backend)


def is_written(*answers):
    """Fail unless each answer is a function (or a class), and not a number, `None` or `...`."""
    for answer in answers:
        assert callable(answer), f"This task is about a function, and {answer!r} is none."


def is_tensor(found, what, shape, dtype=None):
    """Fail unless `found` is a plain tensor of `shape` (and `dtype`); `what` names it in the sentence."""
    assert found is not None and found is not ..., f"{what} is None: the lines that return it are missing."
    assert type(found) in (torch.Tensor, torch.nn.Parameter), (
        f"{what} is of type {type(found).__name__}, and has to be a tensor."
    )
    assert found.shape == torch.Size(shape), (
        f"{what} has shape {tuple(found.shape)}, and with this input it has to be {tuple(shape)}."
    )
    assert dtype in (None, found.dtype), f"{what} is in {found.dtype}, and has to be in {dtype}."


def are_close(found, expected, what, rtol=1e-4, atol=1e-6):
    """Fail unless the tensor `found` is `expected`, up to rounding; `what` names it in the sentence."""
    is_tensor(found, what, expected.shape, expected.dtype)
    found, expected = found.detach().double(), expected.detach().double()
    assert found.isfinite().all(), f"{what} is not finite."
    off = (found - expected).norm() / expected.norm().clamp_min(1e-30)
    assert torch.allclose(found, expected, rtol=rtol, atol=atol), (
        f"{what} is off by {float(off):.2g} of its size."
    )


def milestone(tasks, whole, reached):
    """Print a line for each task and, if all are solved, whether they work together.

    `tasks` lists (name, check, answers…); `whole()` is a test as of an exercise, and `reached` the
    sentence that it earns.
    """
    verdicts = [verdict(check.__wrapped__, *answers) for _, check, *answers in tasks]
    solved = sum(line.startswith("✓") for line in verdicts)
    for line, (name, *_) in zip(verdicts, tasks, strict=True):
        print(line[0], name)
    if solved < len(tasks):
        print(f"{solved} of {len(tasks)} tasks are solved.")
        return
    line = verdict(whole)
    print(line)
    if line.startswith("✓"):
        print(f"Milestone reached: {reached}")
