"""DualPipe has the published bubble, parameters and activations; DualPipeV is its half."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from overlapped import overlapped_idle

from allranks.schedules import check, one_f_one_b
from allranks.schedules.bidirectional import (
    dualpipe,
    dualpipe_bubble,
    dualpipe_v,
    overlapped_pairs,
)
from allranks.schedules.split_backward import zb_h1_bubble
from allranks.simulate import simulate

HALF, MORE, SECONDS = st.integers(1, 4), st.integers(0, 5), st.integers(1, 12)


@given(HALF, MORE)
def test_a_schedule_is_legal(half, more):
    check(dualpipe(2 * half, 4 * half + 2 * more))
    check(dualpipe_v(half, 2 * half + more))


@given(HALF, MORE, SECONDS, SECONDS, st.floats(0, 1))
def test_the_bubble_is_the_published_one_if_forward_and_input_gradient_take_as_long(
    half, more, forward, w, hidden
):
    """F&B lies between the longer of F and B (all hidden) and F + B (nothing hidden)."""
    weight_grad = min(w, forward)
    backward = forward + weight_grad
    overlapped = forward + backward - hidden * forward
    published = dualpipe_bubble(2 * half, forward, backward, weight_grad, overlapped)
    schedule = dualpipe(2 * half, 4 * half + 2 * more)
    idle = overlapped_idle(schedule, forward, forward, weight_grad, overlapped)
    assert max(idle) == pytest.approx(published, abs=1e-9)


@given(HALF, MORE, SECONDS, SECONDS, SECONDS, st.floats(0, 1))
def test_a_shorter_input_gradient_gives_a_bubble_of_fb_and_f_less_2w(half, more, f, b, w, hidden):
    weight_grad, input_grad, forward = sorted((f, b, w))
    backward = input_grad + weight_grad
    overlapped = forward + backward - hidden * min(forward, backward)
    schedule = dualpipe(2 * half, 4 * half + 2 * more)
    idle = overlapped_idle(schedule, forward, input_grad, weight_grad, overlapped)
    assert max(idle) == pytest.approx((half - 1) * (overlapped + forward - 2 * weight_grad), abs=1e-9)


@given(HALF, MORE, SECONDS, SECONDS)
def test_with_pairs_played_one_after_the_other_the_bubble_is_that_of_zb_h1_on_half_the_ranks(
    half, more, forward, w
):
    weight_grad = min(w, forward)
    timeline = simulate(dualpipe(2 * half, 4 * half + 2 * more), forward, forward, weight_grad)
    assert timeline.makespan - timeline.ideal == zb_h1_bubble(half, forward, forward, weight_grad)


def test_the_papers_b_is_the_whole_backward():
    """Its ZB1P is (PP-1)(F+B-2W): the ZB-H1 of Qi et al., whose B is the input gradient alone."""
    stages, forward, backward, weight_grad = 8, 5, 9, 4
    published = (stages - 1) * (forward + backward - 2 * weight_grad)
    assert zb_h1_bubble(stages, forward, backward - weight_grad, weight_grad) == published
    assert zb_h1_bubble(stages, forward, backward, weight_grad) != published


@pytest.mark.parametrize("stages", [2, 4, 6, 8])
def test_neither_bubble_nor_activations_grow_with_the_micro_batches(stages):
    for microbatches in (2 * stages, 2 * stages + 2, 4 * stages):
        schedule = dualpipe(stages, microbatches)
        assert set(simulate(schedule).peak_activations) == {stages + 1}  # DeepSeek-AI 2024, table 2
        assert max(overlapped_idle(schedule, 1, 1, 1, 3)) == stages - 2


@pytest.mark.parametrize("stages", [2, 4, 8])
def test_a_rank_holds_the_parameters_of_two_stages(stages):
    for rank, order in enumerate(dualpipe(stages, 2 * stages).orders):
        assert {each.stage for each in order if each.microbatch < stages} == {rank}
        assert {each.stage for each in order if each.microbatch >= stages} == {stages - 1 - rank}


@pytest.mark.parametrize("stages, microbatches", [(2, 4), (4, 10), (8, 20)])
def test_the_two_directions_mirror_each_other(stages, microbatches):
    orders = dualpipe(stages, microbatches).orders
    half = microbatches // 2
    for rank, order in enumerate(orders):
        mirrored = [(each.kind, (each.microbatch + half) % microbatches, each.stage) for each in order]
        assert mirrored == [tuple(each) for each in orders[stages - 1 - rank]]


@given(HALF, MORE, SECONDS, SECONDS, SECONDS, st.floats(0, 1))
def test_dualpipe_v_is_dualpipe_cut_in_half(half, more, forward, input_grad, weight_grad, hidden):
    """Half of the ranks, half of the micro-batches, and each rank works and idles half as long."""
    backward = input_grad + weight_grad
    seconds = forward, input_grad, weight_grad, forward + backward - hidden * min(forward, backward)
    whole = overlapped_idle(dualpipe(2 * half, 4 * half + 2 * more), *seconds)
    folded = overlapped_idle(dualpipe_v(half, 2 * half + more), *seconds)
    assert [2 * each for each in folded] == pytest.approx(list(whole[:half]), abs=1e-9)


@pytest.mark.parametrize("ranks", range(1, 6))
def test_dualpipe_v_holds_pp_plus_1_chunks_on_every_rank(ranks):
    peaks = simulate(dualpipe_v(ranks, 3 * ranks)).peak_activations
    assert {2 * peak for peak in peaks} == {2 * ranks + 1}


def test_a_pair_is_a_forward_and_a_whole_backward_of_another_micro_batch():
    schedule = dualpipe(8, 20)
    pairs = overlapped_pairs(schedule)
    for order, positions in zip(schedule.orders, pairs):
        for position in positions:
            first, second = order[position : position + 2]
            assert (first.kind, second.kind) == ("F", "BW")
            assert (first.microbatch, first.stage) != (second.microbatch, second.stage)
    assert [len(positions) for positions in pairs] == [9, 10, 11, 11, 11, 11, 10, 9]


@pytest.mark.parametrize(
    "call, sentence",
    [
        (lambda: dualpipe(3, 8), "stages must be a multiple of directions = 2, not 3"),
        (lambda: dualpipe(4, 9), "microbatches must be a multiple of directions = 2, not 9"),
        (lambda: dualpipe(4, 6), "microbatches must be a whole number of at least 8, not 6"),
        (lambda: dualpipe_v(4, 7), "microbatches must be a whole number of at least 8, not 7"),
        (
            lambda: overlapped_pairs(one_f_one_b(4, 8)),
            "the name of the schedule must be one of 'dualpipe', 'dualpipe_v', not 'one_f_one_b'",
        ),
        (lambda: dualpipe_bubble(4, 1, 1, 2, 2), "weight_grad must be a part of backward = 1, not 2"),
    ],
)
def test_a_bad_value_is_refused_with_what_is_allowed(call, sentence):
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        call()
