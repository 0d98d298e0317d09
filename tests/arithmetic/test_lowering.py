"""A lowered schedule exchanges every result once, in one order of all messages, and never hangs on NCCL."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks import lowering, schedules
from allranks.lowering import check, lower, transfers, unbatched

MADE = [
    *(schedules.gpipe(p, m) for p, m in ((1, 2), (3, 4), (8, 8))),
    *(schedules.one_f_one_b(p, m) for p, m in ((2, 1), (4, 8), (8, 16))),
    *(schedules.interleaved(p, m, v) for p, m, v in ((2, 2, 2), (4, 8, 2), (4, 12, 3))),
    *(schedules.looped_bfs(p, m, v) for p, m, v in ((3, 4, 2), (4, 4, 3))),
    schedules.pipedream(4, 8),
    *(make(p, m) for make in (schedules.zb_h1, schedules.zb_h2, schedules.zb_v) for p, m in ((2, 4), (4, 8))),
    schedules.zero_bubble(4, 8, 5),
    *(schedules.dualpipe(p, m) for p, m in ((2, 4), (4, 8))),
    *(schedules.dualpipe_v(p, m) for p, m in ((3, 6), (4, 8))),
]
NAMED = pytest.mark.parametrize("schedule", MADE, ids=lambda made: f"{made.name}-{made.stages}-{made.chunks}")


def operations(steps):
    return tuple(step for step in steps if step.kind != "X")


def messages(steps):
    return [message for step in steps if step.kind == "X" for message in step.messages]


@NAMED
def test_a_lowered_schedule_computes_what_it_did_and_cannot_hang(schedule):
    program = lower(schedule)
    assert tuple(operations(steps) for steps in program.steps) == schedule.orders
    count, _ = check(program)
    assert count == len(transfers(schedule)) == schedules.check(schedule).messages


@NAMED
def test_each_message_has_two_ends_in_the_order_of_its_pair(schedule):
    steps = lower(schedule).steps
    for rank, mine in enumerate(steps):
        for peer, theirs in enumerate(steps):
            sent = [m.result for m in messages(mine) if m.way == "send" and m.peer == peer]
            received = [m.result for m in messages(theirs) if m.way == "recv" and m.peer == rank]
            assert sent == received


def test_1f1b_sends_and_receives_as_megatron_does():
    steps = lower(schedules.one_f_one_b(4, 8)).steps[1]
    steady = [[(m.way, m.result.kind, m.peer) for m in step.messages] for step in steps if step.kind == "X"][
        6:8
    ]
    assert steady == [
        [("recv", "F", 0), ("send", "B", 0)],  # send_backward_recv_forward
        [("send", "F", 2), ("recv", "B", 2)],  # send_forward_recv_backward
    ]


@pytest.mark.parametrize(
    "schedule, sentence",
    [
        (
            schedules.one_f_one_b(4, 8),
            "one_f_one_b: NCCL would hang: rank 2 is in send to rank 3 of the forward of micro-batch 1 on "
            "stage 2 and waits for rank 3 · rank 3 is in send to rank 2 of the input gradient of micro-batch "
            "0 on stage 3 and waits for rank 2",
        ),
        (schedules.zb_h1(2, 4), "zb_h1: NCCL would hang: rank 0 is in send to rank 1"),
        (schedules.interleaved(2, 4, 2), "interleaved: NCCL would hang: rank 0 is in send to rank 1"),
    ],
)
def test_one_message_at_a_time_hangs(schedule, sentence):
    with pytest.raises(ValueError) as error:
        check(unbatched(schedule))
    assert str(error.value).startswith(sentence)


def test_gpipe_needs_no_batches_and_1f1b_none_if_nccl_buffers_its_messages():
    assert check(unbatched(schedules.gpipe(4, 8))) == (48, 96)
    assert check(unbatched(schedules.one_f_one_b(4, 8)), buffered=True) == (48, 96)


def test_without_tags_buffers_are_not_enough_for_every_schedule():
    with pytest.raises(ValueError, match=r"rank 1 sends the forward .* rank 2 receives the input gradient"):
        check(unbatched(schedules.dualpipe_v(4, 8)), buffered=True)


@given(
    st.sampled_from(MADE),
    st.lists(st.sampled_from([0.25, 1.0, 3.0]), min_size=3, max_size=3),
)
def test_whatever_the_times_it_cannot_hang(schedule, times):
    check(lower(schedule, *times))


def test_times_have_to_be_above_zero():
    with pytest.raises(ValueError, match="weight_grad must be a number above 0, not 0"):
        lower(schedules.gpipe(2, 2), weight_grad=0)


def test_a_receive_that_is_missing_is_found():
    program = lower(schedules.gpipe(2, 1))
    with pytest.raises(ValueError, match="waits for rank 1 · rank 1 has returned"):
        check(program._replace(steps=(program.steps[0], program.steps[1][:-1])))


def test_a_result_that_stays_on_its_rank_is_not_sent():
    assert all(
        m.peer != rank
        for rank, steps in enumerate(lower(schedules.zb_v(4, 8)).steps)
        for m in messages(steps)
    )
    assert lowering.check(lower(schedules.gpipe(1, 3))) == (0, 0)
