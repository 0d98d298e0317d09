"""The bytes of a cached token, and the requests that fit."""

import random

from allranks import memory
from allranks.check import exercise, stubs
from allranks.check.lab_06.common import on_ranks
from allranks.check.labs import is_written
from allranks.transformer import PRESETS, decoder

MODELS = ("llama3-8b", "llama3-70b", "llama2-7b")

USUAL = (  # bytes of a token as they are often counted, and what is to be said
    (
        lambda shape, element: 2 * shape.layers * shape.heads * shape.head_width * element,
        "Those are the heads of queries; only keys and values are kept.",
    ),
    (
        lambda shape, element: 2 * shape.layers * shape.hidden * element,
        "The hidden size says nothing about the heads of keys.",
    ),
    (
        lambda shape, element: memory.kv_cache_bytes(shape, element=element) // 2,
        ("Keys and values are two tensors."),
    ),
    (
        lambda shape, element: memory.kv_cache_bytes(shape, element=element) // shape.layers,
        "Every layer has keys and values of its own.",
    ),
    (
        lambda shape, element: memory.kv_cache_bytes(shape, element=1),
        "Those are numbers; each takes a few bytes.",
    ),
    (lambda shape, element: memory.kv_cache_bytes(shape), "Ask `element` for the bytes of a number."),
)


def requests_that_fit(shape, nbytes, page, prompt, new, element=2, last=0):
    """Requests that fit to their end; with `last=1` as if the last token were fed too."""
    pages = nbytes // memory.kv_cache_bytes(shape, page, element=element)
    return pages // -(-(prompt + new - 1 + last) // page)


def _cases():
    """(shape, nbytes, page, prompt, new, element), each just on one side of a page or of a request."""
    cases = []
    for _ in range(3):
        kv_heads = random.choice([1, 2, 4])
        shape = decoder(
            random.choice([3, 5]), 48, 8, vocabulary=100, sequence=512, kv_heads=kv_heads, head_width=12
        )
        page, element = random.choice([4, 8, 16]), random.choice([1, 2, 4])
        whole = memory.kv_cache_bytes(shape, page, element=element)
        pages = random.randint(2, 5)
        for tokens in (pages * page + 1, pages * page, pages * page - 1):  # known and new ones
            new = random.randint(1, tokens - 1)
            needed = -(-(tokens - 1) // page)
            full = 7 * needed * whole
            for nbytes in (full, full - 1, full + whole, needed * whole - 1):
                cases.append((shape, nbytes, page, tokens - new, new, element))
    return random.sample(cases, len(cases))


def _answers(token_bytes, fitting, cases):
    shapes = [(shape, element) for shape, *_, element in cases] + [(PRESETS[name], 2) for name in MODELS]
    return [token_bytes(*given) for given in shapes], [fitting(*case) for case in cases], shapes


@exercise
def bytes_and_requests(token_bytes, fitting):
    """`token_bytes(shape, element)` and `fitting(shape, nbytes, page, prompt, new, element)`."""
    is_written(token_bytes, fitting)
    cases = _cases()
    sizes, numbers, shapes = on_ranks(_answers, token_bytes, fitting, cases)[0]
    hint = _hint(sizes, shapes)
    for size, (shape, element) in zip(sizes, shapes, strict=True):
        _judge_bytes(size, shape, element, hint)
    for number, case in zip(numbers, cases, strict=True):
        _judge_fitting(number, *case)
    return (
        f"The bytes are right for {len(MODELS)} published models and others, and the requests for "
        f"{len(cases)} budgets, in whole pages."
    )


def _hint(sizes, shapes):
    """What is to be said about an answer that is wrong in one of the usual ways; else nothing."""
    for wrong, sentence in USUAL:
        if sizes == [wrong(shape, element) for shape, element in shapes]:
            return sentence
    return ""


def _judge_bytes(size, shape, element, hint):
    stubs.is_returned(size, "bytes", "token_bytes")
    right = memory.kv_cache_bytes(shape, element=element)
    where = (
        f"{shape.layers} layers, {shape.heads} heads of queries and {shape.kv_heads} of keys, "
        f"{shape.head_width} wide, {element} bytes each"
    )
    assert size == right, f"With {where}, a token takes {right:,} bytes, not {size!r}. {hint}".rstrip()


def _judge_fitting(number, shape, nbytes, page, prompt, new, element):
    stubs.is_returned(number, "a whole number", "fitting")
    right = requests_that_fit(shape, nbytes, page, prompt, new, element)
    where = (
        f"{nbytes:,} bytes, pages of {page} tokens of {memory.kv_cache_bytes(shape, element=element):,} "
        f"bytes, and requests of {prompt} + {new} tokens"
    )
    by_tokens = nbytes // (memory.kv_cache_bytes(shape, element=element) * (prompt + new - 1))
    hint = ""
    if isinstance(number, float) and number == right:
        hint = "Return a whole number: divide with //."
    elif number == requests_that_fit(shape, nbytes, page, prompt, new, element, last=1):
        hint = "The last token is never fed, so a request caches one token fewer than it has."
    elif number == by_tokens:
        hint = "A page belongs to one request: round its pages up."
    elif isinstance(number, float):
        hint = "Only whole pages and whole requests count."
    elif number == requests_that_fit(shape, nbytes, page, prompt, 1, element):
        hint = "They all start, but as they grow, some will be preempted."
    elif isinstance(number, int) and number > right:
        hint = "Round the pool's pages down, and those of a request up."
    assert isinstance(number, int) and number == right, (
        f"With {where}, {right} fit, not {number!r}. {hint}".rstrip()
    )
