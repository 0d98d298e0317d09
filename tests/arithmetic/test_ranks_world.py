"""Simulated ranks keep the time of the α–β model: the clock of a world is the closed form of what it does."""

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks import collectives
from allranks.ranks.faults import Failure
from allranks.ranks.world import World

times = st.tuples(st.floats(1e-7, 1e-3), st.floats(1e-12, 1e-7))


class Generators:
    """A runner whose ranks are generators: each yields (kind, what) and is sent the answer."""

    def __init__(self, program, size, α, β, *args):
        self.world = World(size, α, β, self)
        self.ranks = [program(rank, size, *args) for rank in range(size)]
        self.answers, self.calls = [[None] for _ in range(size)], [0] * size

    def answer(self, rank, value):
        self.answers[rank].append(value)

    def step(self, rank):
        while self.answers[rank]:
            try:
                kind, what = self.ranks[rank].send(self.answers[rank].pop())
            except StopIteration as end:
                return "returned", end.value
            self.calls[rank] += 1
            try:
                self.world.serve(rank, kind, what, self.calls[rank])
            except Failure as failure:
                return "failed", failure
        return "blocked", ((self.calls[rank], "program"),)


def run(program, size, α, β, *args):
    """The world in which `size` ranks have run a program."""
    runner = Generators(program, size, α, β, *args)
    runner.world.run()
    return runner.world


def outgoing(to, values):
    return to, 0, ("uint8", (len(values),), array("B", values))


def incoming(source, n):
    return source, 0, ("uint8", (n,), None)


def transfer(*halves):
    """Begin to send and receive, and wait for all."""
    numbers = yield "batch", {"ops": halves}
    got = []
    for number in numbers:
        got.append((yield "wait", {"number": number}))
    return got


def together(name, n, rank, size, **more):
    values = array("B", [rank] * n)
    asked = {"name": name, "ranks": tuple(range(size)), "data": ("uint8", (n,), values), "later": False}
    return "collective", {**asked, **more}


def ring(rank, p, n):
    for _ in range(2 * (p - 1)):
        yield from transfer(outgoing((rank + 1) % p, [0] * n), incoming((rank - 1) % p, n))


def tree(rank, p, n):
    know = 1
    while know < p:
        if rank < know and rank + know < p:
            yield from transfer(outgoing(rank + know, [7] * n))
        elif know <= rank < 2 * know:
            yield from transfer(incoming(rank - know, n))
        know *= 2


def doubling(rank, p, n):
    d = 1
    while d < p:
        yield from transfer(outgoing(rank ^ d, [0] * n), incoming(rank ^ d, n))
        d *= 2


def pairwise(rank, p, n):
    for i in range(1, p):
        yield from transfer(outgoing((rank + i) % p, [0] * n), incoming((rank - i) % p, n))


def linear(rank, p, n):
    if rank:
        yield from transfer(incoming(0, n))
    else:
        for to in range(1, p):
            yield from transfer(outgoing(to, [0] * n))


CLOSED_FORMS = {
    ring: lambda n, p: collectives.cost("all_reduce", "ring", n * p, p),
    tree: lambda n, p: collectives.binomial_broadcast(n, p),
    doubling: lambda n, p: collectives.recursive_doubling_all_reduce(n, p),
    pairwise: lambda n, p: collectives.pairwise(n * p, p),
    linear: lambda n, p: collectives.linear_scatter(n * p, p),
}


