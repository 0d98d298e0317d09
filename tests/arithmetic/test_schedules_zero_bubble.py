"""Splitting the backward gives the published bubbles, within the published memory."""

import itertools
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allranks.schedules import bubble_seconds, check, interleaved, one_f_one_b, peak_activations
from allranks.schedules.search import memory_plateau, zero_bubble
from allranks.schedules.split_backward import (
    kept_for_weight_grad,
    zb_h1,
    zb_h1_bubble,
    zb_h2,
    zb_h2_bubble,
    zb_v,
)
from allranks.simulate import simulate

STAGES, MICROBATCHES, SECONDS = st.integers(1, 6), st.integers(1, 16), st.integers(1, 12)


def bubble(schedule, forward=1, input_grad=1, weight_grad=1, transfer=0):
    """Idle time of the rank with the longest span: the paper's cost, less the work (section 5.3)."""
    timeline = simulate(schedule, forward, input_grad, weight_grad, transfer)
    return max(timeline.spans) - timeline.ideal


@given(stages=STAGES, microbatches=MICROBATCHES)
def test_a_schedule_is_legal_for_any_number_of_micro_batches(stages, microbatches):
    for schedule in (zb_h1, zb_h2, zb_v):
        check(schedule(stages, microbatches))


@given(STAGES, st.integers(0, 8), SECONDS, SECONDS, SECONDS)
def test_zb_h1_has_the_published_bubble_if_w_is_not_longer_than_f(stages, more, forward, input_grad, w):
    seconds = forward, input_grad, min(w, forward)
    published = zb_h1_bubble(stages, *seconds)
    assert bubble(zb_h1(stages, stages + more), *seconds) == pytest.approx(published)


@given(STAGES, st.integers(0, 8), SECONDS, SECONDS, SECONDS)
def test_zb_h2_has_the_published_bubble_if_w_is_the_shortest(stages, more, forward, input_grad, w):
    seconds = forward, input_grad, min(w, forward, input_grad)
    published = zb_h2_bubble(stages, *seconds)
    assert bubble(zb_h2(stages, 2 * stages - 1 + more), *seconds) == pytest.approx(published, abs=1e-9)


def test_if_w_is_longer_the_published_bubbles_are_too_small():
    assert (bubble(zb_h1(2, 7), 1, 5, 2), zb_h1_bubble(2, 1, 5, 2)) == (5, 4)
    assert (bubble(zb_h2(6, 13), 5, 9, 8), zb_h2_bubble(6, 5, 9, 8)) == (20, -10)


@given(STAGES, st.integers(0, 8), SECONDS, SECONDS, SECONDS, st.floats(0, 1))
def test_a_transfer_no_longer_than_w_adds_twice_its_time_a_rank_to_zb_h2(
    stages, more, forward, input_grad, w, part
):
    seconds = forward, input_grad, min(w, forward, input_grad)
    transfer = part * seconds[-1]
    published = zb_h2_bubble(stages, *seconds, transfer=transfer)
    schedule = zb_h2(stages, 2 * stages - 1 + more)
    assert bubble(schedule, *seconds, transfer) == pytest.approx(published, abs=1e-9)


@pytest.mark.parametrize("schedule", [zb_h2, zb_v])
@pytest.mark.parametrize("stages", range(1, 8))
def test_there_is_no_bubble_from_2p_minus_1_micro_batches_on(schedule, stages):
    for microbatches in range(stages, 2 * stages - 1):
        assert bubble(schedule(stages, microbatches)) == 2 * stages - 1 - microbatches
    for microbatches in range(2 * stages - 1, 3 * stages):
        assert simulate(schedule(stages, microbatches)).zero_bubble_rate == 0


@pytest.mark.parametrize("schedule", [zb_h1, zb_h2, zb_v])
def test_the_bubble_does_not_grow_with_the_micro_batches(schedule):
    seconds = 4, 5, 3
    assert bubble(schedule(4, 12), *seconds) == pytest.approx(bubble(schedule(4, 60), *seconds))
    assert simulate(schedule(4, 400), *seconds).zero_bubble_rate < 0.01


def test_zb_h1_pairs_its_messages_as_1f1b_does():
    assert check(zb_h1(4, 8)).sends == check(one_f_one_b(4, 8)).sends == "paired"


def test_a_synchronization_after_the_step_brings_a_bubble_back():
    """Section 4: it destroys the parallelogram, and p-1 forwards are idle again."""
    timeline = simulate(zb_h2(8, 32))
    assert timeline.makespan - timeline.ideal == 7


