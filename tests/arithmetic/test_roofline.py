"""The roofline of one device, against counts of shapes and the steps of inference."""

import pytest

from allranks import hardware, inference, roofline, transformer


def test_a_product_reads_both_matrices_and_writes_the_third():
    one = roofline.product(2, 3, 5, 4, times=7)
    assert one == (7 * 2 * 2 * 3 * 5, 7 * 4 * (2 * 3 + 3 * 5 + 2 * 5))
    assert one.intensity == one.flops / one.nbytes


def test_an_addition_computes_one_flop_for_three_elements():
    for elements in (1, 1000):
        assert roofline.addition(elements, 2).intensity == 1 / 6


def test_the_share_is_that_of_williams():
    for tokens in (1, 100, 304, 2048):
        one = roofline.product(tokens, 12_288, 49_152, 2)
        now = roofline.reached(one, "h100")
        assert now.share == min(1, one.intensity / hardware.ridge("h100"))
        assert now.missing == max(0, hardware.ridge("h100") - one.intensity)
        assert now.share == pytest.approx(now.arithmetic / now.seconds)
        assert (now.bound == "arithmetic") == (now.share == 1)


@pytest.mark.parametrize("device, dtype", [("h100", "bf16"), ("b200", "fp8"), ("mi300x", "fp16")])
def test_a_step_of_inference_has_the_seconds_that_inference_gives(device, dtype):
    step = inference.step(transformer.PRESETS["llama3-8b"], 1, 1024, 16)
    now = roofline.reached(roofline.Operation(step.flops, step.nbytes), device, dtype)
    assert (now.arithmetic, now.memory) == step.seconds(device, dtype)
    assert now.bound == step.bound(device, dtype)


def test_a_format_that_a_device_lacks_is_refused():
    with pytest.raises(ValueError, match="dtype on a100-80gb must be one of"):
        roofline.reached(roofline.addition(1, 1), "a100-80gb", "fp8")
