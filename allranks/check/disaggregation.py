"""The exercises of the chapter on disaggregation."""

import torch

from allranks import hardware, inference
from allranks.check import exercise
from allranks.inference import held_heads
from allranks.transformer import PRESETS

POOLS = ((2, 1, 1), (2, 1, 2), (2, 1, 4), (2, 4, 1), (8, 2, 4), (8, 4, 2), (8, 16, 2), (4, 2, 8), (1, 3, 2))
PAGES = ((24, 8, 4), (32, 16, 8), (32, 8, 16), (21, 8, 4), (21, 4, 8), (5, 8, 2), (24, 8, 8), (13, 4, 5))
LLAMA, SHARE, LINK = PRESETS["llama3-8b"], 0.5, "ethernet-25"


@exercise
def messages(answer):
    """`answer(kv_heads, senders, receivers)`: triples (sender, receiver, head) of the whole model."""
    for heads, senders, receivers in POOLS:
        where = f"{heads} head{'s' * (heads > 1)}, {senders} → {receivers} rank{'s' * (receivers > 1)}"
        found = answer(heads, senders, receivers)
        assert isinstance(found, (list, tuple)), f"{where}: expected a list of triples; got {found!r}."
        for one in found:
            assert isinstance(one, tuple) and len(one) == 3, (
                f"{where}: each message is (sender, receiver, head), not {one!r}."
            )
            sender, receiver, head = one
            assert sender in range(senders) and receiver in range(receivers), (
                f"{where}: {one} names a rank that does not exist; both pools count from 0."
            )
            assert head in held_heads(heads, senders, sender), (
                f"{where}: sender {sender} does not hold head {head}."
            )
            assert head in held_heads(heads, receivers, receiver), (
                f"{where}: receiver {receiver} receives head {head}, which is not one of its heads."
            )
        for receiver in range(receivers):
            gets = sorted(head for _, to, head in found if to == receiver)
            needs = list(held_heads(heads, receivers, receiver))
            assert len(set(gets)) == len(gets), (
                f"{where}: receiver {receiver} receives a head more than once; one copy is enough."
            )
            assert gets == needs, f"{where}: receiver {receiver} needs the heads {needs} but receives {gets}."
    return (
        f"{len(POOLS)} pairs of pools: each receiver gets each of its heads once, from a rank that holds it."
    )


@exercise
def repage(answer):
    """`answer(pages, length, size)`: the same tokens in pages of another size."""
    layers, heads, width = 2, 3, 4
    for length, page, size in PAGES:
        where = f"{length} tokens, from pages of {page} to pages of {size}"
        tokens = torch.arange(1.0, 1 + layers * 2 * heads * length * width)
        tokens = tokens.view(layers, 2, heads, length, width)
        given, right = (_paged(tokens, each) for each in (page, size))
        given[:, :, -1, :, (length - 1) % page + 1 :] = -1.0  # what lies behind the last token is anything
        found = answer(given.clone(), length, size)
        assert torch.is_tensor(found), f"{where}: expected a tensor; got {type(found).__name__}."
        assert found.shape == right.shape, (
            f"{where}: the shape is {tuple(found.shape)}; expected {tuple(right.shape)}."
        )
        assert not (found == -1).any(), f"{where}: what follows the last token was copied; put zeros there."
        if not torch.equal(found, right):
            assert not torch.equal(found.flatten().sort().values, right.flatten().sort().values), (
                f"{where}: all numbers are there, but in the wrong places. The head dimension separates "
                "pages from tokens: make them adjacent first."
            )
        assert torch.equal(found, right), f"{where}: a token is lost or in the wrong place."
    return f"{len(PAGES)} pairs of sizes: each token is where it belongs, and zeros follow the last."


def _paged(tokens, page):
    """(layers, 2, heads, length, width) in pages of `page`, with zeros behind the last token."""
    layers, kinds, heads, length, width = tokens.shape
    count = -(-length // page)
    pages = tokens.new_zeros(layers, kinds, count, heads, page, width)
    for at in range(length):
        pages[:, :, at // page, :, at % page] = tokens[:, :, :, at]
    return pages


def first_worth(needed, bandwidth):
    """The first number of tokens for which `needed(tokens)` is at most `bandwidth`."""
    low, high = 0, 1
    while needed(high) > bandwidth:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if needed(middle) > bandwidth else (low, middle)
    return high


@exercise
def worth_moving(answer):
    """`answer`: from how many tokens on moving the cache of Llama 3 8B beats computing it."""
    peak, bandwidth = hardware.peak("h100"), hardware.link(LINK).bandwidth

    def needed(tokens, flops=SHARE * peak):
        return inference.break_even_bandwidth(LLAMA, tokens, flops)

    right = first_worth(needed, bandwidth)
    assert answer is not None, "Replace None with a number."
    assert isinstance(answer, int) and not isinstance(answer, bool) and answer > 0, (
        f"The number of tokens is a whole number above 0, not {answer!r}."
    )
    assert answer != first_worth(lambda n: needed(n, peak), bandwidth), (
        "That would be right at the full peak; this GPU reaches half of it, and takes twice as long."
    )
    with_logits = first_worth(lambda n: _with_logits(n) * SHARE * peak, bandwidth)
    assert answer != with_logits, (
        "That would be right if logits were computed too; a cache does not need them."
    )
    assert needed(answer) <= bandwidth, (
        f"For {answer:,} tokens the link would need {needed(answer) / 1e9:.2f} GB/s, but it has "
        f"{bandwidth / 1e9:.3f} (25 Gbit/s are bits). Recomputing is still faster."
    )
    assert answer == right, (
        f"For {answer:,} tokens moving is faster, but so it is for fewer tokens: find the smallest number."
    )
    return f"{right:,} tokens: recomputing attention over so long a past takes longer than moving the cache."


def _with_logits(tokens):
    """Bytes of a cache over the FLOPs of a pass that also computes the logits of all tokens."""
    return inference.moved_bytes(LLAMA, tokens) / inference.step(LLAMA, tokens).flops
