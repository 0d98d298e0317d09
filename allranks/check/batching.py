"""The exercises of the chapter on batching."""

from allranks import hardware, inference, memory
from allranks.check import exercise
from allranks.check.stubs import is_number
from allranks.transformer import PRESETS, parameters

LLAMA, PAGE = PRESETS["llama3-8b"], 16
PROMPT, NEW, LIMIT = 1000, 601, 8192  # tokens of a request, and the most that the model reads
QUEUES = (  # tokens of those who wait, free pages, tokens of a page, free slots
    ([16, 32, 16], 4, 16, 8),
    ([16, 32, 16], 3, 16, 8),
    ([20, 20, 20], 4, 16, 8),
    ([5, 5, 5, 5], 9, 16, 3),
    ([64, 5, 5], 3, 16, 8),
    ([5, 64, 5], 3, 16, 8),
    ([], 3, 16, 8),
    ([7, 1], 2, 4, 0),
    ([1] * 20, 12, 1, 30),
)


def admitted(waiting, free, page, slots, overtake=False):
    """How many of those who wait get in, first come first served or, with `overtake`, whoever fits."""
    count = 0
    for tokens in waiting:
        pages = -(-tokens // page)
        if count < slots and pages <= free:
            count, free = count + 1, free - pages
        elif not overtake:
            break
    return count


@exercise
def admission(answer):
    """`answer(waiting, free, page, slots)`: how many of the first in the queue are admitted."""
    for waiting, free, page, slots in QUEUES:
        said, right = answer(list(waiting), free, page, slots), admitted(waiting, free, page, slots)
        where = f"With {waiting} tokens waiting, {free} free pages of {page} tokens and {slots} slots"
        assert isinstance(said, int) and not isinstance(said, bool), (
            f"{where}, return how many requests are admitted, as a whole number; got {said!r}."
        )
        if said != right:
            assert said <= slots, f"{where}, {said} cannot be admitted: each needs a slot too."
            assert said != admitted(waiting, free, page, slots, overtake=True), (
                f"{where}, a request overtakes another: once one does not fit, all later ones wait too."
            )
            fewer = "A page belongs to one request" if said > right else "More of them fit"
        assert said == right, f"{where}, {right} should be admitted, not {said}. {fewer}: count pages."
    return f"{len(QUEUES)} queues: whole pages, free slots, and no overtaking."


@exercise
def keys(answer):
    """`answer(tokens, page)`: a key for each full page."""

    def of(*tokens):
        found = answer(list(tokens), 2)
        assert isinstance(found, (list, tuple)), f"Return a list of keys; got {type(found).__name__}."
        full = len(tokens) // 2
        assert len(found) == full, (
            f"{len(tokens)} tokens fill {full} pages of 2, but there are {len(found)} keys: a page gets "
            "its key only once it is full."
        )
        for key in found:
            assert key.__hash__ is not None, (
                f"A key of type {type(key).__name__} cannot be looked up in a dictionary."
            )
        return list(found)

    assert of(1, 2, 3, 4) == of(1, 2, 3, 4), "The same tokens get different keys the second time."
    assert of(1, 2, 3, 4, 5) == of(1, 2, 3, 4), "The keys of full pages change when a token is added."
    assert of(1, 2, 3, 4)[:1] == of(1, 2, 5, 6)[:1], "The first page's key depends on the second page."
    assert of(1, 2)[0] != of(1, 3)[0], "Pages of different tokens have the same key."
    assert of(1, 2, 3, 4)[1] != of(5, 6, 3, 4)[1], (
        "The page [3, 4] has the same key after [1, 2] as after [5, 6], but its keys and values differ."
    )
    assert of(7, 7, 7, 7)[0] != of(7, 7, 7, 7)[1], "Both pages of [7, 7, 7, 7] have the same key."
    assert of(1, 2, 3, 4, 5, 6)[2] != of(3, 4, 1, 2, 5, 6)[2], (
        "A key ignores the order of the pages before it."
    )
    assert of(1, 2, 3, 4, 5, 6)[2] != of(9, 2, 3, 4, 5, 6)[2], (
        "A key depends only on the page before it, not on all of them."
    )
    assert of(1, 23)[0] != of(12, 3)[0], "The tokens [1, 23] and [12, 3] have the same key."
    assert of() == [], "Without tokens there is no full page, so there should be no key."
    return "Two pages have equal keys only if all tokens up to their ends are equal."


@exercise
def largest_batch(answer):
    """`answer`: requests that run at once and are never preempted, in pages instead of reserved places."""
    capacity = hardware.accelerator("h100").memory
    free = capacity - 2 * parameters(LLAMA)
    pages = int(free // memory.kv_cache_bytes(LLAMA, PAGE))
    right = pages // -(-(PROMPT + NEW - 1) // PAGE)
    is_number(answer)
    assert answer != inference.largest_batch(LLAMA, LIMIT, capacity), (
        f"That many fit if each reserves {LIMIT:,} tokens; pages hold only tokens that exist."
    )
    assert answer != pages // -(-(PROMPT + NEW) // PAGE), (
        f"Almost: the last of {PROMPT + NEW:,} tokens is never fed back, so a request caches one fewer."
    )
    assert answer != pages // -(-PROMPT // PAGE), "They all start, but as they grow, some will be preempted."
    assert not right < answer <= right + 1, f"{answer:g} requests do not quite fit: round down."
    assert answer == right, f"{answer:g} is not right: how many pages does one request hold at its end?"
    return f"{right}: there are {pages:,} pages, and each request ends with {-(-(PROMPT + NEW - 1) // PAGE)}."
