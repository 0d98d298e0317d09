"""What hides behind compute is not free, sends are cut over tensor-parallel ranks, and stages can be even."""

import pytest

from allranks import hardware, plan, transformer

GPT, A100 = transformer.PRESETS["megatron-146b"], hardware.ACCELERATORS["a100-80gb"]
LINKS = {"inside": hardware.LINKS["nvlink-3"], "between": hardware.LINKS["infiniband-hdr"]}
PIPELINE = plan.layout(tp=8, pp=8, dp=24, microbatches=96, recomputation="full")


def test_one_layer_of_each_window_of_stage_3_is_exposed():
    took, sent = plan.priced(GPT, plan.layout(dp=64, zero_stage=3, microbatch=16), A100, **LINKS)
    assert took.data == pytest.approx(sent.data / GPT.layers)
    took, _ = plan.priced(GPT, plan.layout(dp=64, zero_stage=2, microbatch=16), A100, **LINKS)
    assert took.data == 0


def test_hidden_traffic_costs_its_contention():
    rates, layout = plan.rates("dgxc", "h100"), plan.layout(dp=64, zero_stage=2, microbatch=16)
    free = plan.priced(GPT, layout, A100, rates=rates._replace(contention=0.0, product=PRODUCT), **LINKS)
    half = plan.priced(GPT, layout, A100, rates=rates._replace(contention=0.5, product=PRODUCT), **LINKS)
    assert free[0].data == 0 and half[0].data == pytest.approx(half[1].data / 2)


PRODUCT = {"bf16": 0.8}


def test_scattered_sends_cross_the_network_once():
    """An eighth on each of eight ranks, and a gather inside the node (Narayanan et al. 2021, section 4.1)."""
    old = {"sequence_parallel": False, "overlap": 0.0, **LINKS}
    whole = plan.parts(GPT, PIPELINE, A100, **old).pipeline
    cut = plan.parts(GPT, PIPELINE, A100, scattered=True, **old).pipeline
    assert whole / 8 < cut < whole / 3
    assert plan.parts(GPT, PIPELINE, A100, scattered=True, **LINKS) == plan.parts(
        GPT, PIPELINE, A100, **LINKS
    )


def test_balanced_stages_wait_less_and_compute_the_same():
    model = transformer.decoder(16, 2048, 32, 131_072, 4096)
    layout = plan.layout(pp=2, dp=4, microbatch=4, microbatches=16)
    even = plan.parts(model, layout, A100, **LINKS)
    balanced = plan.parts(model, layout, A100, balanced=True, **LINKS)
    assert balanced.compute == even.compute and balanced.imbalance < even.imbalance / 2


def test_the_loss_takes_its_bytes_where_the_logits_are():
    layout = plan.layout(tp=2, dp=32, zero_stage=1, microbatch=2)
    model = transformer.PRESETS["llama3-8b"]
    more = plan.memory_of(model, layout, loss=12).total - plan.memory_of(model, layout).total
    assert more == 8 * 2 * model.sequence * model.vocabulary / 2
    wide = transformer.decoder(8, 1024, 8, 10**6, 2048)
    staged = plan.layout(pp=2, dp=2, microbatches=8)
    first, last = (plan.memory_of(wide, staged, loss=loss) for loss in (0, 40))
    assert (first.stage, last.stage) == (0, 1)
    assert plan.price(model, layout, A100, **LINKS, loss=12).memory.total == (
        plan.memory_of(model, layout, loss=12).total
    )
    for each in plan.plans(model, A100, 64, 128, **LINKS, loss=12, at_most={"cp": 1})[:20]:
        alone = plan.price(model, each.layout, A100, **LINKS, loss=12)
        assert each.memory.total == pytest.approx(alone.memory.total) and each.fits


def test_an_iterator_of_choices_is_as_good_as_a_list():
    model, device = transformer.PRESETS["gpt2"], hardware.accelerator("a100-80gb")
    listed = plan.plans(model, device, 4, 8, zero_stages=[1], recomputations=["none", "full"], **LINKS)
    choices = {"zero_stages": iter([1]), "recomputations": iter(["none", "full"])}
    assert listed and plan.plans(model, device, 4, 8, **choices, **LINKS) == listed
