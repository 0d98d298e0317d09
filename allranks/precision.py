"""Which numbers does a format hold, and what does it lose of the others?

The model: a sign, e bits of exponent and m bits of mantissa. A normal number is 1.mantissa · 2^(exponent −
bias) with bias 2^(e−1) − 1; below the smallest of them the spacing stays the same, down to 0. What lies
between two numbers is rounded to the nearer one, a tie to the one whose mantissa is even. Formats as in IEEE
754 (fp32 and fp16; bf16 is the upper half of fp32), NVIDIA's TF32 (19 bits, as which a tensor core reads
fp32), and OCP's 8-bit formats (OFP8 revision 1.0), of which E4M3 gives up its infinities for one more binade.
"""

import math
from collections import namedtuple

from .inputs import one_of, quantity

Format = namedtuple("Format", "name exponent_bits mantissa_bits infinities")
"""A format of numbers; without `infinities` its last exponent holds numbers too, all but one code."""

FORMATS = (
    Format("fp32", 8, 23, True),
    Format("tf32", 8, 10, True),
    Format("bf16", 8, 7, True),
    Format("fp16", 5, 10, True),
    Format("fp8_e4m3", 4, 3, False),
    Format("fp8_e5m2", 5, 2, True),
)

Lost = namedtuple("Lost", "zero subnormal overflow")
"""Shares of a histogram that a format rounds to 0, keeps with fewer bits, and finds too large to hold."""


def number_format(dtype):
    """The `Format` called `dtype`."""
    names = [each.name for each in FORMATS]
    return FORMATS[names.index(one_of("dtype", dtype, names))]


def bits(dtype):
    """Bits of a number: 1 + e + m."""
    form = number_format(dtype)
    return 1 + form.exponent_bits + form.mantissa_bits


def bias(dtype):
    """What is subtracted from a stored exponent: 2^(e−1) − 1; also the largest exponent of an IEEE format."""
    return 2 ** (number_format(dtype).exponent_bits - 1) - 1


def largest(dtype):
    """The largest finite number: (2 − 2^−m) · 2^bias; without infinities (2 − 2·2^−m) · 2^(bias+1)."""
    form = number_format(dtype)
    last = 2.0**-form.mantissa_bits
    if form.infinities:
        return (2 - last) * 2.0 ** bias(dtype)
    return (2 - 2 * last) * 2.0 ** (bias(dtype) + 1)


def smallest_normal(dtype):
    """The smallest number with all its bits: 2^(1−bias)."""
    return 2.0 ** (1 - bias(dtype))


def smallest(dtype):
    """The smallest number above 0: 2^(1−bias−m), for fp16 2^−24 (Micikevicius et al. 2018, section 3.1)."""
    return 2.0 ** (1 - bias(dtype) - number_format(dtype).mantissa_bits)


def spacing(dtype, x):
    """How far the next larger number is from |x|: 2^(k−m) where |x| is in [2^k, 2^(k+1)), k at least 1−bias.

    Raises ValueError beyond the largest number.
    """
    x = abs(_finite(x))
    if x > largest(dtype):
        raise ValueError(f"x must be at most {dtype}'s largest number {largest(dtype)}, not {x}")
    return _spacing(number_format(dtype), x)


def rounded(dtype, x):
    """`x` as the format holds it: rounded to nearest, ties to even.

    What rounds beyond the largest number is infinite or, where there are no infinities, the largest number,
    as when PyTorch converts (from 2.12 on; OFP8 allows both, and "not a number").
    """
    form, size, most = number_format(dtype), abs(_finite(x)), largest(dtype)
    if size < 2 * most:
        unit = _spacing(form, size)
        steps = int(size / unit)
        rest = size / unit - steps
        size = (steps + (rest > 0.5 or (rest == 0.5 and steps % 2))) * unit
    if size > most:
        size = math.inf if form.infinities else most
    return -size if x < 0 else size


def neighbours(dtype, x):
    """The numbers next to `rounded(dtype, x)`, below and above, where that is finite and not the last one.

    Below a power of two numbers lie twice as dense as above it.
    """
    here = rounded(dtype, x)
    if not math.isfinite(here) or abs(here) == largest(dtype):
        raise ValueError(f"x must be inside {dtype}'s range, not {x}")
    return -_next(dtype, -here), _next(dtype, here)


def share_below(x, middle, spread):
    """The share of gradients of size at most `x` ≥ 0, if log2 of their size is normal around `middle`.

    spread: the standard deviation of log2, in binades. ½ erfc((middle − log2 x) / (√2 spread)).
    """
    quantity("x", x)
    _finite(middle, "middle")
    quantity("spread", spread, positive=True)
    return math.erfc((middle - math.log2(x)) / (math.sqrt(2) * spread)) / 2 if x else 0.0


def lost(dtype, middle, spread, scale=1):
    """What a format does to gradients (as in `share_below`) that are multiplied by the loss scale `scale`.

    Up to half of the smallest number rounds to 0; from there to the smallest normal number bits are missing;
    from half a spacing beyond the largest number on it overflows (Micikevicius et al. 2018, section 3.2, who
    draw the line for 0 at the smallest number, twice as high).
    """
    quantity("scale", scale, positive=True)
    form, most = number_format(dtype), largest(dtype)
    zero = share_below(smallest(dtype) / 2 / scale, middle, spread)
    fewer = _difference(share_below(smallest_normal(dtype) / scale, middle, spread), zero)
    # 1 − share_below would lose the digits of a small share: the tail is that of the mirrored histogram
    bound = math.log2(most + _spacing(form, most) / 2) - math.log2(scale)
    return Lost(zero, fewer, math.erfc((bound - middle) / (math.sqrt(2) * spread)) / 2)


def histogram(low, high, middle, spread):
    """The share of gradients (see `share_below`) in each binade [2^k, 2^(k+1)), k from `low` to `high`−1.

    In whole billionths.
    """
    if not low < high:
        raise ValueError(f"low must be less than high = {high}, not {low}")
    below = [share_below(2.0**k, middle, spread) for k in range(low, high + 1)]
    return [_difference(below[k + 1], below[k]) for k in range(high - low)]


def _finite(x, name="x"):
    """Return `x` if it is a finite number of either sign."""
    if isinstance(x, bool) or not isinstance(x, (int, float)) or not math.isfinite(x):
        raise ValueError(f"{name} must be a finite number, not {x!r}")
    return x


def _difference(more, less):
    """A share as the difference of two, in whole billionths: erfc's last digit is not the same everywhere."""
    return int((more - less) * 1e9 + 0.5) / 1e9


def _spacing(form, size):
    """The spacing at `size`, also beyond the largest number."""
    lowest = 2 - 2 ** (form.exponent_bits - 1)
    exponent = max(math.frexp(size)[1] - 1, lowest) if size else lowest
    return 2.0 ** (exponent - form.mantissa_bits)


def _next(dtype, x):
    """The number above `x`, which is one of the format."""
    if x >= 0:
        return x + spacing(dtype, x)
    step = spacing(dtype, x)
    if math.frexp(x)[0] == -0.5 and -x > smallest_normal(dtype):
        step /= 2
    return x + step
