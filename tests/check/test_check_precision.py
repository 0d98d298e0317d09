"""The checks of Precision: ✓ for right answers, a hint for the usual wrong ones."""

import torch
from verdicts import verdict

from allranks import check

HERE = check.precision


def test_the_largest_scale_is_a_power_of_two_that_fits(capsys):
    assert verdict(capsys, HERE.largest_scale, 2**14).startswith("✓")
    assert "too large" in verdict(capsys, HERE.largest_scale, 2**15)
    assert "not the largest" in verdict(capsys, HERE.largest_scale, 2**13)
    assert "None" in verdict(capsys, HERE.largest_scale, None)


def test_the_smallest_update_is_a_whole_spacing(capsys):
    assert verdict(capsys, HERE.smallest_update, 2.0**-13).startswith("✓")
    assert "ties go to even" in verdict(capsys, HERE.smallest_update, 2.0**-14)
    assert "not the smallest" in verdict(capsys, HERE.smallest_update, 2.0**-12)
    assert "None" in verdict(capsys, HERE.smallest_update, None)


def normed(x):
    return x / (x * x).mean().sqrt()


def test_a_norm_squares_in_fp32(capsys):
    assert verdict(capsys, HERE.rms_norm, lambda x: normed(x.float()).to(x.dtype)).startswith("✓")
    assert verdict(capsys, HERE.rms_norm, lambda x: normed(x / x.abs().max())).startswith("✓")
    assert "elements of 300 in float16" in verdict(capsys, HERE.rms_norm, normed)
    assert "the result is float32" in verdict(capsys, HERE.rms_norm, lambda x: normed(x.float()))
    assert "elements of 0.0001" in verdict(
        capsys, HERE.rms_norm, lambda x: x / ((x.float() ** 2).mean() + 1e-6).sqrt().to(x.dtype)
    )
    assert "returns nothing" in verdict(capsys, HERE.rms_norm, lambda x: None)


def test_a_norm_is_divided_before_it_is_rounded(capsys):
    too_late = lambda x: x / (x * x).float().mean().sqrt().to(x.dtype)  # noqa: E731
    assert "elements of 300 in float16" in verdict(capsys, HERE.rms_norm, too_late)
    assert verdict(capsys, HERE.rms_norm, torch.clone).startswith("✗")
