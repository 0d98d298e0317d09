"""A configuration is refused with what was given, what is allowed and what to do, or has its bytes."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks import deepspeed_config, memory

CPU, NVME = {"device": "cpu"}, {"device": "nvme", "nvme_path": "/local"}
WHOLE = st.integers(1, 64)


def config(stage=0, **options):
    zero = {"stage": stage, **{name: value for name, value in options.items() if name.startswith("offload")}}
    rest = {name: value for name, value in options.items() if not name.startswith("offload")}
    return {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "zero_optimization": zero, **rest}


@given(WHOLE, WHOLE, WHOLE)
def test_any_two_of_the_three_sizes_give_the_third(micro, steps, ranks):
    sizes = {
        "train_batch_size": micro * steps * ranks,
        "train_micro_batch_size_per_gpu": micro,
        "gradient_accumulation_steps": steps,
    }
    assert deepspeed_config.check(sizes, ranks)[:3] == (micro * steps * ranks, micro, steps)
    for left_out in sizes:
        given = {name: size for name, size in sizes.items() if name != left_out}
        assert deepspeed_config.check(json.dumps(given), ranks)[:3] == (micro * steps * ranks, micro, steps)


def test_a_gradient_norm_is_clipped_at_one_unless_it_says_otherwise():
    assert deepspeed_config.check(config(), 1).clipping == 1.0
    assert deepspeed_config.check(config(gradient_clipping=0.0), 1).clipping == 0.0


@pytest.mark.parametrize(
    "given, said",
    [
        ([], "allowed: an object"),
        ({}, "neither train_batch_size nor train_micro_batch_size_per_gpu"),
        ({"train_batch_size": 7}, "7, but 3 a micro-batch × 1 steps × 2 ranks is 6"),
        ({"train_batch_size": 1}, "1, but 0 a micro-batch"),
        ({"train_batch_size": "auto"}, "Trainer"),
        ({"train_batch_size": 4.0}, "whole number of at least 1"),
        (
            {"train_batchsize": 8, "train_batch_size": 8},
            "train_batchsize is a name that DeepSpeed does not read",
        ),
        (config(4), "stage is 4; allowed: 0, 1, 2 or 3"),
        (config(True), "stage is True"),
        (config(fp16={"enabled": True}), "fp16 and bf16 are both enabled"),
        (config(2, offload_optimiser=CPU), "offload_optimiser is not an option"),
        (config(2, offload_optimizer={"device": "tape"}), "allowed: none, cpu or nvme"),
        (config(2, offload_optimizer="cpu"), "allowed: an object"),
        (config(0, offload_optimizer=CPU), "in stage 0; allowed: stage 1 to 3; set stage to 1"),
        (config(2, offload_optimizer=NVME), "on nvme in stage 2; allowed: stage 3 only"),
        (config(3, offload_optimizer={"device": "nvme"}), "give offload_optimizer.nvme_path"),
        (config(2, offload_param=CPU), "offload_param on cpu in stage 2; allowed: stage 3 only"),
        (config(2, offload_optimizer={**CPU, "ratio": 0.5}), "allowed: 1.0 below stage 3"),
    ],
)
def test_what_would_be_wrong_or_without_effect_is_refused(given, said):
    with pytest.raises(ValueError) as refused:
        deepspeed_config.check(given, 2)
    assert said in str(refused.value)
    assert str(refused.value).count("; ") >= 2  # given; allowed; what to do


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_without_offload_everything_is_on_the_device(stage):
    needs = deepspeed_config.needs(config(stage), 8e9, 8)
    assert needs.device == memory.zero_bytes(8e9, 8, stage)
    assert (needs.host, needs.disk, needs.traffic.link) == (0, 0, 0)
    assert deepspeed_config.bandwidth(config(stage), 8e9, 8, seconds=1) == (0, 0)


def test_zero_offload_keeps_2_of_16_bytes_on_the_device_and_moves_4():
    offloaded = config(2, offload_optimizer=CPU)
    needs = deepspeed_config.needs(offloaded, 10e9, 1)
    assert (needs.device, needs.host, needs.disk) == (2 * 10e9, 14 * 10e9, 0)
    assert deepspeed_config.bandwidth(offloaded, 10e9, 1, seconds=2.0) == (4 * 10e9 / 2, 0)


@given(st.integers(1, 3), st.sampled_from([CPU, NVME]), st.booleans(), WHOLE)
def test_all_states_are_somewhere(stage, place, weights_too, ranks):
    offload = {"offload_optimizer": place} if stage == 3 else {"offload_optimizer": CPU}
    if weights_too and stage == 3:
        offload["offload_param"] = place
    needs = deepspeed_config.needs(config(stage, **offload), 1e9, ranks)
    copied = 2e9 / ranks if stage == 1 else 0  # the slice of the gradients that the host gets
    held = needs.device + needs.host + needs.disk
    assert held == pytest.approx(memory.zero_bytes(1e9, ranks, stage) + copied)


def test_weights_alone_on_the_host_are_legal_and_not_modelled():
    weights = config(3, offload_param=CPU)
    assert deepspeed_config.check(weights, 2).weights == "cpu"
    with pytest.raises(ValueError, match="not modelled"):
        deepspeed_config.needs(weights, 1e9, 2)
