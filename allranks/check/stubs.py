"""Is the stub of an exercise filled in? The sentences about an answer that is still None, in one place."""

import math


def is_filled(answer, what="a number"):
    """Fail if `answer` is still None; the sentence asks for `what` instead."""
    assert answer is not None and answer is not ..., f"Replace None with {what}."
    assert not isinstance(answer, float) or math.isfinite(answer), (
        f"{answer} is not an answer: give {what} that is finite."
    )


def is_number(answer):
    """Fail unless `answer` is one finite number, of Python, NumPy or torch."""
    is_filled(answer)
    try:
        value = math.nan if isinstance(answer, (str, bytes, bool)) else float(answer)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        value = math.nan
    shown = f"A {type(answer).__name__}" if callable(answer) else repr(answer)
    shown = shown if len(shown) <= 40 else shown[:39] + "…"
    assert math.isfinite(value), f"{shown} is not a number: give one, and a finite one."


def is_returned(result, what="", where="The function"):
    """Fail if a function of the reader's returned None; `what` it should return, `where` it was called."""
    more = f"; it should return {what}" if what else ""
    assert result is not None and result is not ..., f"{where} returns nothing yet{more}."
