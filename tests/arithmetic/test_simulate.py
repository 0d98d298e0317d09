"""A schedule in time: the published bubbles, hand-drawn charts, and what no simulation may break."""

import gc
import itertools
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_schedules import CHUNKED, FLUSHED, schedule

from allranks import schedules
from allranks.schedules import SCHEDULES, Operation, bubble_of_ideal, bubble_of_total, bubble_seconds
from allranks.simulate import simulate

SECONDS = st.integers(0, 8)


def made(name, stages, microbatches, chunks=2):
    return (
        SCHEDULES[name](stages, microbatches, chunks)
        if name in CHUNKED
        else SCHEDULES[name](stages, microbatches)
    )


def chart(timeline):
    """A row a rank, a column a second: "F" or "B" while it computes, "." while it waits."""
    rows = []
    for rank in range(timeline.schedule.stages):
        row = ["."] * int(timeline.makespan)
        for slot in timeline.slots:
            if slot.rank == rank:
                for second in range(int(slot.start), int(slot.end)):
                    row[second] = slot.operation.kind[0]
        rows.append("".join(row))
    return rows


def critical_path(play):
    """The longest chain of operations in a legal schedule, found without simulating: its longest path."""
    seconds, sources, m = play["seconds"], {}, play["made"].microbatches
    last, n = play["made"].stages * play["made"].chunks - 1, {}
    for order in play["made"].orders:
        before = None
        for kind, microbatch, stage in order:
            me = kind[0], microbatch, stage
            n[me] = kind
            needs = [before] if before else []
            if kind == "F" and stage:
                needs.append(("F", microbatch, stage - 1))
            if kind in ("B", "BW") and stage < last:
                needs.append(("B", microbatch, stage + 1))
            sources[me] = needs
            before = me
    longest, left = {}, list(sources)
    assert len(left) >= 2 * m
    while left:
        ready = [me for me in left if all(each in longest for each in sources[me])]
        for me in ready:
            longest[me] = seconds[n[me]] + max((longest[each] for each in sources[me]), default=0)
        left = [me for me in left if me not in longest]
    return max(longest.values())


def test_the_chart_of_gpipe_on_four_ranks_ends_at_14():
    # A chart that ends at 11 starts backwards before the last rank has a gradient.
    assert chart(simulate(schedules.gpipe(4, 4), 1, 1, 0)) == [
        "FFFF......BBBB",
        ".FFFF....BBBB.",
        "..FFFF..BBBB..",
        "...FFFFBBBB...",
    ]


def test_the_chart_of_one_f_one_b_drawn_by_hand():
    assert chart(simulate(schedules.one_f_one_b(3, 4), 1, 2, 0)) == [
        "FFF....BBFBB.BB.BB",
        ".FF..BBFBBFBB.BB..",
        "..FBBFBBFBBFBB....",
    ]


@pytest.mark.parametrize("name", ["gpipe", "one_f_one_b"])
@pytest.mark.parametrize("stages, microbatches", [(1, 1), (2, 3), (4, 16), (8, 3)])
def test_the_bubble_is_the_published_one(name, stages, microbatches):
    timeline = simulate(SCHEDULES[name](stages, microbatches))
    assert timeline.bubble_of_total == pytest.approx((stages - 1) / (microbatches + stages - 1))
    assert timeline.bubble_of_ideal == pytest.approx((stages - 1) / microbatches)


@pytest.mark.parametrize("chunks", [1, 2, 4])
def test_interleaving_divides_the_bubble_by_the_chunks(chunks):
    timeline = simulate(schedules.interleaved(4, 8, chunks))
    assert timeline.bubble_of_ideal == pytest.approx(3 / (8 * chunks))


def test_four_ranks_and_sixteen_micro_batches_idle_15_8_percent_not_4_7():
    timeline = simulate(schedules.one_f_one_b(4, 16))
    assert f"{timeline.bubble_of_total:.1%}" == "15.8%"
    assert timeline.bubble_of_total == pytest.approx(3 / 19) != 3 / (4 * 16)


@given(SECONDS, SECONDS, SECONDS, st.integers(1, 6), st.integers(1, 5))
def test_of_ideal_and_of_total_are_two_names_of_one_bubble(
    forward, input_grad, weight_grad, stages, microbatches
):
    if forward + input_grad + weight_grad:
        timeline = simulate(schedules.gpipe(stages, microbatches), forward, input_grad, weight_grad)
        ideal = timeline.bubble_of_ideal
        assert timeline.bubble_of_total == pytest.approx(ideal / (1 + ideal))


