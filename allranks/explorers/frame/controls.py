"""What can a reader set? The controls of an explorer, and the check that a setting is one they allow.

A control knows every value it can have, so that whatever shows it (a page, Jupyter) needs no arithmetic.
"""

from collections import namedtuple

Choice = namedtuple("Choice", "name label options value")
"""One of `options`, pairs (value, words)."""

Integer = namedtuple("Integer", "name label low high value")
"""A whole number from `low` to `high`."""

Scale = namedtuple("Scale", "name label options value")
"""A slider over `options`, pairs (value, words), in their order: for numbers that span decades."""

Toggle = namedtuple("Toggle", "name label value")
"""On or off."""

Steps = namedtuple("Steps", "name label value")
"""A step to look at, from 0: it can be played; the picture says how many there are."""


def powers_of_two(low, high, words=str):
    """The options of a `Scale`: each power of two from `low` to `high`, shown by `words`."""
    options = [(low, words(low))]
    while options[-1][0] < high:
        options.append((2 * options[-1][0], words(2 * options[-1][0])))
    return tuple(options)


def decades(low, high, words=str, steps=(1, 2, 5)):
    """The options of a `Scale`: 1, 2 and 5 times each power of ten from `low` to `high`, shown by `words`."""
    options, scale = [], low
    while scale <= high:
        options += [(step * scale, words(step * scale)) for step in steps if step * scale <= high]
        scale *= 10
    return tuple(options)


def settings(controls, given):
    """Every control's value: the one in the mapping `given`, else its own; ValueError for one not allowed."""
    names = [control.name for control in controls]
    for name in given:
        if name not in names:
            raise ValueError(f"{name} is not a control here; the controls are {', '.join(names)}")
    return {control.name: allowed(control, given.get(control.name, control.value)) for control in controls}


def allowed(control, value):
    """Return `value` as the control knows it; raise ValueError that says what it may be if it is none."""
    if isinstance(control, (Choice, Scale)):
        for option, _ in control.options:
            if option == value:
                return option
        shown = [words for _, words in control.options]
        if len(shown) > 8:
            shown = shown[:3] + ["…"] + shown[-2:]
        raise ValueError(f"{control.name} must be one of {', '.join(shown)}, not {value}")
    if isinstance(control, Toggle):
        if value is True or value is False:
            return value
        raise ValueError(f"{control.name} must be on or off, not {value}")
    low, high = (control.low, control.high) if isinstance(control, Integer) else (0, 100_000)
    if isinstance(value, int) and low <= value <= high:
        return value
    raise ValueError(f"{control.name} must be a whole number from {low} to {high}, not {value}")
