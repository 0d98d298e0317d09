"""What GPUs did is read as it was written, and is what the book says of it."""

import pytest

from allranks import hardware, measured, memory
from allranks.transformer import Transformer, step_flops


def test_a_machine_that_has_not_been_measured_is_refused_with_those_that_have():
    with pytest.raises(ValueError, match="'nvidia-b200' has not been measured; there are nvidia-h200"):
        measured.results("nvidia-b200")


@pytest.mark.parametrize("name", measured.machines())
def test_no_share_of_a_data_sheet_is_above_one(name):
    found = measured.results(name)
    sheet = hardware.accelerator(found["machine"]["accelerator"])
    speed, kernels = found["parts"]["speed"], found["parts"]["kernels"]
    assert all(0 < rate < sheet.bandwidth for _, rate in speed["copy"])
    assert all(0 < rate < sheet.peak[dtype] for dtype, _, rate in speed["matmul"])
    for _, seconds, flops, nbytes in kernels["rows"]:
        assert max(flops / sheet.peak["bf16"], nbytes / sheet.bandwidth) < seconds


@pytest.mark.parametrize("name", measured.machines())
def test_the_mfu_is_that_of_the_step_and_its_parts_are_the_whole_step(name):
    found = measured.results(name)
    step, sheet = found["parts"]["training"], hardware.accelerator(found["machine"]["accelerator"])
    flops = step_flops(Transformer(**step["shape"]), step["batch"])
    assert step["mfu"] == pytest.approx(flops / step["step_seconds"] / sheet.peak["bf16"])
    assert sum(step["by_kind"].values()) == pytest.approx(step["step_seconds"])


@pytest.mark.parametrize("name", measured.machines())
def test_recomputed_layers_freed_what_the_formula_says(name):
    found = measured.results(name)["parts"]["kernels"]
    shape, batch = Transformer(**found["model"][0]), found["model"][1]
    kept = memory.layer_activation_bytes(shape, batch, dropout=False, fused=True, small=True)
    kept -= 2 * batch * shape.sequence * shape.hidden  # its input, which stays
    (_, _, most), *others = found["recomputation"]
    for again, _, held in others:
        assert (most - held) / again == pytest.approx(kept, abs=2048)
