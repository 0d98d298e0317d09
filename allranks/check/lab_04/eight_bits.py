"""Eight bits: a scale for each tensor from the magnitudes of past calls, and a product summed in fp32."""

import functools
import math

import torch
import torch.distributed as dist

from allranks.check import exercise
from allranks.check.lab_04.common import BF16, FP32, device_of_rank, named, relative
from allranks.check.labs import drawn, is_tensor, is_written, on_ranks
from allranks.launch import LaunchError, RanksTimedOut
from allranks.trace import trace

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
LENGTH = 3  # amaxes in a history
SIZES = (1.0, 0.02, 40.0, 0.0, 0.5, math.inf, 0.3, 0.7, -9.0, 0.1, 0.2, 1e-6, 1e-6, 2e-6)  # of the calls


@functools.cache
def _tensors(world_size, dtype, draw):
    """What `quantize` gets, [rank][call]: the largest magnitude is on one rank, of either sign."""
    ranks = []
    for rank in range(world_size):
        torch.manual_seed(drawn(100 + rank))
        ranks.append([])
        for number, size in enumerate(SIZES):
            t = torch.empty(4, 6 + rank).uniform_(-0.3, 0.3) * abs(0.5 if math.isinf(size) else size)
            if (number + 1) % world_size == rank:
                t[1, 2] = size
            ranks[-1].append(t.to(dtype))
    return ranks


def _quantized(new, fp8, ranks):
    results, scale_of = [], new(fp8, LENGTH)
    with trace() as counted:
        for t in ranks[dist.get_rank()]:
            given = t.to(device_of_rank())
            found = scale_of.quantize(given)
            if not isinstance(found, tuple | list) or len(found) != 2:
                return f"quantize returned {str(found)[:40]}; expected the 8-bit tensor and its scale.", 0, 0
            in_fp8, scale = found
            is_same = torch.equal(given.cpu(), t)
            values = in_fp8.float().cpu() if isinstance(in_fp8, torch.Tensor) else None
            kind = in_fp8.dtype if isinstance(in_fp8, torch.Tensor) else type(in_fp8).__name__
            results.append((values, kind, float(scale), is_same))
    return results, len(counted.log), sum(call.nbytes for call in counted.log)


def _amaxes(tensors):
    return [float(t.float().abs().max()) for t in tensors]


def _scales(amaxes, fp8, records=lambda amax: 0 < amax < math.inf):
    """The scale before each call and after the last, of calls with these amaxes."""
    history, scales = [], [1.0]
    for amax in amaxes:
        if records(amax):
            history = [*history, amax][-LENGTH:]
            scales.append(torch.finfo(fp8).max / (max(history) or 1e-12))
        else:
            scales.append(scales[-1])
    return scales


def _judge_quantized(rank, ranks, fp8, results, calls, nbytes):
    largest, who = torch.finfo(fp8).max, f"Rank {rank} of {len(ranks)}, {named(fp8)}"
    assert isinstance(results, list), f"{who}: {results}"
    amaxes = _largest(ranks)
    scales = _scales(amaxes, fp8)
    own = _scales(_amaxes(ranks[rank]), fp8)
    late = "Delayed scaling uses and returns the scale of the call before; this call sets the next."
    unrecorded = "An amax of 0 or infinity is not recorded; scale and history stay as they were."
    mistakes = (
        (late, scales[1:]),
        ("Take the largest magnitude on every rank: one has seen it.", own),
        (late, own[1:]),
        (unrecorded, _scales(amaxes, fp8, lambda amax: amax < math.inf)),
        (unrecorded, _scales(amaxes, fp8, lambda amax: amax > 0)),
    )
    for number, (values, kind, scale, is_same) in enumerate(results):
        t, right, call = ranks[rank][number], scales[number], f"{who}, call {number}"
        assert kind == fp8, f"{call}: the tensor is in {named(kind)}; expected `self.dtype`, {named(fp8)}."
        assert is_same, f"{call}: t has changed; multiply a copy."
        if abs(scale - right) > 1e-3 * right:
            likely = [why for why, other in mistakes if abs(scale - other[number]) <= 1e-3 * scale]
            likely += [
                f"It is {largest:g} / the largest of the last {LENGTH} amaxes; an amax is the largest "
                "magnitude in t, before scaling, on any rank."
            ]
            before = ", ".join(f"{amax:.3g}" for amax in amaxes[max(0, number - 4) : number]) or "none"
            raise AssertionError(
                f"{call}: the scale is {scale:.4g}; expected {right:.4g} after amaxes of {before}. "
                + likely[0]
            )
        rounded = (t.float() * right).clamp(-largest, largest).to(fp8).float()
        others = values != rounded
        if others.sum() > 1 or (values - rounded).abs().max() > 0.25 * rounded.abs().max():
            raise AssertionError(
                f"{call}: {t[others][0]:.4g} at a scale of {right:.4g} became {values[others][0]:.4g}; "
                f"expected {rounded[others][0]:.4g}: multiply in float32, clamp to ±{largest:g}, then cast."
            )
    count = len(SIZES)
    assert calls <= count and nbytes <= 4 * len(ranks) * count, (
        f"{who}: {calls / count:g} messages and {nbytes / count:.0f} bytes a call; one number is enough, "
        "this rank's largest magnitude."
    )


