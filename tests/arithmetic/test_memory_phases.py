"""The phases of a step under ZeRO: what is sent, held and moved in them is what the totals say."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks import memory
from allranks.memory.phases import zero_phases

MEBI = 2**20
RANKS = st.sampled_from([1, 2, 4, 64])
STAGES = st.integers(0, 3)
RECIPES = st.sampled_from(sorted(memory.RECIPES))
COUNTS = st.integers(1, 10**6).map(lambda count: 1024 * count)


@given(COUNTS, RANKS, STAGES, RECIPES)
def test_what_the_phases_send_is_what_a_step_sends(count, ranks, stage, recipe):
    sent = sum(phase.sent for phase in zero_phases(count, ranks, stage, recipe))
    assert sent == pytest.approx(memory.zero_sent_bytes(count, ranks, stage, recipe))


@given(COUNTS, RANKS, STAGES, RECIPES, st.sampled_from([1, 2, 16]))
def test_the_fullest_phase_holds_all_states_and_the_buffers(count, ranks, stage, recipe, units):
    buffers = 0
    if ranks > 1 and stage == 2:
        buffers = min(2 * 25 * MEBI, memory.RECIPES[recipe].gradients * count)
    if ranks > 1 and stage == 3:
        buffers = memory.unsharded_bytes(count // units, recipe, prefetched=0)
    fullest = max(phase.device for phase in zero_phases(count, ranks, stage, recipe, units=units))
    assert fullest == memory.zero_bytes(count, ranks, stage, recipe) + buffers


@given(COUNTS, RANKS, STAGES, RECIPES, st.sampled_from(["cpu", "nvme"]), st.booleans())
def test_what_is_offloaded_moves_as_often_as_it_must_and_is_nowhere_twice(
    count, ranks, stage, recipe, place, too
):
    weights = place if too and stage == 3 else "device"
    phases = zero_phases(count, ranks, stage, recipe, optimizer=place, weights=weights)
    traffic = memory.offload_traffic(count, ranks if stage else 1, place, weights, recipe)
    assert sum(phase.link for phase in phases) == pytest.approx(traffic.link)
    assert sum(phase.disk for phase in phases) == pytest.approx(traffic.disk)
    states = memory.zero_states(count, ranks, stage, recipe)
    for phase in phases:
        held = phase.weights + phase.gradients + phase.optimizer + phase.outside
        grown = phase.name in ("reduce-scatter", "all-gather", "update")
        grown = grown or (phase.name == "backward" and stage < 2)
        assert held == pytest.approx(states.total - (0 if grown else states.gradients))


def test_deepspeed_s_estimators_with_offload_are_the_device_between_steps():
    # Stage 2: 2 bytes a parameter; stage 3 with weights on the host: nothing but a layer in 4 bytes.
    assert zero_phases(10**9, 16, 2, optimizer="cpu")[0].device == 2 * 10**9
    gathered = zero_phases(10**9, 16, 3, units=10, optimizer="cpu", weights="cpu")
    assert max(phase.device for phase in gathered) == 4 * 10**8


def test_a_step_ends_as_it_began():
    for stage in range(4):
        first, *_, last = zero_phases(10**9, 8, stage)
        assert first[1:] == last[1:]


def test_weights_that_are_not_sharded_stay_on_the_device():
    with pytest.raises(ValueError, match="weights must be on the device in zero_stage 2, not 'cpu'"):
        zero_phases(10**9, 8, 2, optimizer="cpu", weights="cpu")
