"""The check of the chapter Stages that fit says ✓ to right answers and ✗, with a hint, to wrong ones."""

import functools

import pytest
from verdicts import verdict

from allranks.check import stages_that_fit


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


@pytest.mark.parametrize(
    "answer, said",
    [
        (fitting, "✓"),
        (lambda costs, memory, stages, limit: fitting(costs, memory, stages, 99), "the limit"),
        (lambda *given: None, "but a cut with a slowest stage of"),
        (lambda costs, *rest: [costs], "none of them empty"),
        (lambda costs, *rest: [costs[:1], costs[1:2], costs[3:]], "in their order, cut"),
        (lambda costs, *rest: [costs[:2], costs[2:3], costs[3:]], "the slowest"),
    ],
)
def test_the_check_has_one_line(capsys, answer, said):
    assert said in verdict(capsys, stages_that_fit.fitting, answer)
