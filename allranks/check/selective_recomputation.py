"""The exercises of the chapter Selective recomputation."""

from allranks import memory
from allranks.check import exercise
from allranks.check.stubs import is_filled, is_number
from allranks.transformer import PRESETS


@exercise
def megabytes(answer):
    """`answer`: megabytes (1e6) of a layer of MT-NLG on 8 ranks, as in Table 2 and with four all-gathers."""
    model = PRESETS["mt-nlg-530b"]
    whole = 2 * model.sequence * model.hidden * 2  # the inputs of two pairs of matrices
    printed, four = (
        memory.layer_activation_bytes(model, 1, 8, True, "selective", regather=again)
        for again in (True, False)
    )
    expected = printed / 1e6, four / 1e6
    assert isinstance(answer, tuple | list) and len(answer) == 2, "Give two numbers."
    for part in answer:
        is_filled(part, "numbers")
    first, second = answer
    for wrong, hint in (
        (memory.layer_activation_bytes(model, 1, 8, False, "selective"), "That is tensor parallelism alone."),
        (
            memory.layer_activation_bytes(model, 1, 8, True),
            "That includes the core, which is recomputed.",
        ),
        (8 * printed, "That is for all eight ranks together."),
    ):
        assert abs(first / (wrong / 1e6) - 1) > 0.005, hint
    assert abs(first / expected[0] - 1) < 0.005, (
        f"{first:g} MB is not right for the first: what remains of 34sbh on one of t ranks?"
    )
    assert abs(second / ((printed + whole) / 1e6) - 1) > 0.005, (
        "The second counts a rank's own part twice: it keeps all tokens instead of its part."
    )
    assert abs(second / ((printed + whole / 2 * 7 / 8) / 1e6) - 1) > 0.005, (
        "Two inputs are kept whole: that of queries, keys and values, and that of the feed-forward."
    )
    assert abs(second / expected[1] - 1) < 0.005, (
        f"The first is right, but {second:g} MB is not: which tensors come out of a gather?"
    )
    return f"{expected[0]:.0f} MB, and {expected[1]:.0f} MB if gathered tensors are kept whole."


@exercise
def length(answer):
    """`answer`: tokens at which the core of a layer of MT-NLG takes as many bytes as the rest of it."""
    is_number(answer)
    model = PRESETS["mt-nlg-530b"]

    def core_over_rest(split):
        parts = memory.layer_activation_parts(model, 1, 8, split)
        return parts["core"] / (parts["inside"] + parts["between the matrices"])

    half, unsplit = (model.sequence / core_over_rest(split) for split in (True, False))
    assert abs(answer / unsplit - 1) > 0.005, (
        "That is without splitting the sequence, when ten sbh stay whole."
    )
    assert abs(answer / (half / 8) - 1) > 0.005, "The core is divided by 8 as well, not only the rest."
    assert abs(answer / (8 * half) - 1) > 0.005, "The rest is divided by 8 as well, not only the core."
    assert abs(answer / half - 1) < 0.005, (
        f"At {answer:g} tokens the core takes {answer / half:.2f} times the bytes of the rest: which one "
        "grows with the square of the length?"
    )
    return f"{half:,.0f} tokens, on any number of ranks: the core is half of what is kept."
