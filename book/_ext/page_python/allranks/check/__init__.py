"""`check.<chapter>.<exercise>(answer)` in a page: the book's own checks, in the words of `allranks.check`."""

import allranks


def exercise(test):
    """Turn a test into a check that prints one line."""

    def check(*answers):
        allranks.running.print(verdict(test, *answers))

    return check


def verdict(test, *answers):
    """The line about `answers`: `✓` and what `test` returns, or `✗` and what is wrong."""
    try:
        return f"✓ {test(*answers)}"
    except AssertionError as wrong:
        return f"✗ {wrong}"
    except allranks.LaunchError as failure:
        return "\n  ".join([f"✗ Your function did not finish: {failure}."] + list(failure.places))
    except Exception as error:
        return f"✗ This cannot be checked: {type(error).__name__}: {error}"


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return __import__(f"allranks.check.{name}", None, None, ["exercise"])
