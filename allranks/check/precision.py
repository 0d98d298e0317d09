"""The exercises of the chapter Precision."""

import torch

from allranks import precision
from allranks.check import exercise
from allranks.check.stubs import is_number, is_returned

LARGEST_GRADIENT = 3
WEIGHT = 0.02


@exercise
def largest_scale(answer):
    """`answer`: the largest power of two that times 3 is a number of fp16."""
    expected = 1
    while 2 * expected * LARGEST_GRADIENT <= precision.largest("fp16"):
        expected *= 2
    is_number(answer)
    assert answer * LARGEST_GRADIENT <= precision.largest("fp16"), (
        f"{answer:g} × {LARGEST_GRADIENT} is {answer * LARGEST_GRADIENT:g}, which is too large for fp16."
    )
    assert answer == expected, f"{answer:g} fits, but is not the largest power of two that fits."
    return f"{expected} × {LARGEST_GRADIENT} = {expected * LARGEST_GRADIENT}, and twice that is too large."


@exercise
def smallest_update(answer):
    """`answer`: the smallest power of two that, added to 0.02 in bf16, changes it."""
    held = precision.rounded("bf16", WEIGHT)
    expected = 1.0
    while precision.rounded("bf16", held + expected / 2) != held:
        expected /= 2
    is_number(answer)
    assert precision.rounded("bf16", held + answer) != held, (
        f"{held:.5f} + {answer:.3g} rounds back: the next bf16 number is "
        f"{precision.spacing('bf16', held):.3g} away, and ties go to even."
    )
    assert answer == expected, (
        f"{answer:.3g} changes the weight, but is not the smallest power of two that does."
    )
    return f"{expected:.3g} reaches the next number; half of it rounds back."


@exercise
def rms_norm(answer):
    """`answer(x)`: `x` by the root of its mean square, in the dtype of `x`, for large and small elements."""
    shape = torch.tensor([-1.0, 0.3, 1.0, 0.5])
    expected = shape / (shape * shape).mean().sqrt()
    for dtype in (torch.float16, torch.bfloat16):
        for size in (300.0, 1.0, 1e-4):
            got = answer((size * shape).to(dtype))
            is_returned(got)
            given = f"For elements of {size:g} in {str(dtype)[6:]}"
            assert got.dtype == dtype, (
                f"{given}, the result is {str(got.dtype)[6:]}; expected the same dtype."
            )
            assert torch.allclose(got.float(), expected, rtol=0.02, atol=0), (
                f"{given}, the last element becomes {got[-1].item():.3g}; expected {expected[-1].item():.3g}."
            )
    return "The result is right for 300 and for 10⁻⁴, in fp16 and in bf16."
