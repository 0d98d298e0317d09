"""Which model fills a device, where a step's time went: the arithmetic of `make gpu-check`."""

import json

import pytest
from on_gpu import ceilings, held, machine, sizing, taught, timing, training, where

from allranks import hardware, launch
from allranks.transformer import decoder, mfu, parameters, step_flops


@pytest.mark.parametrize("gigabytes", [16, 24, 40, 85, 150, 192])
def test_the_model_fills_half_of_a_device_and_the_batch_the_rest(gigabytes):
    nbytes = gigabytes * 10**9
    model = sizing.largest(nbytes)
    batch = sizing.largest_batch(model, nbytes)
    larger = sizing.member(model.heads + 2)
    assert sizing.states(model) == 18 * parameters(model) <= 0.45 * nbytes < sizing.states(larger)
    assert sizing.step_bytes(model, batch) <= 0.9 * nbytes < sizing.step_bytes(model, batch + 1)
    assert model.hidden % 256 == 0 and model.vocabulary % 128 == 0 and model.head_width == 128


def test_an_h100_gets_a_model_of_one_to_three_billion_parameters():
    model = sizing.largest(85 * 10**9)
    assert 1e9 < parameters(model) < 3e9
    assert model.vocabulary == 50304  # GPT-2's 50257, padded


def test_a_device_for_which_one_sequence_is_too_long_is_refused():
    with pytest.raises(ValueError, match=r"one sequence of 2048 tokens needs .* take a device with more"):
        sizing.largest_batch(sizing.largest(10**9), 10**9)


def test_the_batch_steps_down_until_it_fits():
    tried, freed = [], []

    def attempt(batch):
        tried.append(batch)
        if batch > 9:
            raise MemoryError
        return "done"

    found = sizing.first_that_fits(attempt, 13, MemoryError, lambda: freed.append(True))
    assert found == (9, "done")
    assert tried == [13, 12, 11, 10, 9]
    assert len(freed) == 4
    assert list(sizing.smaller(64))[:3] == [56, 49, 43]
    assert list(sizing.smaller(64))[-1] == 1
    with pytest.raises(MemoryError, match="not even one sequence fits, where 3 were predicted to"):
        sizing.first_that_fits(lambda batch: attempt(99), 3, MemoryError)


def test_the_products_of_a_step_are_its_flops_without_the_attention_core():
    model, batch = sizing.member(4), 3
    flops = sum(
        2 * rows * inner * columns * times for rows, inner, columns, times in training.products(model, batch)
    )
    core = 3 * 4 * batch * model.sequence**2 * model.hidden * model.layers
    assert flops == step_flops(model, batch) - core


def test_utilisation_is_that_of_the_book():
    model = sizing.member(4)
    found = training.utilisation(model, 2, 0.5, 1e15)
    assert found["mfu"] == mfu(model, 2, 0.5, 1, 1e15) == found["flops_per_second"] / 1e15
    assert found["tokens_per_second"] == 2 * 2048 / 0.5


def test_the_scaled_model_is_the_running_one_in_another_size():
    shape = decoder(3, 32, 4, 96, 24, tied=False)
    model = held.running_model(shape, "cpu")
    assert sum(p.numel() for p in model.parameters()) == parameters(shape)
    assert model(held.random_tokens(shape, 2, "cpu")[:, :-1]).shape == (2, 24, 96)


def test_on_a_gpu_bytes_are_those_that_tensors_asked_for(monkeypatch):
    said = iter([(1000, 1000), (1700, 2500)])  # bytes now, and at most

    def statistics():
        now, most = next(said)
        return {"requested_bytes.all.current": now, "requested_bytes.all.peak": most}

    given = iter([1024, 2560])
    for name in ("synchronize", "reset_peak_memory_stats"):
        monkeypatch.setattr(f"torch.cuda.{name}", lambda: None)
    monkeypatch.setattr("torch.cuda.memory_stats", statistics)
    monkeypatch.setattr("torch.cuda.memory_allocated", lambda: next(given))
    with held.Counted("cuda") as counted:
        pass
    assert (counted.kept, counted.peak, counted.given) == (700, 1500, 1536)