@given(
    st.sampled_from(FLUSHED),
    st.integers(1, 6),
    st.integers(1, 20),
    SECONDS,
    st.integers(1, 8),
    st.integers(1, 3),
)
def test_without_transfers_the_simulation_is_the_closed_form(
    name, stages, microbatches, forward, backward, chunks
):
    chunks = chunks if name in CHUNKED else 1
    seconds = {"forward": forward, "input_grad": backward, "weight_grad": 1}
    timeline = simulate(made(name, stages, microbatches, chunks), **seconds)
    assert timeline.makespan - timeline.ideal == pytest.approx(
        bubble_seconds(name, stages, chunks=chunks, microbatches=microbatches, **seconds), abs=1e-9
    )
    enough = bubble_seconds(name, stages, chunks=chunks, **seconds)
    assert (timeline.makespan - timeline.ideal > enough + 1e-9) == (microbatches < stages and chunks > 1)
    assert timeline.bubble_of_ideal == pytest.approx(
        bubble_of_ideal(name, stages, microbatches, chunks=chunks, **seconds), abs=1e-9
    )
    assert timeline.bubble_of_total == pytest.approx(
        bubble_of_total(name, stages, microbatches, chunks=chunks, **seconds), abs=1e-9
    )


@pytest.mark.parametrize("stages", [2, 4, 6])
@pytest.mark.parametrize("name", ["zb_h1", "zb_h2", "zb_v"])
def test_zero_bubble_schedules_have_their_closed_forms(name, stages):
    timeline = simulate(SCHEDULES[name](stages, 3 * stages))
    expected = bubble_of_total(name, stages, 3 * stages)
    assert timeline.zero_bubble_rate == pytest.approx(expected, abs=1e-9)


@given(
    st.sampled_from([name for name in SCHEDULES if name != "zero_bubble"]),
    st.integers(1, 3),
    st.integers(2, 4),
)
def test_the_peak_of_activations_is_the_published_one(name, half, rounds):
    stages = 2 * half
    chunks = 2 if name in CHUNKED else 1
    timeline = simulate(made(name, stages, rounds * stages, chunks))
    assert timeline.peak_activations == schedules.peak_activations(name, stages, rounds * stages, chunks)


def test_one_f_one_b_keeps_4_3_2_1_and_gpipe_all():
    assert simulate(schedules.one_f_one_b(4, 8)).peak_activations == (4, 3, 2, 1)
    assert simulate(schedules.gpipe(4, 8)).peak_activations == (8, 8, 8, 8)


def test_activations_rise_with_a_forward_and_fall_when_the_backward_ends():
    timeline = simulate(schedules.one_f_one_b(2, 2), 1, 1, 1)
    assert timeline.activations(0) == [(0, 1), (1, 2), (6, 1), (9, 0)]
    assert timeline.activations(1) == [(1, 1), (4, 0), (4, 1), (7, 0)]


@pytest.mark.parametrize("kept", [0.0, 0.25, 1.0])
def test_after_the_input_gradient_only_the_share_of_the_weight_gradient_is_kept(kept):
    timeline = simulate(schedules.zb_h1(1, 2), kept_for_weight_grad=kept)
    assert timeline.activations(0) == [(0, 1), (2, kept), (3, 0), (3, 1), (5, kept), (6, 0)]


@given(schedule(), SECONDS, SECONDS, st.integers(1, 8), SECONDS, st.booleans())
def test_work_is_conserved_and_dependencies_hold(play, forward, input_grad, weight_grad, transfer, overlap):
    timeline = simulate(play, forward, input_grad, weight_grad, transfer, overlap=overlap)
    seconds = {"F": forward, "B": input_grad, "W": weight_grad, "BW": input_grad + weight_grad}
    ends, ranks, free = {}, {}, {}
    slots = timeline.slots
    assert [slot.operation for slot in slots] == [each for order in play.orders for each in order]
    for rank, operation, start, end in slots:
        assert end - start == pytest.approx(seconds[operation.kind] / play.chunks)
        assert start >= free.get(rank, 0)
        free[rank] = end
        for part in operation.kind:
            ends[part, operation.microbatch, operation.stage] = end
        ranks[operation.microbatch, operation.stage] = rank
    for rank, (kind, microbatch, stage), start, _ in slots:
        source = ("F", stage - 1) if kind == "F" else ("B", stage + 1)
        if kind != "W" and 0 <= source[1] < play.stages * play.chunks:
            sent = ends[source[0], microbatch, source[1]]
            apart = ranks[microbatch, source[1]] != rank
            assert start >= sent + apart * transfer - 1e-9
    total = sum(end - start for _, _, start, end in slots)
    assert total == pytest.approx(timeline.work) == pytest.approx(timeline.ideal * play.stages)
    assert timeline.makespan >= timeline.ideal - 1e-9
    assert timeline.makespan >= max(timeline.spans)
    for rank in range(play.stages):
        assert timeline.activations(rank)[-1][1] == pytest.approx(0)


@settings(max_examples=40)
@given(schedule(), SECONDS, SECONDS, st.integers(1, 8))
def test_the_makespan_is_the_critical_path(play, forward, input_grad, weight_grad):
    seconds = {"F": forward, "B": input_grad, "W": weight_grad, "BW": input_grad + weight_grad}
    share = {kind: each / play.chunks for kind, each in seconds.items()}
    timeline = simulate(play, forward, input_grad, weight_grad)
    assert timeline.makespan == pytest.approx(critical_path({"made": play, "seconds": share}))


