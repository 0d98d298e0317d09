"""The explorer of the roofline says what `allranks.roofline` and `allranks.inference` count."""

import pytest

from allranks import hardware, inference, transformer
from allranks.explorers import roofline as explorer
from allranks.explorers.frame.controls import settings
from allranks.explorers.frame.svg import NARROW, WIDE
from allranks.explorers.frame.words import figures, seconds
from allranks.roofline import addition, product, reached

GPT3 = transformer.PRESETS["gpt3-175b"]


def drawn(width=WIDE, **given):
    return explorer.draw(width, **settings(explorer.CONTROLS, given))


@pytest.mark.parametrize(
    "given, share",
    [
        ({"tokens": 2048}, "100 %"),
        ({"operation": "scores", "tokens": 2048}, "38.5 %"),
        ({"tokens": 1}, "0.34 %"),
        ({"operation": "addition"}, "0.06 %"),
    ],
)
def test_the_shares_are_those_that_the_page_prints(given, share):
    assert drawn(**given)["result"][0] == share


@pytest.mark.parametrize("name", [name for name, _ in explorer.OPERATIONS])
def test_every_operation_is_counted_by_the_arithmetic(name):
    step = {"decode": (1, 1024, 64), "prefill": (64, 0, 1)}.get(name)
    counted = {
        "product": lambda: product(64, 12_288, 49_152, 2),
        "scores": lambda: product(64, 128, 64, 2, 96),
        "addition": lambda: addition(64 * 12_288, 2),
    }
    made = inference.step(GPT3, *step) if step else counted[name]()
    now = reached(explorer.counted(name, 64, 2, "gpt3-175b", 1, 1, 1024), "h100")
    assert (now.arithmetic, now.memory) == (
        made.flops / hardware.peak("h100"),
        made.nbytes / hardware.accelerator("h100").bandwidth,
    )
    words = drawn(operation=name, tokens=64)["text"]
    assert f"Arithmetic takes {seconds(now.arithmetic)}, memory {seconds(now.memory)};" in words
    missing = now.missing
    assert (f"{figures(missing)} are missing" in words) == (missing > 0)


def test_own_numbers_are_for_a_product():
    assert drawn()["idle"] == ["inner", "columns", "past"]
    assert drawn(model="own")["idle"] == ["past"]
    assert drawn(operation="decode")["idle"] == ["inner", "columns"]
    one = explorer.counted("product", 8, 2, "own", 64, 128, 1024)
    assert one == product(8, 64, 128, 2)


def test_a_format_that_a_device_lacks_is_refused_by_name():
    with pytest.raises(ValueError, match="dtype must be one of bf16, fp16, fp32, tf32 on A100, not fp8"):
        drawn(device="a100-80gb", dtype="fp8")


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_a_setting_moves_nothing_else_in_the_picture(width):
    changes = ({}, {"tokens": 1}, {"operation": "decode"}, {"device": "b200", "dtype": "fp4"})
    heights = {
        drawn(width, **changed)["svg"].partition('height="')[2].partition('"')[0] for changed in changes
    }
    assert len(heights) == 1


def test_what_does_not_fit_into_the_device_is_said():
    assert "do not fit into 80 GB" in drawn(operation="decode")["insight"]
    assert "do not fit" not in drawn(operation="decode", model="llama3-8b", tokens=32)["insight"]