@given(STAGES, st.integers(0, 8), st.sampled_from([0, 0.25, 0.5, 1]))
def test_the_activations_of_every_rank_are_the_published_ones(stages, more, kept):
    """Section 2.3, in M_B and with workers counted from 0: (p-r)M_B + r·M_W, and (2p-1-2r)M_B + 2r·M_W."""
    for schedule, first, each in ((zb_h1, stages, 1), (zb_h2, 2 * stages - 1, 2)):
        timeline = simulate(schedule(stages, first + more), kept_for_weight_grad=kept)
        expected = [first - each * rank + each * rank * kept for rank in range(stages)]
        assert list(timeline.peak_activations) == pytest.approx(expected)


@pytest.mark.parametrize("stages", range(1, 9))
def test_zb_h1_and_zb_v_hold_no_more_than_the_first_rank_of_1f1b(stages):
    most = max(simulate(one_f_one_b(stages, 3 * stages)).peak_activations)
    assert max(simulate(zb_h1(stages, 3 * stages)).peak_activations) == most == stages
    assert set(simulate(zb_v(stages, 3 * stages)).peak_activations) == {stages}
    assert max(simulate(zb_h2(stages, 3 * stages)).peak_activations) == 2 * stages - 1


@pytest.mark.parametrize("make", [zb_h1, zb_h2, zb_v])
@given(st.integers(1, 7), st.integers(1, 20))
def test_the_peak_in_closed_form_is_the_simulated_one(make, stages, microbatches):
    schedule = make(stages, microbatches)
    assert simulate(schedule).peak_activations == peak_activations(schedule.name, stages, microbatches)


def test_a_v_puts_the_first_and_the_last_layers_on_the_first_rank():
    stages_of = [sorted({operation.stage for operation in order}) for order in zb_v(4, 8).orders]
    assert stages_of == [[0, 7], [1, 6], [2, 5], [3, 4]]


def test_what_w_needs_is_less_than_half_of_the_activations():
    assert kept_for_weight_grad(hidden=4096, heads=32, sequence=1024) == pytest.approx(32 / 74)


# The search.

KEPT = st.sampled_from([0, 0.25, 0.5, 1])


@settings(max_examples=60)
@given(STAGES, MICROBATCHES, st.floats(1, 15), SECONDS, SECONDS, SECONDS, st.sampled_from([0, 0.5, 2]), KEPT)
def test_the_search_gives_legal_schedules_within_the_limit(
    stages, microbatches, limit, forward, input_grad, weight_grad, transfer, kept
):
    seconds = {"forward": forward, "input_grad": input_grad, "weight_grad": weight_grad, "transfer": transfer}
    schedule = zero_bubble(stages, microbatches, limit, **seconds, kept_for_weight_grad=kept)
    check(schedule)
    timeline = simulate(schedule, **seconds, kept_for_weight_grad=kept)
    assert max(timeline.peak_activations) <= limit + 1e-9


@settings(max_examples=60)
@given(STAGES, st.integers(0, 6), SECONDS, SECONDS, SECONDS, KEPT)
def test_the_search_is_not_worse_than_the_schedules_by_hand_if_w_is_the_shortest(
    stages, more, forward, input_grad, w, kept
):
    """From 3p micro-batches on, which the paper calls enough (section 7)."""
    seconds = {"forward": forward, "input_grad": input_grad, "weight_grad": min(w, forward, input_grad)}
    microbatches = 3 * stages + more
    for by_hand, limit in ((zb_h1, stages), (zb_h2, 2 * stages - 1)):
        searched = zero_bubble(stages, microbatches, limit, **seconds, kept_for_weight_grad=kept)
        assert bubble(searched, **seconds) <= bubble(by_hand(stages, microbatches), **seconds) + 1e-9


@pytest.mark.parametrize(
    "stages, microbatches, times, kept, searched, by_hand",
    [(6, 13, (9, 8, 8), 0.5, 334, 330), (7, 13, (12, 8, 9), 1, 394, 389)],
)
def test_it_is_a_heuristic_zb_h2_can_be_better(stages, microbatches, times, kept, searched, by_hand):
    """Of 25,000 random cases with 1 to 16 micro-batches and W the shortest, 6; ZB-H1 never was."""
    seconds = dict(zip(("forward", "input_grad", "weight_grad"), times))
    schedule = zero_bubble(stages, microbatches, 2 * stages - 1, **seconds, kept_for_weight_grad=kept)
    work = microbatches * sum(times)
    assert bubble(schedule, **seconds) == searched - work
    assert bubble(zb_h2(stages, microbatches), **seconds) == by_hand - work


@pytest.mark.parametrize("stages", range(1, 7))
def test_for_equal_times_the_search_finds_what_was_made_by_hand(stages):
    assert bubble(zero_bubble(stages, 3 * stages, stages)) == stages - 1
    assert bubble(zero_bubble(stages, 3 * stages, 2 * stages - 1)) == 0


MEASURED = {  # p, m: T_F, T_B, T_W, T_comm (microseconds), hidden size, heads (tables 3 and 9)
    (8, 32): (18513, 18086, 9331, 626, 2304, 24),
    (16, 48): (11347, 11248, 8132, 377, 5120, 40),
}


