"""The checks of the chapter on batching say ✓ to right answers and ✗, with a hint, to wrong ones."""

import pytest
from verdicts import verdict

from allranks.check import batching as checks
from allranks.serving import page_keys


def in_order(waiting, free, page, slots):
    return checks.admitted(waiting, free, page, slots)


def by_sums(waiting, free, page, slots):
    """Another right answer: the longest beginning of the queue that fits."""
    pages = [(tokens + page - 1) // page for tokens in waiting]
    fits = [n for n in range(len(pages) + 1) if n <= slots and sum(pages[:n]) <= free]
    return max(fits)


def in_tokens(waiting, free, page, slots):
    fits = [n for n in range(len(waiting) + 1) if n <= slots and sum(waiting[:n]) <= free * page]
    return max(fits)


def rounding_down(waiting, free, page, slots):
    return by_sums([tokens // page * page for tokens in waiting], free, page, slots)


@pytest.mark.parametrize(
    "answer, said",
    [
        (in_order, "✓ 9 queues"),
        (by_sums, "✓ 9 queues"),
        (in_tokens, "A page belongs to one request"),
        (rounding_down, "A page belongs to one request"),
        (lambda w, f, p, s: checks.admitted(w, f, p, s, overtake=True), "a request overtakes"),
        (lambda w, f, p, s: checks.admitted(w, f, p, 99), "each needs a slot"),
        (lambda w, f, p, s: max(0, checks.admitted(w, f - 1, p, s)), "More of them fit"),
        (lambda w, f, p, s: None, "a whole number; got None"),
        (lambda w, f, p, s: True, "a whole number; got True"),
        (None, "✗"),
    ],
)
def test_admission(capsys, answer, said):
    assert said in verdict(capsys, checks.admission, answer)


def nested(tokens, page):
    """Another right answer: the whole beginning is its own key."""
    return [tuple(tokens[:end]) for end in range(page, len(tokens) + 1, page)]


def alone(tokens, page):
    return [tuple(tokens[end - page : end]) for end in range(page, len(tokens) + 1, page)]


def with_partial(tokens, page):
    return [tuple(tokens[: end + page]) for end in range(0, len(tokens), page)]


def with_position(tokens, page):
    return [(end, *tokens[end - page : end]) for end in range(page, len(tokens) + 1, page)]


def with_one_before(tokens, page):
    return [tuple(tokens[max(0, end - 2 * page) : end]) for end in range(page, len(tokens) + 1, page)]


def unordered(tokens, page):
    return [
        (frozenset(tokens[: end - page]), tuple(tokens[end - page : end]), end)
        for end in range(page, len(tokens) + 1, page)
    ]


def in_digits(tokens, page):
    return ["".join(map(str, key)) for key in nested(tokens, page)]


@pytest.mark.parametrize(
    "answer, said",
    [
        (page_keys, "✓ Two pages have"),
        (nested, "✓ Two pages have"),
        (alone, "[1, 2] as after [5, 6], but its"),
        (with_position, "[1, 2] as after [5, 6], but its"),
        (with_partial, "a page gets its key only once it"),
        (with_one_before, "not on all of them"),
        (unordered, "the order of the pages"),
        (in_digits, "[1, 23] and [12, 3]"),
        (
            lambda tokens, page: [list(key) for key in nested(tokens, page)],
            "A key of type list cannot be looked up in",
        ),
        (lambda tokens, page: [object() for _ in nested(tokens, page)], "the second time"),
        (lambda tokens, page: [(len(tokens), *key) for key in nested(tokens, page)], "change when a token"),
        (lambda tokens, page: [len(key) for key in nested(tokens, page)], "different tokens"),
        (lambda tokens, page: None, "Return a list of keys"),
        (None, "✗"),
    ],
)
def test_keys(capsys, answer, said):
    assert said in verdict(capsys, checks.keys, answer)


@pytest.mark.parametrize(
    "answer, said",
    [
        (304, "✓ 304"),
        (304.9, "round down"),
        (301, "never fed"),
        (59, "reserves 8,192"),
        (483, "some will be preempted"),
        (1, "pages does one request hold at"),
        (None, "None"),
        ("304", "✗"),
    ],
)
def test_largest_batch(capsys, answer, said):
    assert said in verdict(capsys, checks.largest_batch, answer)
