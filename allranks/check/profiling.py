"""The exercises of the chapter on profiling."""

from allranks import profiles
from allranks.check import exercise
from allranks.check.stubs import is_filled, is_returned

CAUSES = profiles.EXAMPLES[1:]
LETTERS = {"A": "host sync", "B": "slow rank", "C": "small messages", "D": "data loader", "E": "no overlap"}
SIGNS = {
    "host sync": "where in a step do its collectives begin?",
    "slow rank": "compare the lengths of the collectives of its ranks.",
    "small messages": "count its collectives.",
    "data loader": "look for time in which nobody computes and nobody communicates.",
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
        assert answer in CAUSES, f"{answer!r} is none of {', '.join(CAUSES)}."
    wrong = [letter for letter, fault in LETTERS.items() if answers[letter] != fault]
    assert not wrong, f"{5 - len(wrong)} of 5 are right. Look at {wrong[0]}: {SIGNS[LETTERS[wrong[0]]]}"
    return "Five traces, five causes."


@exercise
def cause(answer):
    """`answer(recorded)`: the cause in any recorded traces, as a name of `profiles.EXAMPLES`."""
    for name in profiles.EXAMPLES:
        recorded = profiles.example(name)
        for variant, changed in _variants(recorded).items():
            found = answer(changed)
            is_returned(found, "the name of a cause")
            words = "the healthy program" if name == "none" else f"the trace of {name!r}"
            assert found == name, f"For {words}{variant} your function says {found!r}."
    return "Healthy or not, on any clock, at any speed, in any order of ranks."


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