@pytest.mark.parametrize("stages, microbatches", MEASURED)
def test_more_memory_means_less_bubble_up_to_the_plateau(stages, microbatches):
    """Section 5.4 and figure 7: M_limit from 1.0 to 3.0 p M_B."""
    forward, input_grad, weight_grad, transfer, hidden, heads = MEASURED[stages, microbatches]
    seconds = {"forward": forward, "input_grad": input_grad, "weight_grad": weight_grad, "transfer": transfer}
    kept = kept_for_weight_grad(hidden, heads, 1024)

    def rate(limit):
        schedule = zero_bubble(stages, microbatches, limit, **seconds, kept_for_weight_grad=kept)
        return simulate(schedule, **seconds).zero_bubble_rate

    enough = int(memory_plateau(stages, forward, input_grad, transfer))
    rates = [rate(stages * (1 + part / 8)) for part in range(8)]
    assert all(before > after for before, after in itertools.pairwise(rates))
    assert rates[0] > 0.12
    assert rate(enough) == rate(2 * stages) < 0.01
    assert rate(enough - 1) > 1.5 * rate(enough)


def interleaved_rate_of_the_authors(stages, microbatches, chunks, forward, backward, transfer):
    """The bubble rate of interleaved 1F1B as the authors' script computes it.

    A result that goes from the last rank back to the first (or the other way, in backward) is waited for by
    the first micro-batch of every p only.
    """
    schedule = interleaved(stages, microbatches, chunks)
    done, clocks, positions = {}, [0] * stages, [0] * stages
    while any(position < len(order) for position, order in zip(positions, schedule.orders)):
        for rank, order in enumerate(schedule.orders):
            while positions[rank] < len(order):
                kind, microbatch, stage = order[positions[rank]]
                source = stage - 1 if kind == "F" else stage + 1
                back = abs(source % stages - rank) == stages - 1
                if not 0 <= source < stages * chunks or (back and microbatch % stages):
                    there = 0
                elif (kind, microbatch, source) in done:
                    there = done[kind, microbatch, source] + transfer
                else:
                    break
                clocks[rank] = max(clocks[rank], there) + (forward if kind == "F" else backward) / chunks
                done[kind, microbatch, stage] = clocks[rank]
                positions[rank] += 1
    return 1 - microbatches * (forward + backward) / max(clocks)


@pytest.mark.parametrize(
    "stages, microbatches, chunks, times, printed",
    [
        (8, 24, 3, (18.522, 27.423, 0.601), "0.1055"),
        (8, 64, 4, (29.935, 49.009, 0.535), "0.0320"),
        (16, 64, 3, (11.307, 19.355, 0.379), "0.0852"),
        (32, 96, 2, (10.419, 17.922, 0.408), "0.1493"),
    ],
)
def test_the_papers_rate_of_interleaved_1f1b_leaves_out_most_ways_back(
    stages, microbatches, chunks, times, printed
):
    """Table 5, column 1F1B-I: so the ledger says that ours differs."""
    assert f"{interleaved_rate_of_the_authors(stages, microbatches, chunks, *times):.4f}" == printed


@pytest.mark.parametrize(
    "call, sentence",
    [
        (lambda: zb_h1(0, 4), "stages must be a whole number of at least 1, not 0"),
        (lambda: zb_h2(4, 0), "microbatches must be a whole number of at least 1, not 0"),
        (lambda: zb_v(4, 2.5), "microbatches must be a whole number of at least 1, not 2.5"),
        (
            lambda: zero_bubble(4, 8, 0.5),
            "memory_limit must be a number of at least 1 micro-batch, not 0.5",
        ),
        (
            lambda: zero_bubble(4, 8, 4, kept_for_weight_grad=1.5),
            "kept_for_weight_grad must be a number from 0 to 1, not 1.5",
        ),
        (lambda: zero_bubble(4, 8, 4, forward=0), "forward must be a number above 0, not 0"),
        (lambda: zb_h1_bubble(4, 1, -1, 1), "input_grad must be a number of at least 0, not -1"),
    ],
)
def test_a_bad_value_is_refused_with_what_is_allowed(call, sentence):
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        call()


@pytest.mark.parametrize(
    "name, stages, times",
    [
        ("zb_v", 2, {"microbatches": 1}),
        ("zb_h2", 6, {"microbatches": 10}),
        ("zb_h1", 3, {"microbatches": 1}),
        ("dualpipe", 4, {"microbatches": 6}),
        ("zb_h1", 4, {"forward": 1, "input_grad": 2, "weight_grad": 2, "microbatches": 12}),
    ],
)
def test_a_closed_form_that_does_not_hold_asks_for_a_simulation(name, stages, times):
    with pytest.raises(ValueError, match=r"closed form.*simulate it"):
        bubble_seconds(name, stages, **times)
