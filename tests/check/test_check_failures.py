"""The checks of the chapter on failures say ✓ to right answers and ✗, with a hint, to wrong ones."""

import pytest
from verdicts import verdict

from allranks.check import failures as checks


@pytest.mark.parametrize(
    "answer, said",
    [
        ((58.8, 0.0398), "✓ A checkpoint every 59 minutes; 4.0% of the time is lost."),
        ((58.5, 0.04), "✓"),
        ((20.8, 0.04), "1024 GPUs are 128 machines"),
        ((3528, 0.04), "in seconds"),
        ((41.6, 0.04), "Young's formula in seconds"),
        ((58.8, 0.034), "out the restart: 10"),
        ((58.8, 3.98), "in per cent"),
        ((58.8, 0.05), "0.05 is not right"),
        ((None, None), "None"),
    ],
)
def test_own_run(capsys, answer, said):
    assert said in verdict(capsys, checks.own_run, *answer)


def counted(keep, ends=True):
    def steps_trained(steps, every, lives):
        saved = trained = 0
        for life in lives:
            done = min(life, steps - saved)
            trained += done
            if ends and saved + done == steps:
                return trained
            saved += keep(done, every)
        return trained

    return steps_trained


@pytest.mark.parametrize(
    "answer, said",
    [
        (counted(lambda done, every: done // every * every), "✓ The total is"),
        (counted(lambda done, every: done), "Of 10 steps, saved after every 4, 8 are kept"),
        (counted(lambda done, every: 0), "Of 10 steps, saved after every 4, 8 are kept"),
        (counted(lambda done, every: max(0, done - 1) // every * every), "loses nothing"),
        (counted(lambda done, every: -(-done // every) * every), "Of 10 steps"),
        (lambda steps, every, lives: steps, "Of 10 steps"),
        (lambda steps, every, lives: None, "returns nothing yet"),
        (lambda steps, every, lives: 1 / 0, "✗"),
    ],
)
def test_steps_trained(capsys, answer, said):
    assert said in verdict(capsys, checks.steps_trained, answer)


@pytest.mark.parametrize(
    "answer, said",
    [
        ((4, 179), "✓ A copy every 4 minutes and a file every 179"),
        ((4, 40), "Only one failure in 20"),
        ((4, 100), "not right for the files"),
        ((10, 179), "not right for the copies"),
        ((None, None), "None"),
    ],
)
def test_two_levels(capsys, answer, said):
    assert said in verdict(capsys, checks.two_levels, *answer)
