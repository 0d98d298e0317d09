"""The exercises of the chapter on memory tell right from wrong, and say why."""

import pytest
from verdicts import verdict

from allranks import memory
from allranks.check import memory_of_training as check
from allranks.model import PIXELS
from allranks.transformer import PRESETS, parameters

RUNNING = PRESETS["running"]


def largest_batch(capacity):
    """The solution, from the formulas alone."""

    def held(batch):
        how, tokens = {"element": 4, "dropout": False, "fused": True}, batch * PIXELS
        kept = RUNNING.layers * memory.layer_activation_bytes(RUNNING, batch, small=True, **how)
        kept += memory.output_activation_bytes(RUNNING, batch, element=4) + 8 * tokens
        return 12 * parameters(RUNNING) + kept + 8 * (batch + tokens + PIXELS + tokens) + 4

    return next(batch - 1 for batch in range(2, 100) if held(batch) > capacity)


@pytest.mark.parametrize(
    "exercise, answer, said",
    [
        (check.parameters_that_fit, 5, "✓ 5 billion"),
        (check.parameters_that_fit, None, "✗ Replace None with a number"),
        (check.parameters_that_fit, 40, "✗ That many can be loaded"),
        (check.parameters_that_fit, 20, "✗ That counts only weights and gradients"),
        (check.parameters_that_fit, 80 / 12, "✗ That counts only Adam's states"),
        (check.parameters_that_fit, 7, "✗ 7 billion parameters take 112 GB"),
        (check.largest_batch, largest_batch, "✓ 2, 5, 8, 15 pictures"),
        (check.largest_batch, lambda capacity: 1, "✗ With 5 MB and a batch of 1, one more picture would fit"),
        (check.largest_batch, lambda capacity: 3, "✗ With 5 MB and a batch of 3, 5.79 MB are held"),
        (check.largest_batch, lambda capacity: None, "✗ The function returns nothing yet"),
        (check.largest_batch, lambda capacity: 2.5, "✗ Return a whole number of pictures"),
        (check.largest_batch, lambda capacity: 10**9, "✗ That would be less than 0.1 MB"),
        (check.layout, {"zero_stage": 1, "recomputation": "full"}, "✓ 46 GB, and one stage lower"),
        (check.layout, {"zero_stage": 3, "recomputation": "full"}, "✓ 23 GB. A lower stage would"),
        (
            check.layout,
            {"zero_stage": 0, "recomputation": "full"},
            "✗ It needs 116 GB on each device, 108 GB of it for states",
        ),
        (
            check.layout,
            {"zero_stage": 3, "recomputation": "none"},
            "✗ It needs 86 GB on each device, 71 GB of it for activ",
        ),
        (check.layout, {"zero_stage": None, "recomputation": None}, "✗ Replace None with a stage"),
        (check.layout, {"zero_stage": 5, "recomputation": "full"}, "✗ This cannot be checked: ValueError"),
        (check.layout, 1, "✗ Give a layout: a dictionary"),
    ],
)
def test_an_answer_gets_one_line(exercise, answer, said, capsys):
    assert verdict(capsys, exercise, answer).startswith(said)
