"""A plan's devices, memory and time are those of the functions it is made of."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from planned import A100, RUNNING, SELENE, few

from allranks import hardware, memory, plan, topology, transformer
from allranks.transformer import PRESETS


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
