"""Which number does a printed string stand for, and how would ours be printed in its place?

The string decides: its decimals, its power of ten, its suffix. "31.4" has one decimal, "1.92e19" two and a
power of ten, "0.5T" is 0.5·10¹² with one decimal, "44%" is 0.44, "2⁻²⁴" is itself and nothing near it.
"""

import math
import re
from collections import namedtuple
from decimal import ROUND_DOWN, ROUND_HALF_UP, ROUND_UP, Decimal

ROUNDING = {"nearest": ROUND_HALF_UP, "truncated": ROUND_DOWN, "up": ROUND_UP}
SUFFIXES = {"": 0, "%": -2, "K": 3, "k": 3, "M": 6, "B": 9, "G": 9, "T": 12, "P": 15}
SUPERSCRIPT = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+")

NUMBER = re.compile(
    r"(?P<digits>[-−]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?)"
    r"(?:e(?P<e>[+-]?\d+)|\s?[×x·]\s?10(?:\^(?P<caret>[-−]?\d+)|(?P<raised>[⁻⁰¹²³⁴-⁹]+)))?"
    r"\s?(?P<suffix>[%KkMBGTP]?)"
)
POWER = re.compile(r"(?P<base>\d+)(?:\^(?P<caret>[-−]?\d+)|(?P<raised>[⁻⁰¹²³⁴-⁹]+))")


class Printed(namedtuple("Printed", "text value quantum")):
    """What a paper prints: the string, its value, and the step of its last digit (0: no rounding)."""

    def round(self, number, rounding="nearest"):
        """`number` as this string would show it, as a Decimal."""
        number = exact(number)
        if not self.quantum:
            return number
        return (number / self.quantum).quantize(Decimal(1), ROUNDING[rounding]) * self.quantum

    def agrees(self, number, rounding="nearest"):
        """Whether `number`, rounded by the rule, is what is printed."""
        if not math.isfinite(number):
            return False
        return self.round(number, rounding) == self.value

    def show(self, number, rounding="nearest"):
        """`number` in the manner of the printed string."""
        if self.agrees(number, rounding):
            return self.text
        rounded = self.round(number, rounding) if math.isfinite(number) else Decimal(0)
        parts = NUMBER.fullmatch(self.text)
        if parts is None or not rounded:
            return f"{number:.4g}"
        power = exponent(parts)
        digits = parts["digits"]
        decimals = len(digits.partition(".")[2])
        comma = "," if "," in digits or rounded.scaleb(-power) >= 10_000 else ""
        shown = f"{rounded.scaleb(-power):{comma}.{decimals}f}"
        return shown + self.text[parts.end("digits") :]


def exponent(parts):
    """The power of ten that a match of NUMBER scales its digits by."""
    raised = parts["e"] or parts["caret"] or (parts["raised"] or "0").translate(SUPERSCRIPT)
    return int(raised.replace("−", "-")) + SUFFIXES[parts["suffix"]]


def exact(number):
    """`number` as a Decimal; of a float the 12 digits that are not noise."""
    return Decimal(number) if isinstance(number, int) else Decimal(f"{number:.12g}")


def parse(text):
    """Return the `Printed` of a string; ValueError if it is not a number."""
    if parts := NUMBER.fullmatch(text):
        digits = Decimal(parts["digits"].replace(",", "").replace("−", "-"))
        quantum = Decimal(1).scaleb(digits.as_tuple().exponent)
        power = exponent(parts)
        return Printed(text, digits.scaleb(power), quantum.scaleb(power))
    if parts := POWER.fullmatch(text):
        raised = (parts["caret"] or parts["raised"].translate(SUPERSCRIPT)).replace("−", "-")
        return Printed(text, exact(float(parts["base"]) ** int(raised)), 0)
    raise ValueError(f"{text!r} is not a number as papers print them (31.4, 1,024, 0.5T, 44%, 3.8e25, 2⁻²⁴)")
