"""Is the stub of an exercise filled in? The sentences about an answer that is still None, in one place."""


def is_filled(answer, what="a number"):
    """Fail if `answer` is still None; the sentence asks for `what` instead."""
    assert answer is not None and answer is not ..., f"Replace None with {what}."


def is_returned(result, what="", where="The function"):
    """Fail if a function of the reader's returned None; `what` it should return, `where` it was called."""
    more = f"; it should return {what}" if what else ""
    assert result is not None and result is not ..., f"{where} returns nothing yet{more}."
