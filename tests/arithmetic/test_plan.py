"""A plan's devices, memory and time are those of the functions it is made of; published layouts are plans."""

import time

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from allranks import hardware, memory, plan, schedules, topology, transformer
from allranks.simulate import simulate
from allranks.transformer import PRESETS

A100, H100 = hardware.ACCELERATORS["a100-80gb"], hardware.ACCELERATORS["h100"]
SELENE = {"inside": hardware.LINKS["nvlink-3"], "between": hardware.LINKS["infiniband-hdr"]}
GRAND_TETON = {"inside": hardware.LINKS["nvlink-4"], "between": hardware.LINKS["roce-400"]}
RUNNING = {**SELENE, "efficiency": 0.5}
few = settings(max_examples=25, suppress_health_check=[HealthCheck.filter_too_much])


@st.composite
def cases(draw):
    """A model, a number of devices and a batch for which there are not too many layouts."""
    heads = draw(st.sampled_from([2, 4, 6]))
    experts = draw(st.sampled_from([1, 1, 2, 4]))
    model = transformer.decoder(
        draw(st.integers(1, 9)), heads * 64, heads, draw(st.sampled_from([101, 512])), 48,
        kv_heads=draw(st.sampled_from([1, 2, heads])), gated=draw(st.booleans()), tied=draw(st.booleans()),
        experts=experts, active_experts=draw(st.integers(1, experts)),
    )  # fmt: skip
    return model, draw(st.sampled_from([1, 2, 4, 6, 8, 16, 24])), draw(st.sampled_from([1, 4, 6, 16, 48]))


options = st.fixed_dictionaries(
    {
        "chunks": st.integers(1, 2),
        "sequence_parallel": st.booleans(),
        "fused": st.booleans(),
        "dropout": st.booleans(),
        "recipe": st.sampled_from(["zero-16", "copied-20", "bf16"]),
        "devices_per_node": st.sampled_from([1, 4, 8]),
        "order": st.sampled_from([plan.MEGATRON_ORDER, plan.LLAMA_ORDER]),
        "overlap": st.sampled_from([0.0, 0.5, 1.0]),
        "efficiency": st.sampled_from([0.3, 1.0]),
    }
)


@given(cases(), options)
@few
def test_a_plan_is_what_its_parts_say(case, chosen):
    model, devices, batch = case
    found = plan.plans(model, A100, devices, batch, **SELENE, **chosen)
    assert [each.seconds for each in found] == sorted(each.seconds for each in found)
    for each in found[:10] + found[-10:]:
        layout = each.layout
        assert layout.tp * layout.cp * layout.pp * layout.dp == devices == layout.devices
        assert layout.dp * layout.microbatch * layout.microbatches == batch == layout.batch
        held = memory.training_bytes(
            model, microbatch=layout.microbatch, data_parallel=layout.dp, tensor_parallel=layout.tp,
            pipeline_parallel=layout.pp, context_parallel=layout.cp, expert_parallel=layout.ep,
            zero_stage=layout.zero_stage, sequence_parallel=chosen["sequence_parallel"] and layout.tp > 1,
            recomputation=layout.recomputation, microbatches=layout.microbatches, chunks=layout.chunks,
            recipe=chosen["recipe"], dropout=chosen["dropout"], fused=chosen["fused"],
        )  # fmt: skip
        assert each.memory.total == pytest.approx(held.total, rel=1e-12)
        assert each.memory.total <= A100.memory and each.fits
        assert each.seconds == sum(each.parts) == each.parts.seconds
        assert min(each.parts) >= 0
        assert max(each.parts) == getattr(each.parts, each.limit)
        assert 0 < each.mfu <= chosen["efficiency"] * (1 + 1e-12)
        one = plan.price(model, layout, A100, **SELENE, **_without(chosen, "chunks"))
        assert one.memory.total == pytest.approx(each.memory.total, rel=1e-12)
        assert one.seconds == pytest.approx(each.seconds, rel=1e-12)


def _without(chosen, *names):
    return {name: value for name, value in chosen.items() if name not in names}


