"""The exercises of the chapter on serving engines."""

from allranks.check import exercise
from allranks.model import DIGITS, PIXELS
from allranks.serving import recorded

PAGE = recorded.PAGE
LENGTHS = (1, 2, 31, 32, 33, 34, 63, 64, 65, 66, 96, 97, 1000)
CLIENTS = 32


@exercise
def found(answer):
    """`answer(tokens, page)`: prompt tokens that an engine finds when the same prompt comes again."""
    for page in (PAGE, 16, 1):
        for tokens in LENGTHS:
            cached, right = answer(tokens, page), (tokens - 1) // page * page
            where = f"{tokens} token{'s' * (tokens > 1)} in pages of {page}"
            assert cached is not None, "The function returns nothing yet."
            assert isinstance(cached, int), f"{where}: expected a whole number of tokens; got {cached!r}."
            assert cached != tokens, f"{where}: the last token always has to be computed, for its logits."
            assert cached != -(-tokens // page) * page, f"{where}: a page that is not full has no key."
            assert cached % page == 0, f"{where}: only whole pages are found, so {cached} is not possible."
            assert cached == right, f"{where}: an engine finds {right}; you return {cached}."
    return f"Right for {len(LENGTHS)} lengths and 3 page sizes."


def blocks_without_preemption(digits, keeps=1):
    """Pages for `digits` whole pictures at once (the last token is never fed), and those vLLM keeps."""
    return digits * -(-PIXELS // PAGE) + keeps


@exercise
def blocks(answer):
    """`answer`: the smallest `num_gpu_blocks_override` with which ten whole digits run at once."""
    right, unkept = blocks_without_preemption(DIGITS), blocks_without_preemption(DIGITS, 0)
    assert answer is not None, "Replace None with a number."
    assert isinstance(answer, int), f"The number of pages is a whole number, not {answer!r}."
    assert answer != unkept, "The requests need that many, but vLLM keeps one page for itself."
    assert answer not in (3 * DIGITS, 3 * DIGITS + 1), (
        "65 tokens would need three pages, but the last token is never fed."
    )
    assert answer not in (DIGITS, DIGITS + 1), "That is enough only until the 33rd token of each digit."
    assert answer == right, f"{answer} is {'more than needed' if answer > right else 'not enough'}."
    return f"{right} pages: two for each digit, and one that vLLM keeps."


@exercise
def latency(answer):
    """`answer`: mean seconds that a digit takes with 32 clients, from the tokens a second of all of them."""
    rate = recorded.vllm()["clients"][str(CLIENTS)]["tokens_per_second"]
    right = CLIENTS * PIXELS / rate
    assert answer is not None, "Replace None with a number."
    assert isinstance(answer, (int, float)) and answer > 0, (
        f"The seconds are a number above 0, not {answer!r}."
    )

    def close(number):
        return abs(answer / number - 1) < 0.02

    assert not close(right / 2), "Sixteen run, but the sixteen that wait are in the server too."
    assert not close(PIXELS / rate), "That is how long it takes if the server works for this client alone."
    assert not close(right / PIXELS), "That is the time of one token."
    assert close(right), (
        f"{CLIENTS} clients, {PIXELS} tokens each, {rate:,} tokens a second: they do not take {answer:g} s."
    )
    return f"{CLIENTS} · {PIXELS} / {rate:,} = {right:.2f} s."
