"""Is this a number that can be computed with? If not: what was given, and what is allowed.

Every public function of the arithmetic asks here first, so that a slip ends in one clear sentence and not
in a plausible number.
"""

import math


def whole(name, value, at_least=1, at_most=None):
    """Return `value` if it is a whole number from `at_least` to `at_most`; else raise ValueError."""
    within = isinstance(value, int) and not isinstance(value, bool) and value >= at_least
    if within and (at_most is None or value <= at_most):
        return value
    allowed = f"of at least {at_least}" if at_most is None else f"from {at_least} to {at_most}"
    raise ValueError(f"{name} must be a whole number {allowed}, not {value!r}")


def quantity(name, value, positive=False):
    """Return `value` if it is finite and at least 0 (with `positive`: above 0); else raise ValueError."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        finite = isinstance(value, int) or math.isfinite(value)
        if finite and (value > 0 if positive else value >= 0):
            return value
    allowed = "above 0" if positive else "of at least 0"
    raise ValueError(f"{name} must be a number {allowed}, not {value!r}")


def one_of(name, value, allowed):
    """Return `value` if it is one of `allowed`; else raise ValueError with the list."""
    if value not in allowed:
        listed = ", ".join(repr(each) for each in allowed)
        raise ValueError(f"{name} must be one of {listed}, not {value!r}")
    return value


def multiple(name, value, of_name, of):
    """Return `value` if `of` divides it; else raise ValueError that names both."""
    if value % of:
        raise ValueError(f"{name} must be a multiple of {of_name} = {of}, not {value}")
    return value
