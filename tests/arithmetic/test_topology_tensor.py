"""A tensor-parallel rank's slices make up the matrices, and its calls are the step's traffic."""

import pytest

from allranks import topology, transformer
from allranks.hardware import link
from allranks.topology.experts import (
    expert_mesh,
    expert_seconds,
    expert_traffic,
    place_experts,
    shared_parameters,
)
from allranks.topology.tensor import KINDS, tensor_calls, tensor_matrices

GPT3, LLAMA = transformer.PRESETS["gpt3-175b"], transformer.PRESETS["llama3-70b"]
MIXTRAL = transformer.PRESETS["mixtral-8x7b"]
PAIR = ("feed-forward", "attention")


@pytest.mark.parametrize("model", [GPT3, LLAMA])
@pytest.mark.parametrize("sequence_parallel", [False, True])
@pytest.mark.parametrize("recomputation", transformer.RECOMPUTATION)
@pytest.mark.parametrize("t", [1, 2, 8])
def test_the_calls_of_all_layers_are_the_traffic_of_a_step(model, sequence_parallel, recomputation, t):
    calls = [each for kind in PAIR for each in tensor_calls(kind, model, t, 2, sequence_parallel)]
    forward = [each for each in calls if each.phase == "forward"] if recomputation == "full" else []
    sent = model.layers * 3 * sum(each.sent for each in calls + forward)
    options = {"sequence_parallel": sequence_parallel, "recomputation": recomputation}
    assert sent == pytest.approx(topology.traffic(model, {"tp": t}, 3, 2, **options)[0].sent)


def test_sequence_parallelism_sends_10_units_for_8_and_14_for_12():
    def units(**options):
        sent = topology.traffic(GPT3, {"tp": 8}, 1, **options)[0].sent
        return sent / (GPT3.layers * GPT3.sequence * GPT3.hidden * 2 * 7 / 8)

    full = {"recomputation": "full"}
    assert [units(), units(**full)] == [8, 12]
    assert [units(sequence_parallel=True), units(sequence_parallel=True, **full)] == [10, 14]


@pytest.mark.parametrize("model", [GPT3, LLAMA, transformer.PRESETS["llama3-405b"]])
def test_the_weights_are_those_of_the_layer(model):
    held = {
        kind: sum(each.rows * each.columns for each in tensor_matrices(kind, model, 1) if each.weight)
        for kind in PAIR
    }
    plain = model._replace(biases=False)
    assert held["attention"] == transformer.attention_parameters(plain)
    assert held["feed-forward"] == transformer.expert_parameters(plain)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("gradient", [False, True])
def test_the_ranks_of_a_split_matrix_hold_it_once(kind, gradient):
    for each in tensor_matrices(kind, LLAMA, 8):
        rows, columns = each.shape(8, gradient)
        parts = 8 if (each.gradient if gradient else each.split) in ("rows", "columns") else 1
        assert parts * rows * columns == each.rows * each.columns


def test_a_column_and_a_row_apart_send_the_inner_matrix_twice_more_than_as_a_pair():
    apart = sum(each.sent for kind in ("column", "row") for each in tensor_calls(kind, GPT3, 4))
    pair = sum(each.sent for each in tensor_calls("feed-forward", GPT3, 4))
    assert apart - pair == 2 * 3 / 4 * 2048 * GPT3.feed_forward * 2


def test_sequence_parallelism_sends_as_much_and_gathers_the_input_once_more():
    plain, split = tensor_calls("attention", GPT3, 8), tensor_calls("attention", GPT3, 8, 1, True)
    more = split[-1]
    assert more.phase == "again" and more.collective == "all_gather"
    assert sum(each.sent for each in plain) == sum(each.sent for each in split[:-1])


def test_what_cannot_be_cut_is_refused():
    with pytest.raises(ValueError, match="kv_heads must be a multiple of world_size = 16, not 8"):
        tensor_matrices("attention", LLAMA, 16)
    with pytest.raises(ValueError, match="sequence_parallel must be off for a row alone"):
        tensor_matrices("row", LLAMA, 2, 1, True)
    with pytest.raises(ValueError, match="kind must be one of"):
        tensor_calls("head", LLAMA, 2)


@pytest.mark.parametrize("tp, cp, ep", [(1, 1, 8), (2, 1, 4), (1, 2, 2), (4, 2, 8)])
def test_a_rank_hands_its_experts_each_token_twice(tp, cp, ep):
    each = expert_traffic(MIXTRAL, {"tp": tp, "cp": cp, "pp": 2}, ep, 4)
    assert each.nbytes == 2 * MIXTRAL.sequence * MIXTRAL.hidden * 2 / (tp * cp)  # visits; bytes an element
    assert each.calls == 4 * 16 * 4
    assert each.sent == each.calls * (ep - 1) * each.nbytes / ep


def test_experts_across_nodes_take_longer_and_none_take_no_time():
    near, far = link("nvlink-4"), link("infiniband-ndr")
    each = expert_traffic(MIXTRAL, {}, 8, 4)
    inside = expert_seconds(each, 8, near, far)
    assert inside == pytest.approx(each.steps * near.α + each.sent / near.bandwidth)
    assert expert_seconds(each, 1, near, far) == pytest.approx(each.steps * far.α + each.sent / far.bandwidth)
    assert expert_seconds(expert_traffic(MIXTRAL, {}, 1, 4), 1, near, far) == 0


LEVELS = (topology.Level("node", 8, 3e-6, 450e9, 1), topology.Level("network", 128, 14e-6, 50e9, 1))


def test_without_ep_the_experts_are_placed_as_dp_is():
    mesh = (("tp", 4), ("cp", 1), ("pp", 2), ("dp", 8))
    ep, rest = place_experts(mesh, LEVELS, MIXTRAL, 1, 4)
    held = transformer.parameters(MIXTRAL) - shared_parameters(MIXTRAL)
    dp = topology.place(mesh, LEVELS, MIXTRAL, 4, parameters=held)[3]
    assert ep.sent == 0 and rest[1:] == dp[1:]
    assert shared_parameters(GPT3) == transformer.parameters(GPT3)


def test_ep_is_the_faster_part_of_dp():
    mesh = (("tp", 2), ("dp", 8), ("pp", 2))
    assert expert_mesh(mesh, 4) == (("tp", 2), ("ep", 4), ("dp", 2), ("pp", 2))
    ep, rest = place_experts((("tp", 2), ("cp", 1), ("dp", 8), ("pp", 2)), LEVELS, MIXTRAL, 4, 4)
    assert ep.groups == (("node", 8), ("network", 0)) and rest.groups == (("node", 0), ("network", 16))
    assert ep.seconds == pytest.approx(ep.sent / 450e9 + 3e-6 * 4 * 16 * 4 * 3)
    with pytest.raises(ValueError, match="dp must be a multiple of expert_parallel = 3, not 8"):
        expert_mesh(mesh, 3)
