"""Published runs are facts with sources; the committed constants predict them as the table says."""

import re
from pathlib import Path
from statistics import mean, median
from types import SimpleNamespace

import pytest

from allranks import plan, published, transformer
from allranks.hardware import ACCELERATORS, LINKS
from allranks.plan.layer import product_seconds
from allranks.plan.step import most_parameters, work_of_stages
from allranks.published.predict import card_of, ready
from allranks.published.printed_memory import COUNTS, first_layers

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


@pytest.mark.parametrize(
    "source, kind, runs, most",
    [
        ("bigscience", "dense", 40, 0.07), ("bigscience-1b3", "dense", 11, 0.08),
        ("torchtitan", "dense", 4, 0.1), ("playbook", "dense", 47, 0.1), ("playbook", "stalled", 7, 0.1),
        ("playbook", "tp over nodes", 23, 0.12),
    ],
)  # fmt: skip
def test_memory_as_the_source_defines_it(made, source, kind, runs, most):
    sizes = [
        abs(published.memory_error(each))
        for each in made[0]
        if each.run.source == source and each.run.memory_gib and published.kind(each.run) == kind
    ]
    assert len(sizes) == runs and mean(sizes) < most


def test_memory_of_runs_that_are_kept_out_is_predicted_as_well(made):
    sizes = [
        abs(published.memory_error(each))
        for each in made[0]
        if each.run.memory_gib and each.run.kept_out and published.kind(each.run) == "dense"
    ]
    assert len(sizes) == 31 and mean(sizes) < 0.08


def test_the_playbook_s_matrices_over_nodes_hold_what_its_code_keeps(made):
    """A median of 6 %, with inputs that are gathered again in backward, as nanotron does by default."""
    sizes = [
        abs(published.memory_error(each))
        for each in made[0]
        if each.run.memory_gib and published.kind(each.run) == "tp over nodes"
    ]
    assert median(sizes) < 0.06


@pytest.mark.parametrize("sequence, shards, ranks, printed", [
    (32_768, 8, 1, 83.9), (65_536, 4, 2, 84.2), (131_072, 2, 4, 84.0), (262_144, 1, 8, 84.5),
])  # fmt: skip
def test_memory_of_a_table_that_no_constant_has_seen(sequence, shards, ranks, printed):
    """torchtitan, llama3_h100_202412_torchtitan.md, Table 2: FSDP and context parallelism on 8 devices."""
    run = run_of("torchtitan-0010")._replace(seq=sequence, dp=shards, cp=ranks, gbs=shards)
    held = sum(published.memory_parts(run).values()) / 2**30
    assert held == pytest.approx(printed, rel=0.05)


def test_memory_parts_are_named_and_add_up(made):
    each = next(each for each in made[0] if each.run.id == "playbook-0143")
    parts = published.memory_parts(each.run)
    error = sum(parts.values()) / (each.run.memory_gib * 2**30) - 1
    assert published.memory_error(each) == error and abs(error) < 0.01
    assert "kept by unfused kernels" in parts and "loss" not in parts  # the first of four stages
    without = published.memory_parts(run_of("bigscience-1b3-0025"))
    assert without["outside tensors"] == COUNTS["bigscience-1b3"].outside


def test_a_slow_pipeline_of_the_playbook_waits_as_long_as_its_polls(made):
    """Six messages a micro-batch and boundary, each of which is looked for every 0.1 s (nanotron, p2p.py)."""
    waits = {True: [], False: []}
    for each in made[0]:
        run = each.run
        if run.source == "playbook" and run.pp > 1 and run.tp <= 8 and each.measured > 1.5 * each.seconds:
            late = (each.measured - each.seconds) / each.plan.layout.microbatches
            waits[run.pp > 2].append(late)
    assert len(waits[False]) == 9 and median(waits[False]) == pytest.approx(0.6, abs=0.15)
    assert len(waits[True]) == 5 and median(waits[True]) == pytest.approx(1.2, abs=0.15)


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


def run_of(id):
    return next(run for run in published.runs() if run.id == id)


def test_a_batch_that_contradicts_its_micro_batches_is_not_predicted():
    """The Playbook prints 128 micro-batches of 1 on 32 replicas, and 256 sequences a step."""
    contradicted = [
        run for run in published.runs() if "contradict the batch" in (published.unknown(run) or "")
    ]
    assert [(run.dp, run.mbs, run.notes, run.gbs) for run in contradicted] == [(32, 1, "grad accum 128", 256)]


def test_the_card_of_a_run_is_the_one_that_its_source_describes():
    """torchtitan's H100s have 96 GB at 2.4 TB/s; BigScience's hosts became faster on 25 February 2022."""
    card = published.machine(run_of("torchtitan-0011"))
    assert (card.memory, card.bandwidth) == (96e9, 2.4e12)
    assert card.peak == ACCELERATORS["h100"].peak
    assert card_of(run_of("bigscience-0054")) == "a100-80gb early"
    assert card_of(run_of("bigscience-0070")) == "a100-80gb"
    assert card_of(run_of("playbook-0001")) == "h100"


