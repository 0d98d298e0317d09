"""A plan's devices, memory and time are those of the functions it is made of; published layouts are plans."""

import time

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from allranks import hardware, memory, plan, topology, transformer
from allranks.transformer import PRESETS

A100, H100 = hardware.ACCELERATORS["a100-80gb"], hardware.ACCELERATORS["h100"]
SELENE = {"inside": hardware.LINKS["nvlink-3"], "between": hardware.LINKS["infiniband-hdr"]}
GRAND_TETON = {"inside": hardware.LINKS["nvlink-4"], "between": hardware.LINKS["roce-400"]}
RUNNING = {**SELENE, "efficiency": 0.5}
few = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])


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
                microbatch=each.microbatch, sharded_boundary=True, parameters=0,
            )
        }  # fmt: skip
        assert parts.tensor == pytest.approx(placed["tp"])
        assert parts.context == pytest.approx(placed["cp"])
        assert parts.pipeline == pytest.approx(placed["pp"])


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
        at_most={"cp": 1}, sequence_parallel=False, recipe="copied-20", overlap=0.0,
    )  # fmt: skip
    sizes = [(each.layout.tp, each.layout.pp) for each in found]
    assert sizes.index((t, p)) + 1 == place
    assert found[place - 1].seconds < 1.06 * found[0].seconds


def test_the_first_place_does_not_depend_on_the_efficiency():
    for efficiency in (0.4, 0.8):
        best = plan.plans(
            PRESETS["megatron-1t"], A100, 3072, 3072, **SELENE, zero_stages=(0,), recomputations=("full",),
            at_most={"cp": 1}, sequence_parallel=False, recipe="copied-20", overlap=0.0,
            efficiency=efficiency,
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
        ({"pp": 5}, "4 layers cannot fill 5 stages"),
        ({"pp": 2, "chunks": 2, "microbatches": 3}, "3 micro-batches must be a multiple of pp = 2"),
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
        ({"efficiency": 1.5}, "efficiency and overlap must be at most 1"),
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