@given(cases(), options)
@few
def test_pruning_loses_no_layout_that_fits(case, chosen):
    model, devices, batch = case
    assume(devices <= 8)
    priced = _without(chosen, "chunks")
    shared = {name: chosen[name] for name in ("chunks", "sequence_parallel")}
    every = [
        plan.price(model, each, A100, **SELENE, **priced)
        for each in plan.layouts(model, devices, batch, **shared)
    ]
    if not every:
        return
    sizes = sorted(each.memory.total for each in every)
    for capacity in (sizes[0] - 1, sizes[len(sizes) // 2], sizes[-1] + 1):
        expected = {
            each.layout
            for each in every
            if each.memory.total <= capacity
            and not (chosen["fused"] and each.layout.recomputation == "selective")
        }
        found = plan.plans(model, A100, devices, batch, capacity=capacity, **SELENE, **chosen)
        assert {each.layout for each in found} == expected


def test_more_sequences_at_once_can_take_less_memory_where_the_group_gets_smaller():
    """42 sequences on 2 stages of 2 pieces: 7 micro-batches of 6 go in groups of 4, 6 of 7 in groups of 2."""
    model = transformer.decoder(64, 1024, 8, 1, 1024)
    six, seven = (
        plan.price(model, plan.layout(pp=2, chunks=2, microbatch=b, microbatches=42 // b), A100, **SELENE)
        for b in (6, 7)
    )
    assert seven.memory.total < six.memory.total
    found = plan.plans(
        model, A100, 2, 42, chunks=2, recomputations=("none",), at_most={"dp": 1, "tp": 1, "cp": 1},
        capacity=(six.memory.total + seven.memory.total) / 2, **SELENE,
    )  # fmt: skip
    sizes = {each.layout.microbatch for each in found}
    assert 7 in sizes and 6 not in sizes


@given(cases(), options, st.floats(0.01, 1))
@few
def test_a_larger_memory_removes_no_plan(case, chosen, part):
    model, devices, batch = case
    assume(devices <= 8)
    everything = {
        each.layout for each in plan.plans(model, A100, devices, batch, capacity=1e9, **SELENE, **chosen)
    }
    some = plan.plans(model, A100, devices, batch, capacity=part * 1e9, **SELENE, **chosen)
    assert {each.layout for each in some} <= everything


@given(cases(), options, st.sampled_from(["inside", "between"]))
@few
def test_a_faster_link_makes_no_plan_slower(case, chosen, which):
    model, devices, batch = case
    chosen = _without(chosen, "chunks")
    link = SELENE[which]
    faster = {**SELENE, which: hardware.Link("faster", link.α / 2, link.bandwidth * 3, "", "")}
    for each in list(plan.layouts(model, devices, batch))[::7]:
        before = plan.price(model, each, A100, **SELENE, **chosen)
        after = plan.price(model, each, A100, **faster, **chosen)
        for one, other in zip(after.parts, before.parts, strict=True):
            assert one <= other * (1 + 1e-12)


@given(cases(), st.sampled_from([plan.MEGATRON_ORDER, plan.LLAMA_ORDER]), st.sampled_from([2, 4, 8]))
@few
def test_axes_cost_what_placing_them_rank_by_rank_costs(case, order, node):
    model, devices, batch = case
    levels = [
        topology.Level("node", node, SELENE["inside"].α, SELENE["inside"].bandwidth, 1),
        topology.Level("network", 1024 * node, SELENE["between"].α, SELENE["between"].bandwidth, 1),
    ]
    for each in list(plan.layouts(model, devices, batch, zero_stages=(0,), recomputations=("none",)))[::5]:
        sizes = {"tp": each.tp, "cp": each.cp, "pp": each.pp, "dp": each.dp}
        strides = [1]
        for axis in order:
            strides.append(strides[-1] * sizes[axis])
        if each.ep > 1 or any(stride % node and node % stride for stride in strides):
            continue
        parts = plan.parts(
            model, each, A100, **SELENE, overlap=0.0, devices_per_node=node, order=order,
            recipe=memory.Recipe(2, 2, 0, 4, 4, 4),
        )  # fmt: skip
        placed = {
            axis.axis: axis.seconds
            for axis in topology.place(
                [(axis, sizes[axis]) for axis in order], levels, model, each.microbatches,
                microbatch=each.microbatch, sharded_boundary=True, parameters=0, sequence_parallel=True,
            )
        }  # fmt: skip
        assert parts.tensor == pytest.approx(placed["tp"])
        assert parts.context == pytest.approx(placed["cp"])
        assert parts.pipeline == pytest.approx(placed["pp"])


def by_simulation(model, layout, bandwidth):
    """Seconds of a pipeline's step by `simulate`, and the planner's seconds for the same."""
    link = hardware.Link("made up", 0.0, bandwidth, "", "")
    took = plan.parts(model, layout, A100, inside=link, between=link, devices_per_node=1)
    speed = A100.peak["bf16"] * 0.6
    forward = [each * transformer.layer_flops(model) / speed for each in layers_of(model, layout)]
    again = [each if layout.recomputation == "full" else 0.0 for each in forward]
    forward[-1] += transformer.logits_flops(model) / speed
    name = (layout.pp, layout.microbatches)
    made = schedules.interleaved(*name, layout.chunks) if layout.chunks > 1 else schedules.one_f_one_b(*name)
    backward = [one + other for one, other in zip(forward, again, strict=True)]
    played = simulate(made, forward, backward, forward, model.sequence * model.hidden * 2 / bandwidth)
    return played.makespan, took.seconds - took.optimizer - took.data


def layers_of(model, layout):
    return memory.pieces(model.layers, layout.pp, layout.chunks)


@given(
    st.integers(2, 6), st.integers(2, 4), st.integers(1, 3), st.integers(1, 24), st.booleans(),
    st.sampled_from([1e12, 1e20]),
)  # fmt: skip
@few
def test_an_interleaved_step_is_the_simulated_one(stages, chunks, each, microbatches, full, bandwidth):
    model = transformer.decoder(stages * chunks * each, 1024, 8, 1, 1024)
    recomputation = "full" if full else "none"
    layout = plan.layout(pp=stages, chunks=chunks, microbatches=microbatches, recomputation=recomputation)
    simulated, ours = by_simulation(model, layout, bandwidth)
    exact = bandwidth == 1e20 or (microbatches % stages == 0 and stages > 2)
    assert ours == pytest.approx(simulated, rel=2e-4 if exact else 5e-3)


@pytest.mark.parametrize("stages, chunks, microbatches", [(8, 1, 16), (8, 2, 32), (8, 4, 32)])
def test_interleaving_hides_what_is_sent_and_1f1b_does_not(stages, chunks, microbatches):
    model = transformer.decoder(32, 1024, 8, 1, 1024)
    layout = plan.layout(pp=stages, chunks=chunks, microbatches=microbatches)
    slow = hardware.Link("slow", 0.0, 1e11, "", "")
    options = {"inside": slow, "between": slow, "devices_per_node": 1}
    exposed, total = plan.priced(model, layout, A100, **options)
    if chunks == 1:
        assert exposed.pipeline == total.pipeline
        return
    one = 2 * total.pipeline / (2 * chunks * microbatches)  # there and back
    assert exposed.pipeline == pytest.approx((chunks - 1) * stages * one)
    exposed, total = plan.priced(model, layout, A100, overlap=0.0, **options)
    assert exposed.pipeline == total.pipeline


@pytest.mark.parametrize(
    "name, stages, chunks, microbatches, above, below",
    [
        ("llama3-405b", 16, 1, 16, 0.0, 0.01),
        ("llama3-405b", 16, 7, 16, 0.05, 0.0),  # pieces of one and of two layers
        ("llama3-405b", 16, 8, 16, 0.0, 0.02),  # two of 128 pieces are empty
        ("megatron-530b", 35, 3, 105, 0.0, 0.0001),
        ("megatron-146b", 8, 4, 96, 0.02, 0.0),
    ],
)
def test_uneven_pieces_take_what_the_simulation_says_to_five_percent(
    name, stages, chunks, microbatches, above, below
):
    layout = plan.layout(pp=stages, chunks=chunks, microbatches=microbatches)
    simulated, ours = by_simulation(PRESETS[name], layout, 1e20)
    assert (1 - above) * simulated <= ours <= (1 + below) * simulated


def test_llama_3_s_two_empty_pieces_give_the_published_bubble():
    """Grattafiori et al. 2024, section 3.3.2: (PP-1)/(VM) of ideal; one-layer pieces make V 8."""
    layout = plan.layout(tp=8, pp=16, dp=128, microbatches=16, chunks=8, zero_stage=2)
    model = PRESETS["llama3-405b"]
    assert layers_of(model, layout).count(0) == 2 and max(layers_of(model, layout)) == 1
    took = plan.parts(model, layout, H100, **GRAND_TETON, order=plan.LLAMA_ORDER)
    inside = took.tensor / 16
    piece = 3 * transformer.layer_flops(model) / (0.6 * H100.peak["bf16"] * 8)
    assert 15 * piece <= took.bubble <= 15 * (piece + inside)
    assert schedules.bubble_of_ideal("interleaved", 16, 16, chunks=8) == pytest.approx(0.1171875)


def test_backward_hides_half_of_what_tensor_parallelism_sends():
    """4 of 8 units without sequence parallelism; with it 4 of 10, and with full recomputation 4 of 14."""
    model = PRESETS["gpt3-175b"]
    for recomputation, split, hidden, units in (
        ("none", False, 4, 8), ("full", False, 4, 12), ("none", True, 4, 10), ("full", True, 4, 14),
    ):  # fmt: skip
        layout = plan.layout(tp=8, microbatches=3, recomputation=recomputation)
        options = {**SELENE, "sequence_parallel": split}
        exposed, total = plan.priced(model, layout, A100, **options)
        assert 1 - exposed.tensor / total.tensor == pytest.approx(hidden / units)
        nothing, same = plan.priced(model, layout, A100, overlap=0.0, **options)
        assert nothing.tensor == same.tensor == total.tensor
        slow = hardware.Link("slow", 0.0, 1e9, "", "")
        exposed, total = plan.priced(model, layout, A100, **{**options, "inside": slow})
        columns = 3 * model.hidden + model.feed_forward
        products = 2 * model.sequence * model.hidden * columns / (0.6 * A100.peak["bf16"] * 8)
        hides = (2 if split else 1) * 3 * model.layers * products
        assert total.tensor - exposed.tensor == pytest.approx(hides)


@given(cases(), options)
@few
def test_what_is_exposed_is_a_part_of_all_communication(case, chosen):
    model, devices, batch = case
    chosen = _without(chosen, "chunks")
    for layout in list(plan.layouts(model, devices, batch))[::9]:
        each = plan.price(model, layout, A100, **SELENE, **chosen)
        for name in each.communication._fields:
            exposed, total = getattr(each.parts, name), getattr(each.communication, name)
            assert -1e-12 * total <= exposed <= total * (1 + 1e-12)
            if chosen["overlap"] == 0:
                assert exposed == total
        assert each.parts.exposed <= each.communication.seconds * (1 + 1e-12)


def test_a_mask_that_is_skipped_takes_away_attention_and_nothing_else():
    model, layout = PRESETS["gpt3-175b"], plan.layout(tp=8, microbatches=2, recomputation="selective")
    whole, half, none = (plan.parts(model, layout, A100, **SELENE, attended=part) for part in (1.0, 0.5, 0.0))
    core = model.layers * transformer.attention_core_flops(model) / (0.6 * A100.peak["bf16"] * 8)
    assert whole.compute - half.compute == pytest.approx(2 * 3 * core / 2)
    assert whole.recomputation == pytest.approx(2 * core) and none.recomputation == 0
    assert (whole.context, whole.optimizer) == (half.context, half.optimizer)


PUBLISHED = [  # Narayanan et al. 2021, Table 1: model, GPUs, batch, t, p; and the place the planner gives it
    ("megatron-1.7b", 32, 512, 1, 1, 1),
    ("megatron-18b", 256, 1024, 8, 1, 5),
    ("megatron-76b", 1024, 1792, 8, 4, 1),
    ("megatron-146b", 1536, 2304, 8, 8, 1),
    ("megatron-310b", 1920, 2160, 8, 16, 2),
    ("megatron-530b", 2520, 2520, 8, 35, 2),
    ("megatron-1t", 3072, 3072, 8, 64, 1),
]


@pytest.mark.parametrize("name, devices, batch, t, p, place", PUBLISHED)
def test_the_layouts_of_megatron_are_the_fastest_or_nearly(name, devices, batch, t, p, place):
    found = plan.plans(
        PRESETS[name], A100, devices, batch, **SELENE, zero_stages=(0,), recomputations=("full",),
        at_most={"cp": 1}, **plan.IN_2021,
    )  # fmt: skip
    sizes = [(each.layout.tp, each.layout.pp) for each in found]
    assert sizes.index((t, p)) + 1 == place
    assert found[place - 1].seconds < 1.06 * found[0].seconds


def test_the_first_place_does_not_depend_on_the_efficiency():
    for efficiency in (0.4, 0.8):
        best = plan.plans(
            PRESETS["megatron-1t"], A100, 3072, 3072, **SELENE, zero_stages=(0,), recomputations=("full",),
            at_most={"cp": 1}, **plan.IN_2021, efficiency=efficiency,
        )[0]  # fmt: skip
        assert best.layout[:4] == (8, 1, 64, 6)


LLAMA_3 = [  # Grattafiori et al. 2024, Table 4: GPUs, sequence, sequences of a step, cp, dp
    (8192, 8192, 2048, 1, 64),
    (16384, 8192, 2048, 1, 128),
    (16384, 131072, 128, 16, 8),
]


@pytest.mark.parametrize("devices, sequence, batch, cp, dp", LLAMA_3)
def test_the_layouts_of_llama_3_are_plans(devices, sequence, batch, cp, dp):
    model = transformer.llama(126, 16384, 128, 128256, sequence, 8, 53248)
    found = plan.plans(
        model, H100, devices, batch, **GRAND_TETON, zero_stages=(1, 2), recomputations=("none",),
        at_most={"tp": 8, "cp": cp, "pp": 16}, dropout=False, fused=True, order=plan.LLAMA_ORDER,
    )  # fmt: skip
    assert (8, cp, 16, dp) in [each.layout[:4] for each in found]


def test_all_layouts_of_llama_3_on_16384_devices_take_seconds():
    start = time.process_time()
    found = plan.plans(PRESETS["llama3-405b"], H100, 16384, 2048, dropout=False, fused=True, **GRAND_TETON)
    assert len(found) > 10_000
    assert time.process_time() - start < 15


def test_zero_stage_1_takes_the_time_of_stage_0_at_most_and_less_memory():
    for model in (PRESETS["megatron-1.7b"], PRESETS["mixtral-8x7b"]):
        one, other = (
            plan.price(model, plan.layout(tp=4, dp=16, ep=2, zero_stage=stage), A100, **SELENE)
            if model.experts > 1
            else plan.price(model, plan.layout(tp=4, dp=16, zero_stage=stage), A100, **SELENE)
            for stage in (0, 1)
        )
        assert other.seconds <= one.seconds and other.memory.total < one.memory.total


def test_experts_send_four_all_to_alls_a_layer():
    model = transformer.llama(2, 64, 4, 100, 16, 4, 128, experts=4, active_experts=2)
    alone = hardware.Link("no latency", 0.0, 1e9, "", "")
    layout = plan.layout(dp=4, ep=4, microbatch=3, microbatches=5)
    found = plan.price(model, layout, A100, inside=alone, between=alone, devices_per_node=2)
    handed = 2 * 3 * 16 * 64 * 2  # visits, sequences, tokens, hidden, bytes
    assert found.parts.expert == pytest.approx(4 * 2 * 5 * handed * 3 / 4 / 1e9)


@pytest.mark.parametrize(
    "layout, complaint",
    [
        ({"tp": 3}, "tp = 3 must divide 4 heads"),
        ({"cp": 3}, "a sequence of 64 cannot be cut into 3 equal parts"),
        ({"pp": 7}, "4 layers cannot fill 7 stages"),
        ({"chunks": 2, "microbatches": 3}, "2 pieces need a pipeline to interleave, not pp = 1"),
        ({"dp": 2, "ep": 2}, "ep = 2 must divide 1 experts"),
    ],
)
def test_what_a_model_cannot_have_is_said(layout, complaint):
    with pytest.raises(ValueError, match=complaint):
        plan.price(PRESETS["running"], plan.layout(**layout), A100, **RUNNING)


@pytest.mark.parametrize(
    "chosen, complaint",
    [
        ({"devices": 0}, "devices must be a whole number of at least 1, not 0"),
        ({"batch": 2.5}, "batch must be a whole number"),
        ({"efficiency": 1.5}, "efficiency, overlap and attended must be at most 1"),
        ({"attended": 1.5}, "efficiency, overlap and attended must be at most 1"),
        ({"efficiency": 0}, "efficiency must be a number above 0"),
        ({"dtype": "fp4"}, "dtype on a100-80gb must be one of"),
        ({"capacity": -1}, "capacity must be a number of at least 0"),
        ({"at_most": {"tensor": 8}}, "at_most must be one of 'tp', 'cp', 'pp', 'dp', 'ep'"),
        ({"order": ("tp", "dp")}, "order must have each of tp, cp, dp, pp once"),
        ({"zero_stages": (4,)}, "zero_stages must be one of"),
        ({"recomputations": ("some",)}, "recomputations must be one of"),
        ({"devices_per_node": 0}, "devices_per_node must be a whole number"),
    ],
)
def test_bad_input_is_named(chosen, complaint):
    given = {"devices": 4, "batch": 8, **RUNNING, **chosen}
    with pytest.raises(ValueError, match=complaint):
        plan.plans(PRESETS["running"], A100, **given)


def test_what_is_left_out_is_said():
    assert len(plan.OMITTED) >= 5 and all(sentence.endswith(".") for sentence in plan.OMITTED)
