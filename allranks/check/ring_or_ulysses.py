"""The exercises of the chapter Ring, all-gather or Ulysses."""

from allranks import attention
from allranks.check import exercise
from allranks.check.stubs import is_number
from allranks.transformer import PRESETS

RANKS, SEQUENCE, WIDTH, KV_HEADS = 8, 4096, 128, 8


def _most_shared():
    """The most heads of queries to one of keys for which Ulysses sends no more than the all-gather."""
    gathered = attention.ring_bytes(
        SEQUENCE, RANKS, KV_HEADS, WIDTH
    )  # the all-gather sends as much as the ring
    return max(
        shared
        for shared in range(1, 4 * RANKS)
        if attention.ulysses_bytes(SEQUENCE, RANKS, shared * KV_HEADS, KV_HEADS, WIDTH) <= gathered
    )


@exercise
def shared(answer):
    """`answer`: heads of queries to a head of keys up to which Ulysses sends no more than the all-gather."""
    expected = _most_shared()
    is_number(answer)
    assert answer != RANKS, "Almost: queries and outputs travel, but keys and values do too."
    assert answer != 2 * RANKS - 1, "Queries travel there and outputs back: count both."
    assert answer == expected, (
        f"{answer:g} is not right: which four tensors does Ulysses exchange, and how large is each?"
    )
    return f"{expected}: for g ≥ {expected + 1}, the all-gather among {RANKS} ranks sends less."


@exercise
def megabytes_sent(answer):
    """`answer`: megabytes a rank sends forward in a layer of Llama 3 405B, 131,072 tokens, TP 8, CP 16."""
    model = PRESETS["llama3-405b"]
    expected = attention.ring_bytes(131072, 16, model.kv_heads // 8, model.head_width) / 1e6
    is_number(answer)
    for factor, hint in (
        (1 / 15, "That is one hop; there are fifteen."),
        (16 / 15, "That includes a rank's own part, which is not sent."),
        (1 / 2, "That is a factor of two off: keys and values, two bytes an element."),
        (8, "That is for all eight heads of keys; tensor parallelism leaves a rank one."),
        (16, "That is with as many heads of keys as of queries; Llama shares them."),
    ):
        assert abs(answer / (expected * factor) - 1) > 0.01, hint
    assert abs(answer / expected - 1) <= 0.01, (
        f"{answer:g} MB is not right: what does one hop of 8192 tokens carry?"
    )
    return f"{expected:.0f} MB, in 15 hops of {expected / 15:.1f} MB."
