"""What GPUs did is read as it was written, and is what the book says of it."""

import gzip
import json
from pathlib import Path

import pytest

from allranks import hardware, measured, memory, profiles
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


def test_the_trace_of_two_nccl_ranks_is_what_their_profilers_wrote():
    folder = Path(__file__).resolve().parents[2] / "benchmarks/gpu/traces"
    files = sorted(folder.glob("h200-ddp-rank-*.json.gz"))
    ranks = [profiles.read(json.loads(gzip.decompress(file.read_bytes()))) for file in files]
    assert [one.rank for one in ranks] == [0, 1]
    stored = measured.results("nvidia-h200")["parts"]["nccl"]["trace"]
    assert profiles.packed(profiles.same_origin(ranks), joined=2) == stored
    early, late = profiles.shares(ranks)
    assert early.communicating > 0.7 * early.whole and late.communicating < 0.03 * late.whole
