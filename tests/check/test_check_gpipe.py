"""The checks of the chapter GPipe say ✓ to right answers and ✗, with a hint, to wrong ones."""

import functools

import pytest
from verdicts import verdict

from allranks import schedules
from allranks.check import gpipe


def fitting(costs, memory, stages, limit):
    @functools.cache
    def best(start, stages):
        ends = [len(costs)] if stages == 1 else range(start + 1, len(costs) - stages + 2)
        found = []
        for end in ends:
            if sum(memory[start:end]) <= limit:
                rest = best(end, stages - 1) if stages > 1 else (0, ())
                if rest:
                    found.append((max(sum(costs[start:end]), rest[0]), (costs[start:end], *rest[1])))
        return min(found, default=None)

    found = best(0, stages)
    return found and list(found[1])


def paper_order(stages, microbatches):
    every = range(microbatches)
    return [
        [("F", k, rank) for k in every] + [("BW", k, rank) for k in reversed(every)] for rank in range(stages)
    ]


def backwards_first(stages, microbatches):
    return [list(reversed(order)) for order in paper_order(stages, microbatches)]


def as_torch(stages, microbatches):
    return schedules.gpipe(stages, microbatches).orders


@pytest.mark.parametrize(
    "one_check, answer, said",
    [
        (gpipe.fitting, fitting, "✓"),
        (gpipe.fitting, lambda costs, memory, stages, limit: fitting(costs, memory, stages, 99), "the limit"),
        (gpipe.fitting, lambda *given: None, "and a cut with a slowest stage of"),
        (gpipe.fitting, lambda costs, *rest: [costs], "none of them empty"),
        (gpipe.fitting, lambda costs, *rest: [costs[:1], costs[1:2], costs[3:]], "in their order, cut"),
        (gpipe.fitting, lambda costs, *rest: [costs[:2], costs[2:3], costs[3:]], "can be reached"),
        (gpipe.paper_order, paper_order, "✓"),
        (gpipe.paper_order, as_torch, "the last comes first"),
        (gpipe.paper_order, backwards_first, "✗ With 1 stages and 1 micro-batches: rank 0"),
        (gpipe.paper_order, lambda stages, microbatches: None, "returns nothing yet"),
        (gpipe.enough, 133, "✓ 133 micro-batches: 5.00%"),
        (gpipe.enough, 140, "✗ That is 5 % of the *ideal* time"),
        (gpipe.enough, 32, "still idle 17.9%"),
        (gpipe.enough, 200, "but fewer are, too"),
        (gpipe.enough, None, "✗ Put a number"),
    ],
)
def test_each_check_has_one_line(capsys, one_check, answer, said):
    assert said in verdict(capsys, one_check, answer)
