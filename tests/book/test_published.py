"""Published runs are facts with sources; the committed constants predict them as the table says."""

import re
from pathlib import Path
from statistics import mean, median

import pytest

from allranks import plan, published, transformer
from allranks.hardware import ACCELERATORS, LINKS
from allranks.plan.layer import product_seconds
from allranks.published.predict import kendall

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def made():
    return published.predictions()


def test_every_run_has_a_source_that_is_cited():
    keys = set(re.findall(r"@\w+\{(\w+),", (ROOT / "book/references.bib").read_text(encoding="utf-8")))
    assert {run.source for run in published.runs()} == set(published.STACKS)
    for name, stack in published.STACKS.items():
        assert stack.key in keys, name
    ids = [run.id for run in published.runs()]
    assert len(ids) == len(set(ids)) == 635
    assert all(run.where and run.gpus and run.model for run in published.runs())


def test_a_layout_that_is_printed_fits_the_devices_that_are_printed(made):
    for each in made[0]:
        run, layout = each.run, each.plan.layout
        assert layout.devices == run.gpus and layout.batch == run.gbs, run.id


def test_a_printed_utilisation_follows_from_the_printed_seconds():
    """DGX Cloud counts all pairs of tokens; 405B is the 1 % off that its README's formula explains."""
    for run in published.runs():
        suspect = "SUSPECT" in (run.notes or "")
        if run.source == "dgxc" and run.mfu_pct and run.hardware == "h100" and not suspect:
            model, layout, accelerator, _ = published.setup(run)
            peak = accelerator.peak["fp8" if run.dtype == "fp8" else "bf16"]
            ours = transformer.mfu(model, layout.batch, run.step_seconds, layout.devices, peak)
            assert 100 * ours == pytest.approx(run.mfu_pct, rel=0.025), run.id


def test_a_third_of_the_setups_is_kept_out_with_all_their_twins():
    by_layout = {}
    for run in published.runs():
        if run.tp and run.pp:
            key = (run.source, run.model, run.hardware, run.dtype, run.seq, run.mbs, run.tp, run.pp, run.cp)
            key += (run.vp, run.ep, run.zero, run.recompute)
            by_layout.setdefault(key, set()).add(run.kept_out)
    assert all(len(sides) == 1 for sides in by_layout.values())
    assert 0.25 < mean(sides.pop() for sides in by_layout.values()) < 0.42


def cells():
    """The rows of the table of errors in benchmarks/README.md: (source, generation) to its numbers."""
    text = (ROOT / "benchmarks/README.md").read_text(encoding="utf-8").split("## Published runs")[1]
    for line in text.splitlines():
        parts = [part.strip() for part in line.strip("| ").split("|")]
        if len(parts) == 9 and re.fullmatch(r"\d+", parts[2]):
            yield parts


def test_the_committed_constants_give_the_committed_table(made):
    checked = 0
    for source, generation, fitted, average, middle, kept, kept_average, kept_middle, _ in cells():
        if source.startswith("**"):
            kinds = ("dense",) if "dense" in source else ("dense", "experts", "stalled", "tp over nodes")
            some = [each for each in made[0] if published.kind(each.run) in kinds]
        else:
            name, _, kind = source.partition(", ")
            some = [
                each
                for each in made[0]
                if (each.run.source, each.run.generation) == (name, generation)
                and published.kind(each.run) == (kind or "dense")
            ]
        for out, printed in ((False, (fitted, average, middle)), (True, (kept, kept_average, kept_middle))):
            sizes = [abs(each.error) for each in some if each.run.kept_out == out]
            assert len(sizes) == int(printed[0])
            if sizes:
                assert (f"{mean(sizes):.1%}", f"{median(sizes):.1%}") == printed[1:]
                checked += 1
    assert checked > 30


def test_dense_runs_are_predicted_within_what_the_book_says(made):
    for out, most, middle in ((False, 0.07, 0.04), (True, 0.085, 0.05)):
        sizes = [
            abs(each.error)
            for each in made[0]
            if published.kind(each.run) == "dense" and each.run.kept_out == out
        ]
        assert mean(sizes) < most and median(sizes) < middle


def test_memory_as_the_source_defines_it(made):
    sizes = [
        abs(published.memory_error(each))
        for each in made[0]
        if each.run.source == "bigscience" and each.run.memory_gib
    ]
    assert len(sizes) == 40 and mean(sizes) < 0.1


def test_bandwidths_of_large_messages_inside_a_node():
    """Rings on A100 and the switch's sums on H200, as published, within 10 %."""
    for each in published.collectives():
        if each.hardware in ("a100", "h200") and each.nbytes >= 2**29:
            assert each.predicted == pytest.approx(each.measured, rel=0.1)
    alone = plan.collective_seconds("all_reduce", 2**30, 8, "nvlink-4")
    assert plan.collective_seconds("all_reduce", 2**30, 8, "nvlink-4", switch=True) < 0.8 * alone
    with pytest.raises(ValueError, match="op must be one of 'all_gather'"):
        plan.collective_seconds("broadcast", 2**30, 8, "nvlink-4")


@pytest.mark.parametrize("source, why", [("maxtext", "a TPU"), ("nanotron", "an unpublished shape")])
def test_what_cannot_be_asked_is_said(source, why):
    run = next(run for run in published.runs() if run.source == source)
    with pytest.raises(ValueError, match=why):
        published.predicted(run)


def test_a_stack_or_a_generation_without_constants_is_named():
    with pytest.raises(ValueError, match="generation must be one of 'a100', 'b200'"):
        plan.rates("dgxc", "mi300x")
    with pytest.raises(ValueError, match="stack must be one of"):
        plan.rates("megatron", "h100")


def test_small_products_reach_less_of_the_peak():
    rates, accelerator = plan.rates("dgxc", "h100"), ACCELERATORS["h100"]

    def share(n):
        return 2 * n**3 / product_seconds(n, n, n, accelerator, "bf16", rates) / accelerator.peak["bf16"]

    assert share(256) < 0.25 < share(1024) < share(4096) < share(16384) < rates.product["bf16"]
    assert share(2**20) == pytest.approx(rates.product["bf16"], rel=0.01)


def test_rates_price_every_layout_and_its_parts_add_up():
    model = transformer.PRESETS["llama3-70b"]
    links = {"inside": LINKS["nvlink-4"], "between": LINKS["roce-400"]}
    rates = plan.rates("dgxc", "h100")
    chosen = {"rates": rates, "fused": True, "dropout": False, **links}
    found = plan.plans(model, ACCELERATORS["h100"], 64, 128, at_most={"tp": 8}, **chosen)
    assert found
    for each in found[:20] + found[-20:]:
        alone = plan.price(model, each.layout, ACCELERATORS["h100"], **chosen)
        assert each.seconds == pytest.approx(alone.seconds, rel=1e-12) == pytest.approx(sum(each.parts))
        assert min(each.parts) >= 0 and 0 < each.mfu < rates.product["bf16"]


def test_kendall_counts_pairs_in_order():
    assert kendall([(1, 10), (2, 20), (3, 30)]) == 1
    assert kendall([(1, 30), (2, 20), (3, 10)]) == -1
    assert kendall([(1, 10), (2, 30), (3, 20)]) == pytest.approx(1 / 3)
