"""Schedules hold every operation once, in a legal order, and no two ranks wait for each other."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allranks import schedules
from allranks.schedules import SCHEDULES, SENDS, Operation, Schedule, check
from allranks.simulate import simulate

CHUNKED = ("interleaved", "looped_bfs")
FLUSHED = ("gpipe", "one_f_one_b", *CHUNKED)


def text(orders):
    """Orders as a picture: F0 F1 B0 …, with the stage where there is more than one on the rank."""
    return [
        " ".join(f"{kind[0]}{microbatch}.{stage}" for kind, microbatch, stage in order) for order in orders
    ]


def groups(stages, microbatches):
    """The sizes of a group that Megatron Core accepts (schedules.py), and m where there are fewer than p."""
    allowed = [n for n in range(stages, microbatches + 1) if not 0 < microbatches % n < stages]
    return allowed or [microbatches]


@st.composite
def schedule(draw, names=tuple(SCHEDULES)):
    """A schedule of any kind, with any sizes that it takes."""
    name = draw(st.sampled_from(names))
    stages, more = draw(st.integers(1, 6)), draw(st.integers(0, 8))
    if name == "interleaved":
        microbatches = draw(st.integers(1, 4 * stages))
        group = draw(st.sampled_from(groups(stages, microbatches)))
        return SCHEDULES[name](stages, microbatches, draw(st.integers(1, 3)), group)
    if name == "looped_bfs":
        return SCHEDULES[name](stages, 1 + more, draw(st.integers(1, 3)))
    if name == "dualpipe":
        return SCHEDULES[name](2 * (1 + stages // 2), 4 * (1 + stages // 2) + 2 * more)
    if name == "dualpipe_v":
        return SCHEDULES[name](stages, 2 * stages + more)
    if name == "zero_bubble":
        return SCHEDULES[name](stages, 1 + more, draw(st.integers(stages, 2 * stages)))
    return SCHEDULES[name](stages, 1 + more)


def changed(made, rank, position, *operations):
    """The schedule with the operation at `position` of `rank` replaced by `operations`."""
    order = made.orders[rank]
    order = order[:position] + operations + order[position + 1 :]
    return made._replace(orders=(*made.orders[:rank], order, *made.orders[rank + 1 :]))


def test_gpipe_runs_all_forwards_then_all_backwards():
    assert text(schedules.gpipe(2, 3).orders) == [
        "F0.0 F1.0 F2.0 B0.0 B1.0 B2.0",
        "F0.1 F1.1 F2.1 B0.1 B1.1 B2.1",
    ]


def test_one_f_one_b_starts_backwards_as_early_as_it_can():
    assert text(schedules.one_f_one_b(3, 4).orders) == [
        "F0.0 F1.0 F2.0 B0.0 F3.0 B1.0 B2.0 B3.0",
        "F0.1 F1.1 B0.1 F2.1 B1.1 F3.1 B2.1 B3.1",
        "F0.2 B0.2 F1.2 B1.2 F2.2 B2.2 F3.2 B3.2",
    ]


def test_interleaved_takes_p_micro_batches_through_each_chunk_in_turn():
    assert text(schedules.interleaved(2, 4, 2).orders) == [
        "F0.0 F1.0 F0.2 F1.2 F2.0 B0.2 F3.0 B1.2 F2.2 B0.0 F3.2 B1.0 B2.2 B3.2 B2.0 B3.0",
        "F0.1 F1.1 F0.3 B0.3 F1.3 B1.3 F2.1 B0.1 F3.1 B1.1 F2.3 B2.3 F3.3 B3.3 B2.1 B3.1",
    ]


def test_interleaved_takes_groups_of_any_size_and_a_smaller_last_one():
    assert text(schedules.interleaved(2, 5, 2).orders) == [
        "F0.0 F1.0 F2.0 F0.2 F1.2 F2.2 B0.2 F3.0 B1.2 F4.0 B2.2 F3.2 B0.0 F4.2 B1.0 B2.0 B3.2 B4.2 B3.0 B4.0",
        "F0.1 F1.1 F2.1 F0.3 B0.3 F1.3 B1.3 F2.3 B2.3 F3.1 B0.1 F4.1 B1.1 F3.3 B2.1 F4.3 B3.3 B4.3 B3.1 B4.1",
    ]


@given(st.integers(1, 9), st.integers(1, 60))
def test_a_group_is_the_smallest_that_megatron_core_accepts(stages, microbatches):
    assert schedules.group_size(stages, microbatches) == groups(stages, microbatches)[0]


@settings(deadline=None)
@given(st.integers(1, 6), st.integers(1, 30), st.integers(1, 3), st.data())
def test_no_legal_group_costs_time_and_a_larger_one_keeps_more(stages, microbatches, chunks, data):
    allowed = groups(stages, microbatches)
    group = data.draw(st.sampled_from(allowed))
    chosen, other = (
        simulate(schedules.interleaved(stages, microbatches, chunks, size)) for size in (None, group)
    )
    assert chosen.makespan == pytest.approx(other.makespan)
    assert all(least <= kept for least, kept in zip(chosen.peak_activations, other.peak_activations))


@given(st.integers(1, 8), st.integers(1, 4))
def test_interleaved_with_one_chunk_has_the_bubble_of_one_f_one_b_and_keeps_more(stages, rounds):
    one = simulate(schedules.interleaved(stages, stages * rounds, 1))
    other = simulate(schedules.one_f_one_b(stages, stages * rounds))
    assert one.makespan == other.makespan
    assert all(more >= less for more, less in zip(one.peak_activations, other.peak_activations))


@given(schedule())
def test_every_schedule_is_complete_and_legal(made):
    proof = check(made)
    forwards = made.stages * made.chunks * made.microbatches
    assert 2 * forwards <= proof.operations <= 3 * forwards
    assert proof.sends in SENDS


@given(schedule())
def test_messages_are_those_that_cross_ranks(made):
    home = schedules.homes(made)
    crossings = sum(home[i] != home[i + made.microbatches] for i in range(len(home) - made.microbatches))
    assert check(made).messages == 2 * crossings


@given(st.integers(2, 6), st.integers(2, 9))
def test_gpipe_survives_blocking_sends_and_one_f_one_b_does_not(stages, microbatches):
    assert check(schedules.gpipe(stages, microbatches), sends="blocking").sends == "blocking"
    made = schedules.one_f_one_b(stages, microbatches)
    assert check(made, sends="paired").sends == "paired"
    with pytest.raises(ValueError, match="one_f_one_b deadlocks with blocking sends: rank"):
        check(made, sends="blocking")


def test_a_deadlock_is_told_as_the_circle_of_those_who_wait():
    with pytest.raises(ValueError) as raised:
        check(schedules.one_f_one_b(4, 8), sends="blocking")
    assert str(raised.value) == (
        "one_f_one_b deadlocks with blocking sends: "
        "rank 2, position 1, sends the forward of micro-batch 1 on stage 2 to rank 3; "
        "rank 3, position 1, sends the input gradient of micro-batch 0 on stage 3 to rank 2"
    )


@pytest.mark.parametrize(
    "name, strictest",
    [
        ("gpipe", "blocking"),
        ("one_f_one_b", "paired"),
        ("pipedream", "paired"),
        ("zb_h1", "paired"),
        ("zb_h2", "posted"),
        ("zb_v", "posted"),
        ("dualpipe", "posted"),
        ("dualpipe_v", "posted"),
    ],
)
def test_more_elaborate_schedules_need_receives_posted_ahead(name, strictest):
    assert check(SCHEDULES[name](4, 12)).sends == strictest
    assert check(SCHEDULES["interleaved"](4, 12, 2)).sends == "posted"


def survives_blocking_sends_when_receives_are_posted_as_in_torch(made):
    """Both ends of a message go into two lists at once; then each rank runs its list, and its sends block."""
    home, m = schedules.homes(made), made.microbatches
    waits, done, lists = [list(order) for order in made.orders], set(), [[] for _ in made.orders]
    while any(waits):
        before = len(done)
        for rank, left in enumerate(waits):
            while left:
                kind, microbatch, stage = left[0]
                forward = kind == "F"
                source = stage - 1 if forward else stage + 1
                needs = kind != "W" and 0 <= source < made.stages * made.chunks
                if needs and (forward, microbatch, source) not in done:
                    break
                if kind != "W":
                    done.add((forward, microbatch, stage))
                    target = stage + 1 if forward else stage - 1
                    if 0 <= target < made.stages * made.chunks and home[target * m + microbatch] != rank:
                        message = forward, microbatch, stage
                        lists[rank].append(("send", message))
                        lists[home[target * m + microbatch]].append(("receive", message))
                left.pop(0)
        if len(done) == before and any(waits):
            return False
    posted = set()
    while any(lists):
        progress = False
        for mine in lists:
            while mine and (mine[0][0] == "receive" or mine[0][1] in posted):
                posted.add(mine.pop(0)[1])
                progress = True
        if not progress:
            return False
    return True


@settings(max_examples=50)
@given(schedule())
def test_posted_receives_are_enough_for_blocking_sends(made):
    check(made, sends="posted")
    assert survives_blocking_sends_when_receives_are_posted_as_in_torch(made)


def test_two_ranks_that_wait_for_each_other_are_found():
    made = schedules.one_f_one_b(2, 2)
    f0, f1, b0, b1 = (Operation(kind, each, 0) for kind, each in [("F", 0), ("F", 1), ("BW", 0), ("BW", 1)])
    crossed = made._replace(
        orders=(
            (f0, b0, f1, b1),
            tuple(Operation(k, m, 1) for k, m in [("F", 0), ("F", 1), ("BW", 0), ("BW", 1)]),
        )
    )
    with pytest.raises(
        ValueError, match="deadlocks with posted sends: rank 0, position 1, receives the input grad"
    ):
        check(crossed)
    with pytest.raises(
        ValueError, match="rank 0 waits for ever at position 1, before the backward of micro-batch 0"
    ):
        simulate(crossed)
    assert not survives_blocking_sends_when_receives_are_posted_as_in_torch(crossed)


@pytest.mark.parametrize(
    "rank, position, replacement, complaint",
    [
        (0, 0, (), "no rank has the forward of micro-batch 0 on stage 0"),
        (1, 1, (), "no rank has the input gradient of micro-batch 0 on stage 1"),
        (1, 1, (Operation("B", 0, 1),), "no rank has the weight gradient of micro-batch 0 on stage 1"),
        (
            0, 0, (Operation("F", 0, 0), Operation("F", 0, 0)),
            "rank 0, position 1: the forward of micro-batch 0 on stage 0 is also at rank 0, position 0",
        ),
        (
            1, 1, (Operation("B", 0, 1), Operation("BW", 0, 1)),
            "rank 1, position 2: the input gradient of micro-batch 0 on stage 1 is also at rank 1, position",
        ),
        (
            1, 1, (Operation("W", 0, 1), Operation("B", 0, 1)),
            "rank 1, position 1: the weight gradient of micro-batch 0 on stage 1 needs the input gradient of "
            "micro-batch 0 on stage 1, which comes later, at position 2",
        ),
        (0, 0, (Operation("G", 0, 0),), "rank 0, position 0: 'G' of micro-batch 0 on stage 0 is not F"),
        (0, 0, (Operation("F", 0.5, 0),), "rank 0, position 0: 'F' of micro-batch 0.5 on stage 0 is not F"),
        (0, 0, (Operation("F", 9, 0),), "rank 0, position 0: 'F' of micro-batch 9 on stage 0 is not F"),
        (0, 0, (Operation("F", 0, -1),), "rank 0, position 0: 'F' of micro-batch 0 on stage -1 is not F"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(rank, position, replacement, complaint):
    with pytest.raises(ValueError, match=complaint):
        check(changed(schedules.one_f_one_b(2, 3), rank, position, *replacement))


def test_the_three_passes_of_a_micro_batch_are_on_one_rank():
    f, b = Operation("F", 0, 0), Operation("BW", 0, 0)
    with pytest.raises(ValueError, match=r"rank 1 has the input gradient .* but rank 0 its forward"):
        check(Schedule("apart", 2, 1, 1, ((f, Operation("F", 0, 1), Operation("BW", 0, 1)), (b,))))


def test_a_backward_before_its_forward_is_named():
    swapped = schedules.gpipe(1, 1)._replace(orders=(schedules.gpipe(1, 1).orders[0][::-1],))
    with pytest.raises(
        ValueError, match="position 0: the backward of micro-batch 0 on stage 0 needs the forward"
    ):
        check(swapped)
    with pytest.raises(ValueError, match="waits for ever"):
        simulate(swapped)


@pytest.mark.parametrize(
    "call, complaint",
    [
        (lambda: schedules.gpipe(0, 4), "stages must be a whole number of at least 1, not 0"),
        (lambda: schedules.one_f_one_b(4, 2.0), "microbatches must be a whole number"),
        (lambda: schedules.pipedream(4, True), "microbatches must be a whole number"),
        (lambda: schedules.interleaved(4, 8, 2, 3), "group must be a whole number from 4 to 8, not 3"),
        (lambda: schedules.interleaved(4, 3, 2, 2), "group must be a whole number from 3 to 3, not 2"),
        (lambda: schedules.interleaved(4, 10, 2, 4), "or leave at least 4 over, but 4 leaves 2"),
        (lambda: schedules.looped_bfs(4, 8, 0), "chunks must be a whole number"),
        (
            lambda: check(schedules.gpipe(2, 2), sends="eager"),
            "sends must be one of 'posted', 'paired', 'blocking'",
        ),
        (lambda: check(Schedule("none", 2, 2, 1, ())), "none has 0 orders for 2 ranks"),
        (lambda: schedules.bubble_seconds("2f2b", 4), "name must be one of 'gpipe'"),
        (lambda: schedules.bubble_seconds("gpipe", 4, chunks=2), "chunks is for interleaved and looped_bfs"),
        (lambda: schedules.bubble_seconds("gpipe", 4, forward_and_backward=1), "forward_and_backward is for"),
        (lambda: schedules.bubble_seconds("zb_v", 4, forward=2), "simulate it"),
        (
            lambda: schedules.bubble_seconds("zb_h2", 4, weight_grad=1.5),
            "does not hold for weight_grad = 1.5",
        ),
        (lambda: schedules.bubble_of_ideal("gpipe", 4, 0), "microbatches must be"),
        (
            lambda: schedules.bubble_of_ideal("gpipe", 4, 2, forward=0, input_grad=0, weight_grad=0),
            "not all be 0",
        ),
        (lambda: schedules.staleness(0), "stages must be"),
        (lambda: schedules.weights_used(schedules.zb_h1(2, 4)), "zb_h1 splits its backwards"),
    ],
)
def test_bad_input_says_what_is_allowed(call, complaint):
    with pytest.raises(ValueError, match=complaint):
        call()


def test_pipedream_is_the_order_of_one_f_one_b_without_its_flush():
    assert schedules.pipedream(4, 9).orders == schedules.one_f_one_b(4, 9).orders


def test_pipedream_on_four_ranks_is_3_2_1_0_updates_late_and_holds_4_3_2_1_versions():
    uses = schedules.weights_used(schedules.pipedream(4, 16))
    late = [[use.latest - use.version for use in mine if use.operation.kind == "BW"] for mine in uses]
    assert [mine[-1] for mine in late] == [3, 2, 1, 0] == list(schedules.staleness(4))
    assert late[0] == [0, 1, 2, *[3] * 13]
    assert (
        [max(use.stashed for use in mine) for mine in uses]
        == [4, 3, 2, 1]
        == list(schedules.stashed_versions(4))
    )


@given(st.integers(1, 6), st.integers(1, 12))
def test_in_pipedream_forward_and_backward_use_the_same_version(stages, microbatches):
    for rank, mine in enumerate(schedules.weights_used(schedules.pipedream(stages, microbatches))):
        versions = {}
        for use in mine:
            versions.setdefault(use.operation.microbatch, []).append(use.version)
            assert use.version == max(0, use.operation.microbatch - (stages - 1 - rank))
        assert all(forward == backward for forward, backward in versions.values())
        assert [use.latest for use in mine if use.operation.kind == "BW"] == list(range(microbatches))


def test_the_stashes_of_pipedream_hold_while_microbatches_are_few():
    mine = schedules.weights_used(schedules.pipedream(4, 2))[0]
    assert [use.stashed for use in mine] == [1, 1, 1, 2]


def test_schedules_are_named_as_they_call_themselves():
    assert [name for name in SCHEDULES] == [
        "gpipe", "one_f_one_b", "looped_bfs", "interleaved", "pipedream", "zb_h1", "zb_h2", "zb_v",
        "zero_bubble", "dualpipe", "dualpipe_v",
    ]  # fmt: skip
    for name, function in SCHEDULES.items():
        third = (2,) if name in (*CHUNKED, "zero_bubble") else ()
        assert function(2, 4, *third).name == name