def _products(new, answer, cases):
    device, results = device_of_rank(), []
    for pair, calls in cases[dist.get_rank()]:
        scale_a, scale_b = (new(fp8, LENGTH) for fp8 in pair)
        for a, b in calls:
            results.append(answer(a.to(device), b.to(device), scale_a, scale_b))
    return results


def _factors(rank):
    """[(formats, [(a, b) of each call])]: activations and weights, gradients and weights, a long sum."""
    torch.manual_seed(drawn(200 + rank))

    def factors(a, b, sizes, dtype):
        return a * torch.randn(sizes[:2]).to(dtype), b * torch.randn(sizes[1:]).to(dtype)

    return [
        ((E4M3, E4M3), [factors(1.0, 0.1, (5, 24, 7), FP32) for _ in range(4)]),
        ((E5M2, E4M3), [factors(1e-4, 1.0, (9, 48, 11), BF16) for _ in range(3)]),
        ((E4M3, E5M2), [(torch.rand(2, 3000), torch.rand(3000, 2)) for _ in range(2)]),
    ]


@exercise
def fp8(new, answer):
    """`new(dtype, length).quantize(t)`, delayed scaling on ranks, and `answer(a, b, scale_a, scale_b)`."""
    is_written(new, answer)
    try:
        for world_size, kind, dtype in ((2, E4M3, FP32), (3, E5M2, BF16)):
            ranks = _tensors(world_size, dtype, drawn(0))
            found = on_ranks(_quantized, new, kind, ranks, world_size=world_size, rules="nccl")
            for rank, results in enumerate(found):
                _judge_quantized(rank, ranks, kind, *results)
        cases = [_factors(rank) for rank in range(2)]
        found = on_ranks(_products, new, answer, cases, world_size=2, rules="nccl")
    except LaunchError as late:
        if not isinstance(late, RanksTimedOut) and "NCCL" not in str(late):
            raise
        raise AssertionError(
            f"quantize did not finish: {late}. Does every rank take part in the all-reduce, in every call, "
            "with one number?"
        ) from late
    error, of_bf16 = _judge_products(found, cases)
    return (
        f"2 and 3 ranks share one scale, one call late; products are within {100 * error:.1f} % of fp32, "
        f"where bf16 is within {100 * of_bf16:.1f} %."
    )


def _judge_products(found, cases):
    errors = []
    for rank, products in enumerate(found):
        products = iter(products)
        for number, (pair, _) in enumerate(cases[rank]):
            names = " and ".join(named(one).removeprefix("float8_") for one in pair)
            sides = [[[call[side] for call in case[number][1]] for case in cases] for side in (0, 1)]
            scales = [_scales(_largest(tensors), one) for tensors, one in zip(sides, pair, strict=True)]
            for call, (a, b) in enumerate(cases[rank][number][1]):
                value, who = next(products), f"Rank {rank}, a product of {names}, call {call}"
                is_tensor(value, f"{who}: the product", (len(a), b.shape[1]))
                assert value.dtype == a.dtype, (
                    f"{who}: the product is in {named(value.dtype)}; expected {named(a.dtype)}, that of a."
                )
                used = [scales[0][call], scales[1][call]]
                left, right = (_rounded(t, one, s) for t, one, s in zip((a, b), pair, used, strict=True))
                wanted, exact, value = left @ right, a.double() @ b.double(), value.detach().double().cpu()
                assert value.isfinite().all(), (
                    f"{who}: the product has infinities: the sum overflows unless it is summed in float32."
                )
                off, free = relative(value, wanted), relative(value, exact)
                later = [scales[0][call + 1], scales[1][call + 1]]
                factor = used[0] * used[1] / (later[0] * later[1])
                assert off < 0.01 or abs(factor - 1) < 0.01 or relative(value, wanted * factor) > 0.01, (
                    f"{who}: the product is divided by the next scales; divide by the scale that was used, "
                    "which quantize returns."
                )
                assert off < 0.01 or free > 1e-6 + (a.dtype == BF16) * 0.004, (
                    f"{who}: the product is exact, so its factors were never in 8 bits: multiply what "
                    "quantize returns."
                )
                assert off < (2e-5 if a.dtype == FP32 else 0.004), (
                    f"{who}: the product is off by {off:.2%} of that of the 8-bit factors, "
                    + (
                        "which is rounding: it is summed in float32, and rounded once, to the dtype of a."
                        if off < 0.01
                        else "divided by both scales. Is each factor quantized by its own scale?"
                    )
                )
                if call:
                    errors.append((free, relative(a.to(BF16).double() @ b.to(BF16).double(), exact)))
    return max(error for error, _ in errors), max(of_bf16 for _, of_bf16 in errors)


def _largest(ranks):
    """The amax of each call over ranks, of tensors [rank][call]."""
    return [max(amaxes) for amaxes in zip(*map(_amaxes, ranks), strict=True)]


def _rounded(t, fp8, scale):
    largest = torch.finfo(fp8).max
    return (t.float() * scale).clamp(-largest, largest).to(fp8).double() / scale