def test_a_count_that_is_not_the_formula_s_is_found():
    row = held.Row("weights", 1000, 1001, 0, 0)
    assert not held.agrees(row)
    assert held.agrees(row._replace(slack=1))
    assert held.agrees(row._replace(slack=None)) is None


def test_a_comparison_that_cannot_be_made_does_not_stop_the_others(monkeypatch):
    def refuse(*_):
        raise RuntimeError("No available kernel.")

    monkeypatch.setattr(held, "activation_rows", refuse)
    failures, shape = [], decoder(1, 16, 2, 32, 8, tied=False)
    found = held.rows(shape, 1, "cpu", None, lambda what, error: failures.append((what, str(error))))
    assert failures == [("activations", "No available kernel.")]
    assert len(found) == 8


@pytest.mark.parametrize(
    "name, kind",
    [
        ("nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNT", "matrix products"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_256x128_nn>", "matrix products"),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_cublas", "matrix products"),
        ("void cublasLt::splitKreduce_kernel<32, 16, int, float>", "matrix products"),
        ("triton_tem_fused_addmm_3", "matrix products"),
        ("aten::addmm", "matrix products"),
        ("aten::mm", "matrix products"),
        ("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 64>>", "attention"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_7", "attention"),
        ("fmha_cutlassF_bf16_aligned_64x128_rf_sm80", "attention"),
        ("aten::_scaled_dot_product_flash_attention_for_cpu", "attention"),
        ("void at::native::multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata<4>>", "optimizer"),
        ("aten::_fused_adamw_", "optimizer"),
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "communication"),
        ("Memcpy DtoD (Device -> Device)", "copies"),
        ("Memset (Device)", "copies"),
        ("triton_red_fused__log_softmax_addmm_nll_loss_forward_7", where.REST),
        ("triton_poi_fused__scaled_dot_product_flash_attention_gelu_mm_2", where.REST),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>", where.REST),
        ("void at::native::embedding_backward_feature_kernel<float>", where.REST),
    ],
)  # fmt: skip
def test_a_kernel_is_of_the_kind_that_its_name_says(name, kind):
    assert where.kind_of(name) == kind


def trace(tmp_path, events):
    path = tmp_path / "trace.json"
    keys = ("ph", "cat", "tid", "name", "ts", "dur")
    path.write_text(json.dumps({"traceEvents": [dict(zip(keys, event, strict=True)) for event in events]}))
    return where.read(path)


def test_kernels_that_overlap_count_once_and_the_gaps_are_idle(tmp_path):
    events = trace(
        tmp_path,
        [
            ("X", "kernel", 7, "nvjet_tst", 1000.0, 400.0),
            ("X", "kernel", 8, "ncclDevKernel_AllReduce", 1200.0, 400.0),  # 200 of them beside the product
            ("X", "gpu_memcpy", 7, "Memcpy HtoD", 1700.0, 100.0),
            ("X", "gpu_user_annotation", 7, "Optimizer.step", 1000.0, 900.0),
            ("X", "cuda_runtime", 1, "cudaLaunchKernel", 900.0, 10.0),
            ("i", "cpu_instant_event", 1, "[memory]", 900.0, 10.0),
        ],
    )
    found = where.seconds_by_kind(events, 1e-3)
    assert found[where.IDLE] == pytest.approx(300e-6)
    assert found["copies"] == pytest.approx(100e-6 * 700 / 900)
    assert found["matrix products"] == found["communication"] == pytest.approx(400e-6 * 700 / 900)
    assert sum(found.values()) == pytest.approx(1e-3)