@given(schedule(), st.tuples(*[st.integers(1, 8)] * 4), st.tuples(*[SECONDS] * 4), st.booleans())
def test_slower_operations_never_make_a_schedule_faster(play, seconds, more, overlap):
    slower = [one + other for one, other in zip(seconds, more)]
    before, after = simulate(play, *seconds, overlap=overlap), simulate(play, *slower, overlap=overlap)
    assert after.makespan >= before.makespan - 1e-9


@given(schedule(), st.integers(0, 8))
def test_transfers_that_keep_ranks_busy_cost_at_least_as_much(play, transfer):
    hidden, shown = (simulate(play, transfer=transfer, overlap=overlap) for overlap in (True, False))
    assert shown.makespan >= hidden.makespan - 1e-9


def test_a_transfer_that_is_not_hidden_keeps_sender_and_receiver_busy():
    play = schedules.gpipe(2, 2)
    hidden = simulate(play, 1, 1, 0, 0.5)
    shown = simulate(play, 1, 1, 0, 0.5, overlap=False)
    # Rank 0: F0 0-1, sends to 1.5, F1 1.5-2.5; rank 1: receives 1-1.5, F0 1.5-2.5, receives 2.5-3, F1 3-4.
    assert [slot[2:] for slot in shown.slots if slot.operation.kind == "F"] == [
        (0, 1),
        (1.5, 2.5),
        (1.5, 2.5),
        (3, 4),
    ]
    assert [slot[2:] for slot in hidden.slots if slot.operation.kind == "F"] == [
        (0, 1),
        (1, 2),
        (1.5, 2.5),
        (2.5, 3.5),
    ]


@pytest.mark.parametrize("name", [name for name in SCHEDULES if name not in ("zero_bubble", "dualpipe")])
def test_the_bubble_goes_to_zero_with_many_micro_batches(name):
    rates = [simulate(made(name, 4, m)).bubble_of_total for m in (8, 64, 512)]
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] < 0.01


def test_pipedream_in_steady_state_does_not_wait():
    timeline = simulate(schedules.pipedream(4, 64))
    for rank in range(4):
        mine = [slot for slot in timeline.slots if slot.rank == rank][8:-8]
        assert all(one.end == other.start for one, other in itertools.pairwise(mine))
    assert bubble_of_ideal("pipedream", 4, 64) == 0


def test_unequal_layers_wait_for_the_slowest_rank():
    timeline = simulate(schedules.one_f_one_b(3, 8), [1, 2, 1], [1, 2, 1], [1, 2, 1])
    assert timeline.ideal == pytest.approx(8 * 12 / 3)
    # Rank 1 works 8 × 6 s and waits 1 s for a forward, 1 s for a gradient; rank 0 ends 2 s later.
    assert timeline.makespan == 1 + 8 * 6 + 1 + 2


@given(st.lists(st.integers(1, 5), min_size=4, max_size=4))
def test_a_list_has_an_item_for_each_rank_or_each_virtual_stage(seconds):
    play = schedules.interleaved(2, 4, 2)
    by_rank = simulate(play, seconds[:2], 1, 1)
    by_stage = simulate(play, [each / 2 for each in [*seconds[:2], *seconds[:2]]], 1, 1)
    assert by_rank.slots == by_stage.slots
    first = simulate(play, seconds, 1, 1).slots[0]
    assert first.end - first.start == seconds[0]


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        ({"forward": -1}, "forward must be a number of at least 0, not -1"),
        ({"input_grad": float("nan")}, "input_grad must be a number of at least 0, not nan"),
        ({"weight_grad": "1"}, "weight_grad must be a number"),
        ({"transfer": float("inf")}, "transfer must be a number"),
        ({"forward": [1, 2, 3]}, r"forward must be a number, or a list of 2 .* or of 2 .*, not of 3"),
        ({"forward": [1, -2]}, "every item of forward must be a number of at least 0, not -2"),
        ({"forward": 0, "input_grad": 0, "weight_grad": 0}, "must not all be 0"),
        ({"kept_for_weight_grad": 2}, "kept_for_weight_grad must be a part of 1, not 2"),
    ],
)
def test_bad_input_says_what_is_allowed(arguments, complaint):
    with pytest.raises(ValueError, match=complaint):
        simulate(schedules.gpipe(2, 2), **arguments)


def test_an_incomplete_schedule_is_refused():
    whole = schedules.gpipe(2, 1)
    with pytest.raises(ValueError, match="lacks a forward"):
        simulate(whole._replace(orders=((Operation("F", 0, 0),), ())))


def test_the_cost_is_linear_in_the_number_of_operations():
    def seconds(microbatches):
        play = schedules.interleaved(8, microbatches, 4)
        best = float("inf")
        for _ in range(5):
            start = time.process_time()
            simulate(play)
            best = min(best, time.process_time() - start)
        return best

    gc.disable()
    try:
        small, large = seconds(64), seconds(512)
    finally:
        gc.enable()
    assert large < 3 * 8 * small


def test_a_timeline_shows_what_it_is():
    assert repr(simulate(schedules.gpipe(4, 4), 1, 1, 0)) == "<gpipe, 4 ranks, 4 micro-batches: 14 s>"
