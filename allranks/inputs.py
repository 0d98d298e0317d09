"""Is this a number that can be computed with? If not: what was given, and what is allowed.

Every public function of the arithmetic asks here first, so that a slip ends in one clear sentence and not
in a plausible number.
"""

import math


def whole(name, value, at_least=1, at_most=None):
    """Return `value` if it is a whole number from `at_least` to `at_most`; else raise ValueError."""
    allowed = f"a whole number of at least {at_least}"
    if at_most is not None:
        allowed = f"a whole number from {at_least} to {at_most}"
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{name} must be {allowed}, not {value!r}")
    if value < at_least or (at_most is not None and value > at_most):
        raise ValueError(f"{name} must be {allowed}, not {value}")
    return value


def quantity(name, value, positive=False):
    """Return `value` if it is finite and at least 0 (with `positive`: above 0); else raise ValueError."""
    allowed = "a number above 0" if positive else "a number of at least 0"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{name} must be {allowed}, not {value!r}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{name} must be {allowed}, not {value}")
    if value < 0 or (positive and value == 0):
        raise ValueError(f"{name} must be {allowed}, not {value}")
    return value


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