@pytest.mark.hypothesis
@given(st.sampled_from(list(CLOSED_FORMS)), st.integers(1, 8), st.integers(0, 300), times)
def test_the_clock_of_an_algorithm_is_its_closed_form(algorithm, p, n, αβ):
    p = 2 ** (p // 2) if algorithm is doubling else p
    expected = CLOSED_FORMS[algorithm](n, p).seconds(*αβ)
    assert max(run(algorithm, p, *αβ, n).clock) == pytest.approx(expected, rel=1e-12)


rounds = st.integers(2, 6).flatmap(
    lambda p: st.tuples(
        st.just(p), st.lists(st.tuples(st.permutations(range(p)), st.integers(0, 50)), min_size=1, max_size=5)
    )
)


def shuffled(rank, p, turns):
    """Rounds that begin with a barrier: each rank sends to another one, which may be itself: then nothing."""
    total = 0
    for targets, n in turns:
        yield together("barrier", 0, rank, p)
        halves = []
        if targets[rank] != rank:
            halves = [outgoing(targets[rank], [rank] * n), incoming(targets.index(rank), n)]
        got = yield from transfer(*halves)
        total += sum(sum(came[1]) for came in got if came)
    return total


@pytest.mark.hypothesis
@given(rounds, times)
def test_a_random_program_takes_the_sum_of_its_rounds(given_rounds, αβ):
    (p, turns), (α, β) = given_rounds, αβ
    world = run(shuffled, p, α, β, turns)
    barrier = collectives.recursive_doubling_all_reduce(0, p).seconds(α, β)
    expected = 0.0
    for targets, n in turns:
        expected += barrier + (α + β * n if targets != list(range(p)) else 0)
    assert max(world.clock) == pytest.approx(expected, rel=1e-12)
    for rank in range(p):
        assert world.results[rank] == sum(n * t.index(rank) for t, n in turns if t[rank] != rank)


def one_collective(rank, p, name, n, more):
    return (yield together(name, n, rank, p, **more))


@pytest.mark.hypothesis
@given(st.integers(2, 8), st.integers(1, 100), times)
def test_a_collective_costs_what_the_closed_form_says(p, n, αβ):
    for name, more, cost in (
        ("all_reduce", {"op": "MAX"}, collectives.cost("all_reduce", "ring", p * n, p)),
        ("reduce_scatter", {"op": "MAX"}, collectives.cost("reduce_scatter", "ring", p * n, p)),
        ("all_gather", {}, collectives.cost("all_gather", "ring", p * p * n, p)),
        ("broadcast", {"root": 0}, collectives.binomial_broadcast(p * n, p)),
        ("all_to_all", {"sizes": [n] * p}, collectives.pairwise(p * n, p)),
    ):
        world = run(one_collective, p, *αβ, name, p * n, more)
        assert world.clock == [pytest.approx(cost.seconds(*αβ), rel=1e-12)] * p


def test_collectives_give_each_rank_its_part():
    def result(name, n, **more):
        return [list(got) for got in run(one_collective, 3, 1.0, 0.0, name, n, more).results]

    assert result("all_reduce", 2, op="SUM") == [[3, 3]] * 3
    assert result("reduce_scatter", 3, op="SUM") == [[3]] * 3
    assert result("all_gather", 1) == [[0, 1, 2]] * 3
    assert result("broadcast", 2, root=2) == [[2, 2]] * 3
    assert result("all_to_all", 3, sizes=[1, 1, 1]) == [[0, 1, 2]] * 3


def test_a_rank_receives_one_message_at_a_time():
    def all_to_one(rank, p):
        halves = [outgoing(0, [rank])] if rank else [incoming(source, 1) for source in range(1, p)]
        yield from transfer(*halves)

    assert max(run(all_to_one, 5, 1.0, 0.0).clock) == 4.0


def failure_of(program, size):
    with pytest.raises(Failure) as raised:
        run(program, size, 1.0, 0.0)
    return raised.value


def test_a_deadlock_is_named_with_both_calls():
    def after_you(rank, p):
        yield "recv", {"peer": 1 - rank, "tag": 0, "data": ("uint8", (1,), None)}

    failure = failure_of(after_you, 2)
    assert failure.ranks == [0, 1] and failure.words == "ranks 0, 1 were still running after 60 s"
    assert failure.told == (
        "deadlock: rank 0 waits in recv from rank 1 (line 1, in program); "
        "rank 1 waits in recv from rank 0 (line 1, in program)"
    )


def test_ranks_that_disagree_are_named():
    def mismatch(rank, p):
        yield together("all_reduce", 5 if rank == 1 else 3, rank, p, op="SUM")

    failure = failure_of(mismatch, 4)
    assert failure.ranks == [1]
    assert failure.words == (
        "ranks 0, 2, 3 entered all_reduce with (3,) Byte · rank 1 entered all_reduce with (5,) Byte"
    )


def test_a_rank_that_returned_early_is_named():
    def early(rank, p):
        if rank == 0:
            yield together("all_reduce", 1, rank, p, op="SUM")

    failure = failure_of(early, 2)
    assert failure.ranks == [1]
    assert failure.words == "rank 1 returned while rank 0 was still waiting in all_reduce"


def test_a_message_that_does_not_fit_is_named():
    def sizes(rank, p):
        yield from transfer(*([incoming(0, 3)] if rank else [outgoing(1, [1, 2])]))

    assert failure_of(sizes, 2).words == "rank 0 sends 2 uint8 to rank 1, which receives 3 uint8"
