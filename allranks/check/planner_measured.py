"""The exercises of the chapter The planner, measured."""

from allranks import memory
from allranks.check import exercise
from allranks.check.stubs import is_number

MFU, CORE, SKIPPED = 60, 0.5, 0.5  # per cent; shares of the FLOPs, and of the pairs
LAYERS, STAGES = 126, 32


@exercise
def executed(answer):
    """`answer`: per cent of the peak that is executed when a causal kernel skips half of the pairs."""
    is_number(answer)
    expected = MFU * (1 - CORE * SKIPPED)
    assert abs(answer - MFU * SKIPPED) > 0.1, (
        "That halves everything; only the core of attention is halved, not the linear layers."
    )
    assert abs(answer - MFU / (1 - CORE * SKIPPED)) > 0.1, (
        "The share has to be lower, since skipped pairs are not executed."
    )
    assert abs(answer - expected) < 0.1, (
        f"{answer:g} % is not right: which part of the counted FLOPs is skipped?"
    )
    return f"{expected:g} %: a quarter of the counted FLOPs is never computed."


def _chunks():
    """The pieces of a stage for which every piece but the first and the last is one layer."""
    ones = [0] + [1] * LAYERS + [0]
    return next(v for v in range(1, LAYERS) if memory.pieces(LAYERS, stages=STAGES, chunks=v) == ones)


@exercise
def pieces(answer):
    """`answer`: the pieces of each of 32 stages, each of one layer but the first and the last."""
    is_number(answer)
    expected = _chunks()
    assert answer != LAYERS // STAGES, (
        "That leaves out the embedding and the output layer, which take a piece each."
    )
    assert answer == expected, (
        f"With {answer:g} pieces a stage there are {STAGES * answer:g} in all; how many are needed?"
    )
    return f"{expected} pieces a stage, {STAGES * expected} in all."
