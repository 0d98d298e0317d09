"""Is it the right number, or the right letter? What the checks of the mixed problems share.

Each wrong answer that a reader is likely to give has a sentence of its own.
"""

from allranks.check.stubs import is_filled, is_number


def near(answer, right, slips):
    """Assert that `answer` is within 1 % of `right`; `slips` maps a usual wrong value to what it forgets."""
    is_number(answer)
    for value, hint in slips.items():
        assert abs(answer - value) > 0.01 * abs(value), hint
    assert abs(answer - right) <= 0.01 * abs(right), (
        f"{answer:g} is not right: check each factor and the units."
    )


def chosen(answer, right, hints):
    """Assert that `answer` is the letter `right`; `hints` says of each other one what is against it."""
    is_filled(answer, "a letter")
    letters = sorted([right, *hints])
    letter = str(answer).strip().upper()
    assert letter in letters, (
        f"{answer!r} is not a choice: answer with one of the letters {', '.join(letters)}."
    )
    assert letter == right, hints[letter]


def all_of(answer, count, names):
    """Return `answer`, asserted to be a tuple or list of the `count` things that `names` lists."""
    what = f"{('two', 'three', 'four', 'five')[count - 2]} things: {names}."
    is_filled(answer, what.removesuffix("."))
    assert isinstance(answer, (tuple, list)) and len(answer) == count, f"Give {what}"
    return answer
