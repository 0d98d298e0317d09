"""States, buffers, offload and the cache: as published, and as they have to be for every input."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks import memory
from allranks.memory import RECIPES, Recipe
from allranks.transformer import PRESETS, decoder, parameters

COUNTS = st.integers(1, 10**13)
RANKS = st.integers(1, 20000)
STAGES = st.integers(0, 3)
BYTES = st.sampled_from([0, 0.5, 1, 2, 4, 8])
ANY_RECIPE = st.builds(Recipe, BYTES, BYTES, BYTES, BYTES, BYTES, BYTES)


@pytest.mark.parametrize("zero_stage, gigabytes", [(0, 120), (1, 31.4), (2, 16.6), (3, 1.9)])
def test_seven_and_a_half_billion_parameters_on_64_ranks_take_what_figure_1_of_zero_says(
    zero_stage, gigabytes
):
    assert round(memory.zero_bytes(7.5e9, 64, zero_stage) / 1e9, 1) == gigabytes


@pytest.mark.parametrize(
    "name, nbytes, stage_1",
    [
        ("zero-16", 16, lambda d: 4 + 12 / d),
        ("megatron-18", 18, lambda d: 6 + 12 / d),  # Megatron-LM's table, bf16 parameters, fp32 gradients
        ("copied-20", 20, lambda d: 4 + 16 / d),  # its row of fp16 parameters and gradients
        ("fp32", 16, lambda d: 8 + 8 / d),  # its row of fp32
    ],
)
def test_the_conventions_of_16_18_and_20_bytes(name, nbytes, stage_1):
    assert RECIPES[name].bytes_per_parameter == nbytes
    for ranks in (1, 2, 8, 64):
        assert memory.zero_bytes(1, ranks, 0, name) == nbytes
        assert memory.zero_bytes(1, ranks, 1, RECIPES[name]) == pytest.approx(stage_1(ranks))


@given(COUNTS, RANKS, ANY_RECIPE)
def test_the_ranks_of_stage_3_hold_together_what_each_holds_in_stage_0(count, ranks, recipe):
    whole = memory.zero_bytes(count, ranks, 0, recipe)
    assert ranks * memory.zero_bytes(count, ranks, 3, recipe) == pytest.approx(whole)
    assert whole == recipe.bytes_per_parameter * count


@given(COUNTS, RANKS, ANY_RECIPE)
def test_each_stage_takes_at_most_what_the_stage_before_takes(count, ranks, recipe):
    by_stage = [memory.zero_bytes(count, ranks, stage, recipe) for stage in range(4)]
    assert by_stage == sorted(by_stage, reverse=True)


@given(COUNTS, RANKS, STAGES, ANY_RECIPE)
def test_more_ranks_never_take_more_and_more_parameters_never_less(count, ranks, stage, recipe):
    here = memory.zero_bytes(count, ranks, stage, recipe)
    assert memory.zero_bytes(count, ranks + 1, stage, recipe) <= here
    assert memory.zero_bytes(count + 1, ranks, stage, recipe) >= here


@given(st.floats(1e6, 1e15), RANKS, STAGES)
def test_the_largest_model_fills_the_memory(nbytes, ranks, stage):
    count = memory.trainable_parameters(nbytes, ranks, stage)
    assert memory.zero_bytes(count, ranks, stage) == pytest.approx(nbytes)


def test_without_sharding_32_gb_hold_two_billion_parameters():
    assert memory.trainable_parameters(32e9, 64, 0) == 2e9


@pytest.mark.parametrize("zero_stage, volume", [(0, 2), (1, 2), (2, 2), (3, 3)])
def test_a_rank_sends_2_psi_2_psi_and_3_psi(zero_stage, volume):
    elements = memory.zero_sent_bytes(1000, 10**9, zero_stage) / 2 / 1000
    assert elements == pytest.approx(volume)


@given(COUNTS, RANKS, STAGES, st.integers(1, 9))
def test_sending_of_several_microbatches(count, ranks, stage, microbatches):
    one = memory.zero_sent_bytes(count, ranks, stage)
    many = memory.zero_sent_bytes(count, ranks, stage, microbatches=microbatches)
    times = [1, 1, (1 + microbatches) / 2, microbatches][stage]
    assert many == pytest.approx(times * one)
    assert (one == 0) == (ranks == 1)


def test_fully_sharded_without_resharding_sends_what_stage_2_sends():
    kept = memory.zero_sent_bytes(1000, 4, 3, resharded=False)
    assert kept == memory.zero_sent_bytes(1000, 4, 2) == 2 * 2 * 1000 * 3 / 4


@given(st.integers(0, 300), st.integers(1, 40), st.integers(1, 40))
def test_the_shards_of_a_tensor_are_the_tensor(rows, width, ranks):
    shards = [memory.shard_elements(rows, width, ranks, rank) for rank in range(ranks)]
    assert sum(shards) == rows * width
    assert shards == sorted(shards, reverse=True)


@given(st.lists(st.integers(1, 100), max_size=30), st.integers(1, 60), st.integers(1, 200))
def test_every_gradient_is_in_one_bucket_and_only_the_last_is_not_full(sizes, first, cap):
    buckets = memory.ddp_buckets(sizes, first, cap)
    assert [index for bucket in buckets for index in bucket] == list(range(len(sizes)))
    for number, bucket in enumerate(buckets[:-1]):
        limit = cap if number else first
        assert sum(sizes[index] for index in bucket) >= limit
        assert sum(sizes[index] for index in bucket[:-1]) < limit


def test_offloading_the_optimizer_moves_4_psi_bytes_a_step():
    traffic = memory.offload_traffic(1e9, world_size=4)
    assert (traffic.to_host, traffic.to_device) == (2e9 / 4, 2e9 / 4)
    assert (traffic.link, traffic.disk) == (1e9, 0)


def test_weights_on_the_host_come_for_forward_for_recomputation_and_for_backward():
    passes = {"none": 2, "selective": 2, "full": 3}
    for recomputation, times in passes.items():
        traffic = memory.offload_traffic(10, weights="cpu", recomputation=recomputation, microbatches=4)
        assert traffic.to_device == 4 * times * 2 * 10


def test_a_disk_reads_and_writes_twelve_bytes_a_parameter_of_optimizer_states():
    traffic = memory.offload_traffic(10, optimizer="nvme", weights="nvme")
    assert (traffic.disk_read, traffic.disk_written) == (120 + 2 * 20, 120 + 20)


@given(st.floats(1, 1e12), st.floats(1e-3, 1e3), st.floats(0.01, 0.99))
def test_at_the_bandwidth_that_is_needed_computation_has_its_share_of_the_time(nbytes, seconds, efficiency):
    moving = nbytes / memory.bandwidth_needed(nbytes, seconds, efficiency)
    assert seconds / (seconds + moving) == pytest.approx(efficiency)
    assert nbytes / memory.bandwidth_needed(nbytes, seconds) == pytest.approx(seconds)


@given(st.integers(1, 10**6), st.floats(1e12, 1e16), st.floats(0.01, 0.99))
def test_intensity_and_efficiency_are_bytes_and_seconds_said_otherwise(tokens, peak, efficiency):
    # Three times the weights and once the gradients, 2 bytes each, beside 8 FLOPs a weight and token.
    bandwidth = memory.bandwidth_needed(4 * 2, 8 * tokens / peak, efficiency)
    intensity = memory.offload_intensity("weights", tokens)
    assert memory.offload_efficiency(intensity, bandwidth, peak) == pytest.approx(efficiency)


def test_intensities_are_those_of_zero_infinity():
    assert memory.offload_intensity("weights", 1024) == 1024
    assert memory.offload_intensity("optimizer", 1024) == 1024 / 4
    assert memory.offload_intensity("checkpoints", 1, hidden=2048, interval=3) == 24 * 2048 * 3


@pytest.mark.parametrize(
    "name, nbytes",
    [
        ("gpt3-175b", 4_718_592),
        ("llama2-7b", 512 * 1024),
        ("llama3-8b", 128 * 1024),
        ("llama3-70b", 320 * 1024),
        ("llama3-405b", 504 * 1024),
    ],
)
def test_bytes_that_a_token_leaves_in_the_cache(name, nbytes):
    assert memory.kv_cache_bytes(PRESETS[name]) == nbytes


@given(st.integers(1, 6), st.integers(1, 4), st.integers(1, 64))
def test_grouped_queries_divide_the_cache_and_ranks_divide_its_heads(kv_heads, group, ranks):
    grouped = decoder(3, 12 * kv_heads * group, kv_heads * group, 50, 64, kv_heads=kv_heads)
    own = decoder(3, 12 * kv_heads * group, kv_heads * group, 50, 64)
    assert memory.kv_cache_bytes(own) == group * memory.kv_cache_bytes(grouped)
    one_head = memory.kv_cache_bytes(grouped) // kv_heads
    assert memory.kv_cache_bytes(grouped, tensor_parallel=ranks) == one_head * math.ceil(kv_heads / ranks)


def test_deepseek_keeps_576_elements_a_layer_and_token():
    assert memory.latent_cache_bytes(61) == 61 * 576 * 2 == 70_272


@pytest.mark.parametrize(
    "call, complaint",
    [
        (lambda: memory.zero_bytes(-1, 4, 1), "parameters must be a number of at least 0, not -1"),
        (lambda: memory.zero_bytes(math.nan, 4, 1), "parameters must be a number of at least 0, not nan"),
        (lambda: memory.zero_bytes(1, 0, 1), "world_size must be a whole number of at least 1, not 0"),
        (lambda: memory.zero_bytes(1, 4, 4), "zero_stage must be one of 0, 1, 2, 3, not 4"),
        (lambda: memory.zero_bytes(1, 4, 1, "fp7"), "recipe must be a Recipe or one of bf16, "),
        (lambda: memory.zero_bytes(1, 4, 1, Recipe(2, -2, 0, 4, 4, 4)), "recipe.gradients must be"),
        (lambda: memory.kv_cache_bytes(PRESETS["gpt2"], tokens=-1), "tokens must be a whole number"),
        (lambda: memory.offload_traffic(1, optimizer="tape"), "one of 'device', 'cpu', 'nvme', not 'tape'"),
        (lambda: memory.offload_traffic(1, optimizer="device", weights="cpu"), "optimizer must be 'cpu'"),
        (lambda: memory.bandwidth_needed(1, 1, 1), "efficiency must be below 1"),
    ],
)
def test_what_cannot_be_is_refused(call, complaint):
    with pytest.raises(ValueError) as refused:
        call()
    assert complaint in str(refused.value)


def test_gpt_2_has_24_gb_of_states():
    assert memory.zero_bytes(1.5e9, 1, 0) == 24e9
    assert round(memory.zero_bytes(parameters(PRESETS["gpt2-xl"]), 1, 0) / 1e9) == 25  # 1.56 billion


@given(
    st.floats(1, 1e12), st.integers(1, 1024), st.integers(0, 3), st.sampled_from(sorted(memory.RECIPES)),
    st.integers(1, 32), st.integers(1, 96),
)  # fmt: skip
def test_windows_send_what_a_step_sends(parameters, world_size, stage, recipe, microbatches, units):
    windows = memory.zero_windows(parameters, world_size, stage, recipe, microbatches, units)
    sent = memory.zero_sent_bytes(parameters, world_size, stage, recipe, microbatches)
    assert sum(window.times * window.sent for window in windows) == pytest.approx(sent)


def test_every_stage_is_hidden_from_the_same_number_of_tokens_on():
    """2Ψ bytes under forward's 2ΨT FLOPs, 4Ψ under backward's 4ΨT: T = F/B, with or without ZeRO."""
    flops = {"forward": 2, "backward": 4}  # for each parameter and token
    for stage in range(4):
        windows = memory.zero_windows(1, 10**9, stage)
        assert max(each.sent / flops[each.beside] for each in windows) == pytest.approx(1)
