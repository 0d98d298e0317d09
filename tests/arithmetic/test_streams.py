"""The judge lets run what NCCL would run, and says at once what it would not: no processes, no torch."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks.streams import Broken, Judge, Part

WORLD = "world"


class Ranks:
    """Ranks on paper: each issues parts, alone or as a batch, and waits for them or goes on."""

    def __init__(self, world_size, **more):
        self.judge, self.numbers = Judge(world_size, **more), [0] * world_size
        self.everybody = tuple(range(world_size))

    def issue(self, rank, *parts, group=WORLD, members=None):
        self.numbers[rank] += 1
        self.judge.issue(rank, self.numbers[rank], group, members or self.everybody, list(parts))
        return self.numbers[rank]

    def call(self, rank, *parts, **more):
        self.judge.wait(rank, self.issue(rank, *parts, **more))

    @property
    def done(self):
        return [(rank, number) for rank, number, _, _ in self.judge.verdicts]


def collective(kind="all_reduce", what="3 × float32"):
    return Part(kind, None, what, 0, None)


def send(peer, what="3 × float32", nbytes=12):
    return Part("send", peer, what, nbytes, None)


def recv(peer, what="3 × float32", nbytes=12):
    return Part("recv", peer, what, nbytes, None)


def test_a_collective_runs_when_all_have_come():
    ranks = Ranks(3)
    ranks.call(0, collective()), ranks.call(2, collective())
    assert ranks.done == []
    ranks.call(1, collective())
    assert sorted(ranks.done) == [(0, 1), (1, 1), (2, 1)]


def test_a_send_keeps_its_communicator_until_it_is_received():
    ranks = Ranks(2)
    ranks.issue(0, send(1)), ranks.issue(0, collective()), ranks.issue(1, collective())
    assert ranks.done == []


def test_two_that_both_send_first_hang():
    ranks = Ranks(2)
    ranks.issue(0, send(1)), ranks.call(0, recv(1)), ranks.issue(1, send(0))
    with pytest.raises(Broken) as broken:
        ranks.call(1, recv(0))
    assert broken.value.ranks == [0, 1]
    assert str(broken.value) == (
        "NCCL would hang: rank 0 is in send to rank 1 of 3 × float32 and waits for rank 1 · "
        "rank 1 is in send to rank 0 of 3 × float32 and waits for rank 0"
    )


def test_two_that_both_send_first_pass_if_the_sends_are_buffered():
    ranks = Ranks(2, buffered=12)
    for rank in (0, 1):
        ranks.issue(rank, send(1 - rank)), ranks.call(rank, recv(1 - rank))
    assert sorted(ranks.done) == [(0, 1), (0, 2), (1, 1), (1, 2)]


def test_a_batch_makes_progress_as_one():
    ranks = Ranks(2)
    for rank in (0, 1):
        ranks.call(rank, send(1 - rank), recv(1 - rank))
    assert len(ranks.done) == 4


def test_batches_around_a_ring_do_not_hang():
    ranks = Ranks(5)
    for rank in ranks.everybody:
        ranks.call(rank, send((rank + 1) % 5), recv((rank - 1) % 5))
    assert len(ranks.done) == 10


def test_messages_of_a_pair_match_in_their_order():
    ranks = Ranks(2)
    ranks.issue(0, send(1, "1 × float32")), ranks.issue(0, send(1, "2 × float32"))
    with pytest.raises(Broken, match="rank 0 sends 1 × float32 · rank 1 receives 2 × float32"):
        ranks.issue(1, recv(0, "2 × float32"))


@pytest.mark.parametrize(
    "other",
    [
        collective("broadcast", "3 × float32, root 0"),
        collective(what="3 × int32"),
        collective(what="4 × float32"),
    ],
)
def test_what_differs_between_ranks_is_no_silent_sum(other):
    ranks = Ranks(3)
    ranks.issue(0, collective()), ranks.issue(1, other)
    with pytest.raises(Broken, match="ranks 0, 2 entered all_reduce of 3 × float32 · rank 1 entered"):
        ranks.issue(2, collective())


def test_an_uneven_all_to_all_has_to_add_up():
    ranks = Ranks(2)
    ranks.issue(0, Part("all_to_all", None, "float32", 0, ([1, 2], [1, 3])))
    with pytest.raises(Broken, match="rank 0 sends 2 elements to rank 1, which expects 4"):
        ranks.issue(1, Part("all_to_all", None, "float32", 0, ([3, 1], [4, 1])))


def test_communicators_are_used_in_one_order():
    ranks = Ranks(3)
    ranks.issue(0, collective()), ranks.issue(0, collective(), group="pair", members=(0, 1))
    with pytest.raises(
        Broken, match="on ranks 0, 1, the collectives on ranks 0, 1, 2 were 1 from rank 0 · 0 from rank 1"
    ):
        ranks.issue(1, collective(), group="pair", members=(0, 1))


def test_one_order_is_enough_where_ranks_share_one_communicator():
    ranks = Ranks(4)
    rows, columns = [(0, 1), (2, 3)], [(0, 2), (1, 3)]
    for rank in ranks.everybody:
        mine = [next(each for each in groups if rank in each) for groups in (rows, columns)]
        for members in mine if rank % 3 else mine[::-1]:
            ranks.issue(rank, collective(), group=str(members), members=members)
    assert len(ranks.done) == 8


def test_a_rank_that_has_returned_is_waited_for_in_vain():
    ranks = Ranks(3)
    ranks.call(0, collective()), ranks.call(1, collective())
    with pytest.raises(Broken) as broken:
        ranks.judge.leave(2)
    assert str(broken.value) == (
        "NCCL would hang: rank 0 is in all_reduce of 3 × float32 and waits for rank 2 · rank 2 has returned"
    )
    assert broken.value.ranks == [0]


def test_nobody_is_blamed_while_a_rank_still_moves():
    ranks = Ranks(3)
    ranks.call(0, recv(1)), ranks.call(1, recv(2))
    assert ranks.done == []
    ranks.call(2, send(1))
    ranks.call(1, send(0))
    assert sorted(ranks.done) == [(0, 1), (1, 1), (1, 2), (2, 1)]


def test_the_circle_is_named_and_not_those_who_wait_outside_of_it():
    ranks = Ranks(4)
    ranks.call(3, recv(2)), ranks.call(0, recv(2)), ranks.call(1, recv(0))
    with pytest.raises(Broken) as broken:
        ranks.call(2, recv(1))
    assert broken.value.ranks == [0, 1, 2]


def test_a_circle_through_two_communicators_is_found():
    ranks = Ranks(2)
    ranks.call(0, recv(1), group="a")
    with pytest.raises(Broken, match=r"rank 0 is in recv from rank 1.* · rank 1 is in all_reduce"):
        ranks.call(1, collective(), group="b")


MESSAGES = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 2)).filter(lambda m: m[0] != m[1]),
    max_size=30,
)


@given(MESSAGES, st.data())
def test_messages_that_all_ranks_post_in_one_order_never_hang(messages, data):
    """Whatever the interleaving of the ranks: the first message that is missing has both its ends free."""
    ranks = Ranks(4)
    programs = [[m for m in messages if rank in m[:2]] for rank in range(4)]
    places, waiting = [0] * 4, {}
    while any(place < len(program) for place, program in zip(places, programs)):
        pending = {r for r, number in waiting.items() if (r, number) not in ranks.done}
        free = [r for r in range(4) if places[r] < len(programs[r]) and r not in pending]
        rank = data.draw(st.sampled_from(free))
        sender, receiver, size = programs[rank][places[rank]]
        part = send(receiver, f"{size} × int8") if rank == sender else recv(sender, f"{size} × int8")
        waiting[rank] = ranks.numbers[rank] + 1
        ranks.call(rank, part)
        places[rank] += 1
    assert len(ranks.done) == 2 * len(messages)
    assert not any(ranks.judge.queues.values())
