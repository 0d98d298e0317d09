"""Formats hold the numbers that PyTorch's hold, round as it rounds, and lose what the paper says."""

import math
import random
import struct

import pytest
import torch

from allranks import precision

TORCH = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp8_e4m3": torch.float8_e4m3fn,
    "fp8_e5m2": torch.float8_e5m2,
}
NAMES = [form.name for form in precision.FORMATS]


@pytest.mark.parametrize("dtype", TORCH)
def test_a_format_is_that_of_torch(dtype):
    theirs = torch.finfo(TORCH[dtype])
    assert precision.bits(dtype) == theirs.bits
    assert precision.largest(dtype) == theirs.max
    assert precision.smallest_normal(dtype) == theirs.tiny
    assert (
        precision.smallest(dtype) == theirs.smallest_subnormal if hasattr(theirs, "smallest_subnormal") else 1
    )
    assert precision.spacing(dtype, 1) == theirs.eps


def test_the_published_numbers():
    assert precision.smallest("fp16") == 2.0**-24 and precision.largest("fp16") == 65504
    assert precision.rounded("fp16", 1 + 2.0**-11) == 1  # Micikevicius et al. 2018, section 3.1
    assert precision.rounded("fp16", 1 + 2.0**-11 + 2.0**-20) == 1 + 2.0**-10
    assert precision.largest("fp8_e4m3") == 448 and precision.largest("fp8_e5m2") == 57344  # OFP8 1.0
    assert precision.smallest("fp8_e4m3") == 2.0**-9 and precision.smallest("fp8_e5m2") == 2.0**-16
    assert precision.bits("tf32") == 19
    assert precision.smallest_normal("tf32") == precision.smallest_normal("fp32")


def sizes(dtype, rng):
    """fp32 numbers of all sizes around what the format holds, and the ties between its numbers."""
    low, high = math.log2(precision.smallest(dtype)), math.log2(precision.largest(dtype))
    for _ in range(1500):
        x = rng.choice([-1, 1]) * 2 ** rng.uniform(max(low - 3, -149), min(high + 2, 127.9))
        yield struct.unpack("f", struct.pack("f", x))[0]
    for _ in range(300):
        if dtype != "fp32":
            here = abs(precision.rounded(dtype, 2 ** rng.uniform(low, high - 1)))
            yield here + precision.spacing(dtype, here) / 2
    yield from (0.0, precision.largest(dtype), precision.smallest(dtype), precision.smallest(dtype) / 2)


@pytest.mark.parametrize("dtype", TORCH)
def test_a_number_is_rounded_as_torch_rounds_it(dtype):
    numbers = list(sizes(dtype, random.Random(dtype)))
    theirs = torch.tensor(numbers, dtype=torch.float64).to(torch.float32).to(TORCH[dtype]).to(torch.float64)
    ours = [precision.rounded(dtype, x) for x in torch.tensor(numbers).to(torch.float64).tolist()]
    wrong = [(x, a, b) for x, a, b in zip(numbers, ours, theirs.tolist()) if a != b]
    assert wrong == []


def test_tf32_is_fp32_without_its_last_13_bits_rounded_to_even():
    rng = random.Random(0)
    for _ in range(2000):
        (code,) = struct.unpack("I", struct.pack("f", 2 ** rng.uniform(-149, 127.5)))
        if rng.random() < 0.2:
            code = code & ~0x1FFF | 0x1000
        (x,) = struct.unpack("f", struct.pack("I", code))
        code = code + 0xFFF + (code >> 13 & 1) & ~0x1FFF
        assert precision.rounded("tf32", x) == struct.unpack("f", struct.pack("I", code))[0]


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp8_e4m3", "fp8_e5m2"])
def test_neighbours_are_the_next_codes(dtype):
    width = precision.bits(dtype)
    kind = torch.uint8 if width == 8 else torch.int16
    codes = torch.arange(0, 2 ** (width - 1), dtype=torch.int32).to(kind)
    numbers = [x for x in codes.view(TORCH[dtype]).to(torch.float64).tolist() if math.isfinite(x)]
    assert numbers[-1] == precision.largest(dtype) and numbers[1] == precision.smallest(dtype)
    for index in {1, 2, *random.Random(1).sample(range(1, len(numbers) - 1), 100)}:
        below, above = precision.neighbours(dtype, numbers[index])
        assert (below, above) == (numbers[index - 1], numbers[index + 1])
        assert precision.spacing(dtype, numbers[index]) == above - numbers[index]
        assert precision.neighbours(dtype, -numbers[index]) == (-above, -below)


@pytest.mark.parametrize("dtype", NAMES)
@pytest.mark.parametrize(
    "middle, spread, scale", [(-18, 4, 1), (-18, 4, 1024), (-10.5, 6, 8), (6, 3.5, 65536)]
)
def test_what_a_histogram_loses_is_what_rounding_loses(dtype, middle, spread, scale):
    rng = random.Random(3)
    drawn = [2 ** rng.gauss(middle, spread) * scale for _ in range(4000)]
    held = [precision.rounded(dtype, x) for x in drawn]
    lost = precision.lost(dtype, middle, spread, scale)
    normal, most = precision.smallest_normal(dtype), precision.largest(dtype)
    beyond = most + precision.spacing(dtype, most) / 2
    for share, counted in (
        (lost.zero, sum(x == 0 for x in held)),
        (lost.subnormal, sum(x > 0 and drawn < normal for x, drawn in zip(held, drawn))),
        (lost.overflow, sum(x > beyond for x in drawn)),
    ):
        assert share == pytest.approx(counted / len(drawn), abs=0.025)


def test_loss_scaling_saves_small_gradients_and_can_overflow():
    without, scaled = precision.lost("fp16", -18, 4), precision.lost("fp16", -18, 4, 1024)
    assert without.zero == pytest.approx(0.0401, abs=1e-4)  # Φ(−7/4)
    assert scaled.zero < 1e-4 and scaled.overflow < 1e-8
    assert precision.lost("fp16", -18, 4, 2.0**34).overflow == pytest.approx(0.5, abs=1e-3)
    assert precision.lost("bf16", -18, 4).zero < 1e-100


def test_a_histogram_has_every_gradient_once():
    assert sum(precision.histogram(-80, 40, -18, 4)) == pytest.approx(1)
    assert precision.histogram(-18, -17, -18, 4)[0] == pytest.approx(0.0987, abs=1e-4)  # Φ(¼) − ½
    assert precision.share_below(2.0**-18, -18, 4) == 0.5 and precision.share_below(0, -18, 4) == 0


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: precision.bits("fp4"), "dtype must be one of 'fp32', 'tf32'"),
        (lambda: precision.spacing("fp16", 65505), "x must be at most fp16's largest number 65504.0"),
        (lambda: precision.rounded("fp16", math.inf), "x must be a finite number, not inf"),
        (lambda: precision.neighbours("fp16", 65504), "x must be inside fp16's range"),
        (lambda: precision.lost("fp16", -18, 0), "spread must be a number above 0, not 0"),
        (lambda: precision.lost("fp16", -18, 1, 0), "scale must be a number above 0, not 0"),
        (lambda: precision.histogram(3, 3, -18, 1), "low must be less than high = 3, not 3"),
    ],
)
def test_a_slip_is_named(call, message):
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        call()