def test_on_a_cpu_an_operator_counts_without_those_that_it_calls(tmp_path):
    events = trace(
        tmp_path,
        [
            ("X", "cpu_op", 1, "aten::linear", 0.0, 100.0),
            ("X", "cpu_op", 1, "aten::addmm", 10.0, 80.0),
            ("X", "cpu_op", 1, "aten::gelu", 100.0, 50.0),
            ("X", "cpu_op", 2, "aten::mul", 20.0, 40.0),
        ],
    )
    found = where.seconds_by_kind(events, 300e-6)
    assert found["matrix products"] == pytest.approx(80e-6)
    assert found[where.REST] == pytest.approx(110e-6)
    assert found[where.IDLE] == pytest.approx(110e-6)
    assert where.unnamed(events, 1) == [("aten::linear", pytest.approx(100e-6))]


def test_the_paragraph_says_what_was_measured():
    by_kind = {"matrix products": 0.3, "attention": 0.05, where.IDLE: 0.05}
    text = where.paragraph(0.4, by_kind, 0.2, 0.25, "the published peak")
    assert "A step takes 400 ms." in text
    assert "At the published peak its model FLOPs would take 200 ms, which is an MFU of 50.0 %." in text
    assert "take 250 ms: if they were all, the MFU would be 80.0 %." in text
    assert "matrix products 300 ms (75.0 %), attention 50 ms (12.5 %), idle 50 ms (12.5 %)." in text
    assert "1.20 times as long as alone, and all else 100 ms." in text
    assert "saw no kernel" in where.paragraph(0.4, None, 0.2, 0.25, "the published peak")


def test_a_step_on_ranks_takes_as_long_as_its_slowest_and_a_ratio_is_one_of_medians():
    assert timing.slowest([[1, 5, 3], [2, 4, 9]]) == [2, 5, 9]
    assert timing.ratio_of_medians([3, 1, 100], [2, 2, 7]) == 1.5


def test_calls_take_turns():
    order = []
    calls = {name: lambda name=name: order.append(name) for name in "ab"}
    taken = timing.interleaved(calls, "cpu", rounds=3, warm_up=1)
    assert order == list("abababab")
    assert {name: len(seconds) for name, seconds in taken.items()} == {"a": 3, "b": 3}


@pytest.mark.parametrize("ranks, factor", [(1, 0), (2, 1), (4, 1.5), (8, 1.75)])
def test_the_bus_bandwidth_has_nccl_tests_factor(ranks, factor):
    on_ranks = [[(1000, [2.0, 0.5 + rank, 3.0])] for rank in range(ranks)]
    slowest = min(2.0, 0.5 + ranks - 1)
    assert ceilings.bus_bandwidths(on_ranks) == [(1000, slowest, pytest.approx(factor * 1000 / slowest))]


def test_the_best_of_each_dtype_is_found():
    found = [("bf16", 1024, 3.0), ("bf16", 2048, 5.0), ("fp32", 1024, 1.0)]
    assert ceilings.best_of(found) == {"bf16": (5.0, 2048), "fp32": (1.0, 1024)}


def test_devices_are_those_whose_peak_the_book_has():
    for name in machine.ACCELERATORS.values():
        assert hardware.peak(name, "bf16" if name != "v100-32gb" else "fp16") > 1e14


@pytest.mark.parametrize("name", taught.PAIRS)
def test_alone_on_one_rank_ours_and_torch_s_compute_the_same(name):
    shape = decoder(1, 16, 2, 32, 8, tied=False)
    (taken,) = launch(taught.on_rank, name, shape, 2, 2, world_size=1, timeout=120)
    assert {who: len(seconds) for who, seconds in taken.items()} == {"ours": 2, "torch": 2}


def test_ours_that_computes_something_else_is_found():
    with pytest.raises(AssertionError, match=r"loss: ours and torch's differ by 0\.1, more than"):
        taught._same(1.0, 1.1, 1e-4, "loss")
