"""The exercises of the chapter on failures."""

from allranks import failures
from allranks.check import exercise
from allranks.check.stubs import is_number, is_returned

HOUR = 3600


@exercise
def own_run(minutes, share):
    """`minutes` between two checkpoints of 1024 GPUs, and the `share` of the time that is lost."""
    is_number(minutes), is_number(share)
    mean = failures.between(128, failures.RATES["RSC-1"])
    right = failures.best_interval(60, mean) / 60
    by_gpus = failures.best_interval(60, failures.between(1024, failures.RATES["RSC-1"])) / 60
    assert abs(minutes - by_gpus) > 0.02 * by_gpus, "1024 GPUs are 128 machines, and the rate is of machines."
    assert abs(minutes - 60 * right) > right, "That is in seconds; the exercise asks for minutes."
    assert abs(minutes - right) < 0.02 * right, (
        f"{minutes:g} minutes is not right: put c and M into Young's formula in seconds."
    )
    lost = failures.lost_share(60 * right, 60, mean, 600)
    without = failures.lost_share(60 * right, 60, mean)
    assert abs(share - without) > 0.02 * without, (
        "That leaves out the restart: 10 minutes after each failure."
    )
    assert abs(share - 100 * lost) > lost, "That is in per cent; give a share between 0 and 1."
    assert abs(share - lost) < 0.02 * lost, (
        f"{share:g} is not right: what is lost to writing, to repeated steps and to the restart?"
    )
    return f"A checkpoint every {right:.0f} minutes; {lost:.1%} of the time is lost."


@exercise
def steps_trained(answer):
    """`answer(steps, every, lives)`: the steps that a run trains in all, repeated ones included."""
    cases = [
        ((24, 24, [100]), "A run that does not fail trains each step once"),
        ((24, 4, [10, 100]), "Of 10 steps, saved after every 4, 8 are kept"),
        ((24, 4, [8, 100]), "A life that ends right after a checkpoint loses nothing"),
        ((20, 8, [3, 5, 9, 100]), "A life that reaches no checkpoint is lost entirely"),
        ((10, 4, [4, 6]), "The last steps need no checkpoint of their own"),
        ((24, 2, [9, 0, 13, 1, 1, 50]), "A life may be 0 steps long"),
    ]
    for (steps, every, lives), hint in cases:
        found = answer(steps, every, list(lives))
        is_returned(found, "a number")
        right = _trained(steps, every, lives)
        assert found == right, f"{hint}: for {steps}, {every}, {lives} expected {right}, not {found!r}."
    return "The total is the run's own steps plus those that were lost and repeated."


def _trained(steps, every, lives):
    saved = trained = 0
    for life in lives:
        for step in range(saved, steps):
            if life == 0:
                break
            life, trained = life - 1, trained + 1
            if step + 1 == steps:
                return trained
            if (step + 1) % every == 0:
                saved = step + 1
    raise ValueError("the last life is too short")


@exercise
def two_levels(copies, files):
    """Minutes between two `copies` in memory, and between two `files`."""
    is_number(copies), is_number(files)
    right = failures.best_interval(2, 4 * HOUR) / 60, failures.best_interval(200, 80 * HOUR) / 60
    assert abs(copies - right[0]) < 0.03 * right[0], (
        f"{copies:g} minutes is not right for the copies: what are c and M in Young's formula?"
    )
    every_failure = failures.best_interval(200, 4 * HOUR) / 60
    assert abs(files - every_failure) > 0.03 * every_failure, (
        "Only one failure in 20 needs the file: how often does such a failure happen?"
    )
    assert abs(files - right[1]) < 0.03 * right[1], (
        f"{files:g} minutes is not right for the files: how long does writing one take?"
    )
    return f"A copy every {right[0]:.0f} minutes and a file every {right[1]:.0f}."
