"""Is the answer right? One line, ✓ or ✗ with a hint; never an exception, never a hang.

There is a module for each chapter: `check.ranks.swap(my_swap)` runs `my_swap` on ranks and compares what
comes back with what one process computes.
"""

import functools

from allranks.launch import LaunchError


def exercise(test):
    """Turn a test into a check that prints one line.

    The test returns the sentence for a right answer; it says what is wrong by a failed `assert`.
    """

    @functools.wraps(test)
    def check(*answers):
        print(verdict(test, *answers))

    return check


def verdict(test, *answers):
    """Return the one line about `answers`: `✓` and what `test` returns, or `✗` and what is wrong."""
    try:
        return f"✓ {test(*answers)}"
    except AssertionError as wrong:
        return f"✗ {wrong}"
    except LaunchError as failure:
        return f"✗ Your function did not come to its end: {failure}."
    except Exception as error:
        return f"✗ This cannot be checked: {type(error).__name__}: {error}"


from allranks.check import (  # noqa: E402 (they use `exercise`)
    all_reduce,
    choosing_a_layout,
    context_parallel,
    cost_of_a_collective,
    ddp_inside,
    experts,
    fsdp,
    gpipe,
    gradient_averaging,
    lab_01,
    lab_02,
    lab_03,
    lab_04,
    labs,
    megatron,
    memory_of_training,
    mesh_tensorflow,
    network,
    one_device,
    one_f_one_b,
    precision,
    ranks,
    sequence_parallel,
    three_d,
    zero,
    zero_bubble,
)

__all__ = [
    "all_reduce",
    "choosing_a_layout",
    "context_parallel",
    "cost_of_a_collective",
    "ddp_inside",
    "exercise",
    "experts",
    "fsdp",
    "gpipe",
    "gradient_averaging",
    "lab_01",
    "lab_02",
    "lab_03",
    "lab_04",
    "labs",
    "megatron",
    "memory_of_training",
    "mesh_tensorflow",
    "network",
    "one_device",
    "one_f_one_b",
    "precision",
    "ranks",
    "sequence_parallel",
    "three_d",
    "verdict",
    "zero",
    "zero_bubble",
]