def test_nanotron_ties_small_models_and_balances_stages_by_products():
    small, large = (published.setup(run_of(f"playbook-{number}"))[0] for number in ("0048", "0106"))
    assert small.tied and not large.tied
    assert first_layers(small, 1) == 28 and first_layers(small, 2) == 16
    assert first_layers(large, 8) == 5
    tied = published.setup(run_of("playbook-0013"))[0]
    assert first_layers(tied, 2) == 10  # just half of all products


def test_a_pipeline_of_torchtitan_gathers_weights_once_a_step():
    """apply_fsdp keeps the weights of a stage gathered, as in ZeRO-1, and reduces gradients of 4 bytes."""
    for id, stage in (("torchtitan-0011", 3), ("torchtitan-0016", 1)):
        (_, layout, _), options = ready(run_of(id))
        assert layout.zero_stage == stage and options["recipe"] == "megatron-18"


def test_uneven_stages_are_those_that_the_source_describes():
    """BigScience: 78 layers on 12 stages, "the last stage has 1 block, while the rest have 7"."""
    (model, layout, _), options = ready(run_of("bigscience-0093"))
    work = work_of_stages(model, layout, (1.0, 2.0), 0.0, (0.0, 0.0), options["balanced"])
    assert work.slowest == 4 * 7
    assert "balanced" not in ready(run_of("bigscience-0070"))[1]


def test_gradients_of_each_micro_batch_are_added_at_the_bandwidth_of_memory():
    (model, layout, accelerator), options = ready(run_of("narayanan-0001"))
    with_kernel = plan.rates("narayanan", "a100")
    assert with_kernel.added and not plan.rates("dgxc", "h100").added
    took = [
        plan.parts(model, layout, accelerator, rates=rates, **options)
        for rates in (with_kernel, with_kernel._replace(added=False))
    ]
    parameters = sum(most_parameters(model, layout))
    moved = layout.microbatches * (2 + 2 + 2) * parameters
    assert took[0].optimizer - took[1].optimizer == pytest.approx(moved / accelerator.bandwidth)
    assert took[0]._replace(optimizer=0) == took[1]._replace(optimizer=0)


def test_what_a_source_does_not_print_is_chosen_by_the_planner(made):
    missing = {each.run.id: published.unprinted(each.run) for each in made[0]}
    assert missing["playbook-0001"] == () and missing["narayanan-0001"] == ("micro-batch",)
    assert set(missing.values()) == {(), ("micro-batch",), ("pieces",)}
    for each in made[0]:
        asked = published.setup(each.run)[1]
        chosen = each.plan.layout
        if "micro-batch" not in missing[each.run.id]:
            assert chosen.microbatch == asked.microbatch
        if "pieces" not in missing[each.run.id]:
            assert chosen.chunks == asked.chunks


def made_up(*runs):
    """Predictions of the layouts "a", "b" … from (layout, predicted seconds, measured seconds)."""
    return {
        name: [
            SimpleNamespace(seconds=predicted, measured=measured)
            for layout, predicted, measured in runs
            if layout == name
        ]
        for name in dict.fromkeys(layout for layout, _, _ in runs)
    }


@pytest.mark.parametrize("measured, tau", [((10, 20, 30), 1), ((30, 20, 10), -1), ((10, 30, 20), 1 / 3)])
def test_order_is_kendalls_tau(measured, tau):
    layouts = made_up(*zip("abc", (1, 2, 3), measured, strict=True))
    assert published.order({"one": layouts}) == (pytest.approx(tau), 3)


def test_order_counts_pairs_that_repeated_measurements_can_tell_apart():
    layouts = made_up(("a", 1, 10), ("a", 1, 10.2), ("b", 2, 10.3), ("c", 3, 9))
    assert published.ordered(layouts) == (1, 3)
    assert published.spread({"one": layouts}) == pytest.approx(0.02)
    assert published.ordered(layouts, apart=0.02) == (0, 2)
    assert published.order({"one": layouts}) == (pytest.approx(-1 / 3), 3)
    assert published.order({"one": layouts}, apart=0.02) == (-1, 2)


def test_groups_differ_in_layout_only(made):
    groups = published.groups(made[0])
    assert len(groups) == 16
    for layouts in groups.values():
        runs = [prediction.run for repeats in layouts.values() for prediction in repeats]
        assert len(layouts) >= 3
        assert len({(run.layers, run.hidden, run.gbs, run.gpus, card_of(run)) for run in runs}) == 1


def test_layouts_that_differ_by_more_than_repeats_are_in_the_measured_order(made):
    groups = published.groups(made[0])
    apart = published.spread(groups)
    assert 0.02 < apart < 0.03
    assert published.order(groups)[0] > 0.6
    assert published.order(groups, apart)[0] > 0.7
