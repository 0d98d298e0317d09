"""The exercises of the chapter on profiling."""

from allranks import profiles
from allranks.check import exercise
from allranks.check.stubs import is_filled, is_returned

CAUSES = profiles.EXAMPLES[1:]
LETTERS = {"A": "host sync", "B": "slow rank", "C": "small messages", "D": "data loader", "E": "no overlap"}
SIGNS = {
    "host sync": "where in a step do the collectives begin?",
    "slow rank": "compare how long each rank's collectives take.",
    "small messages": "count the collectives.",
    "data loader": "look for time in which no rank computes or communicates.",
    "no overlap": "does anything compute while a collective runs?",
}


def lettered():
    """The five traces of the exercise, by their letters."""
    return {letter: profiles.example(fault) for letter, fault in LETTERS.items()}


@exercise
def causes(answers):
    """`answers`: the cause of each letter, one of `CAUSES`."""
    is_filled(answers, "a dictionary")
    assert set(answers) == set(LETTERS), "Answer for each of A, B, C, D and E."
    for letter, answer in answers.items():
        is_filled(answer, f"the cause of {letter}")
        assert answer in CAUSES, f"{answer!r} is not one of {', '.join(CAUSES)}."
    wrong = [letter for letter, fault in LETTERS.items() if answers[letter] != fault]
    assert not wrong, f"{5 - len(wrong)} of 5 are right. In trace {wrong[0]}, {SIGNS[LETTERS[wrong[0]]]}"
    return "All five causes are right."


@exercise
def cause(answer):
    """`answer(recorded)`: the cause in any recorded traces, as a name of `profiles.EXAMPLES`."""
    for name in profiles.EXAMPLES:
        recorded = profiles.example(name)
        for variant, changed in _variants(recorded).items():
            found = answer(changed)
            is_returned(found, "the name of a cause")
            words = "the healthy program" if name == "none" else f"the trace of {name!r}"
            assert found == name, f"For {words}{variant} your function returns {found!r}."
    return "Every cause is found, on any clock, at any speed, in any order of ranks."


def _variants(recorded):
    """The same trace, faster or slower, later, and with its ranks in another order."""
    return {
        "": recorded,
        ", ten times slower,": [_scaled(one, 10) for one in recorded],
        ", a hundred times faster,": [_scaled(one, 0.01) for one in recorded],
        ", an hour later,": [profiles.shifted(one, 3600) for one in recorded],
        ", with its ranks numbered backwards,": [
            one._replace(rank=rank) for rank, one in enumerate(recorded[::-1])
        ],
    }


def _scaled(one, factor):
    return one._replace(
        phases=[profiles.Span(p.name, p.start * factor, p.end * factor) for p in one.phases],
        computing=[(start * factor, end * factor) for start, end in one.computing],
        collectives=[c._replace(start=c.start * factor, end=c.end * factor) for c in one.collectives],
    )
