"""Other people's estimators of training memory, beside ours: where they agree, and where they do not."""

import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from allranks import memory
from allranks.model import GPT
from allranks.transformer import PRESETS, decoder, parameters

COUNTS, NODES, GPUS = st.integers(1, 10**12), st.integers(1, 64), st.integers(1, 16)


@pytest.fixture(scope="module")
def deepspeed():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("deepspeed.runtime.zero", reason="the peer DeepSpeed is not installed")


@pytest.fixture(scope="module")
def stages(deepspeed):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from deepspeed.runtime.zero import stage3, stage_1_and_2
    return stage_1_and_2, stage3


def test_deepspeed_counts_20_bytes_in_stage_2_a_copy_of_the_gradients_included(stages):
    @settings(max_examples=50)
    @given(COUNTS, GPUS, NODES)
    def agree(count, gpus, nodes):
        _, on_gpu = stages[0].estimate_zero2_model_states_mem_needs(count, gpus, nodes, cpu_offload=False)
        assert on_gpu == pytest.approx(memory.zero_bytes(count, gpus * nodes, 2, "copied-20"), abs=1)

    agree()


def test_deepspeed_counts_18_bytes_in_stage_3_and_the_largest_layer_beside_them(stages):
    @settings(max_examples=50)
    @given(COUNTS, COUNTS, GPUS, NODES)
    def agree(count, largest, gpus, nodes):
        _, on_gpu, layer = stages[1].estimate_zero3_model_states_mem_needs(
            count, largest, gpus, nodes, cpu_offload=False
        )
        # The layer's weights and gradients in 16-bit: our buffer without prefetching.
        assert layer == memory.unsharded_bytes(largest, prefetched=0)
        # All of 18 bytes, where its stage 2 says 2 + 18: two bytes are left out here.
        ours = memory.zero_bytes(count, gpus * nodes, 3, "copied-20") * 18 / 20
        assert on_gpu - layer == pytest.approx(ours, abs=1)

    agree()


def test_deepspeed_leaves_16_bit_weights_on_the_device_when_the_optimizer_is_on_the_host(stages):
    on_host, on_gpu = stages[0].estimate_zero2_model_states_mem_needs(10**9, 8, 2, cpu_offload=True)
    assert on_gpu == memory.RECIPES["copied-20"].weights * 10**9
    # Half as much again as 4 bytes for each GPU, which each process takes while it starts.
    assert on_host == 1.5 * max(4 * 16, 16) * 10**9


def test_deepspeed_has_no_estimator_of_stage_1(stages):
    named = [name for module in stages for name in vars(module) if name.startswith("estimate_zero")]
    assert named and not any("zero1" in name for name in named)


def test_deepspeed_counts_the_parameters_that_we_count(stages):
    counted = stages[1].model_to_params(GPT())
    assert counted[0] == parameters(PRESETS["running"])


def test_accelerate_counts_16_bytes_of_fp32_and_for_mixed_precision_8_of_them_as_the_step():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimate = pytest.importorskip(
            "accelerate.commands.estimate", reason="the peer accelerate is not installed"
        )
    fp32 = estimate.estimate_training_usage(4 * 1000, "float32")
    ours = memory.zero_states(1000, 1, 0, "fp32")
    assert (fp32["model"], fp32["gradients"], fp32["optimizer"]) == ours
    assert max(fp32.values()) == fp32["step"] == ours.total
    # In mixed precision its phases do not add up: it shows the largest of them, 8 bytes, and not 16.
    mixed = estimate.estimate_training_usage(4 * 1000, "float16")
    assert max(mixed.values()) == mixed["optimizer"] == 8 * 1000
    assert mixed["gradients"] == 6 * 1000
    assert memory.zero_bytes(1000, 1, 0) == 16 * 1000


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_the_cache_of_transformers_holds_the_predicted_bytes(kv_heads):
    transformers = pytest.importorskip("transformers", reason="the peer transformers is not installed")
    sizes = {"num_hidden_layers": 3, "hidden_size": 32, "intermediate_size": 48, "vocab_size": 50}
    heads = {"num_attention_heads": 4, "num_key_value_heads": kv_heads}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, **heads))
    with torch.no_grad():
        cache = model(torch.zeros(2, 7, dtype=torch.long), use_cache=True).past_key_values
    held = sum(t.numel() * t.element_size() for layer in cache.layers for t in (layer.keys, layer.values))
    ours = decoder(3, 32, 4, 50, 16, kv_heads=kv_heads, feed_forward=48, gated=True)
    assert held == memory.kv_cache_bytes(ours, tokens=7, sequences=2, element=4)
