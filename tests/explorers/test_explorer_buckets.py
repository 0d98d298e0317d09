"""The bucket explorer shows DDP's buckets, and the overlap that the arithmetic gives."""

import pytest

from allranks import collectives, memory
from allranks.explorers import buckets
from allranks.explorers.frame.controls import settings
from allranks.explorers.frame.svg import WIDE
from allranks.explorers.frame.words import seconds

MIB = 2**20


def draw(width=WIDE, **given):
    """What is shown at these settings, the others as they begin."""
    return buckets.draw(width, **settings(buckets.CONTROLS, given))


@pytest.mark.parametrize("cap", [1, 5 * MIB, 25 * MIB, 2**50])
@pytest.mark.parametrize("small_first", [False, True])
@pytest.mark.parametrize("algorithm", ["ring", "double_tree"])
def test_the_text_says_what_the_arithmetic_gives(cap, small_first, algorithm):
    sizes = [2 * MIB] * 40
    held = memory.ddp_buckets(sizes, MIB if small_first else cap, cap)
    now = collectives.bucketed_backward(sizes, 0.1, held, 32, 1e-4, 1e-9, algorithm)
    said = draw(
        layers=40, gradient=2 * MIB, bucket=cap, small_first=small_first, backward=100,
        world_size=32, latency=100, bandwidth=10**9, algorithm=algorithm,
    )["text"]  # fmt: skip
    assert "A backward pass of 100 ms makes 80 MiB of gradients" in said
    largest = max(len(bucket) for bucket in held) * 2
    many = f"{len(held)} buckets of up to" if len(held) > 1 else "one bucket of"
    assert f"leave in {many} {largest} MiB." in said
    assert f"take {seconds(now.communication)}: {seconds(now.hidden)} hidden" in said
    assert f"{seconds(now.exposed)} exposed, and everything is done after {seconds(now.end)}." in said


def test_the_first_bucket_leaves_after_one_mebibyte_and_the_others_after_25():
    held, now = buckets.overlap([4 * MIB] * 24, 25 * MIB, settings(buckets.CONTROLS, {}))
    assert [len(bucket) for bucket in held] == [1, 7, 7, 7, 2]
    assert now.filled == pytest.approx([0.05 * k / 24 for k in (1, 8, 15, 22, 24)])


def test_one_bucket_hides_nothing():
    said = draw(bucket=2**50, small_first=False)["text"]
    alone = collectives.seconds("all_reduce", "ring", 96 * MIB, 16, 50e-6, 1 / (5 * 10**9))
    assert f"leave in one bucket of 96 MiB. All-reduces among 16 ranks take {seconds(alone)}" in said
    assert f"0 s hidden, {seconds(alone)} exposed" in said


def test_neither_the_smallest_nor_the_largest_bucket_is_best():
    # Li et al. 2020, section 3.2.2: small tensors pay latency; one large bucket gives up the overlap.
    exposed = [
        buckets.overlap([4 * MIB] * 24, cap, settings(buckets.CONTROLS, {}))[1].exposed
        for cap, _ in buckets.CAPS
    ]
    assert min(exposed) < exposed[0] / 2 and min(exposed) < exposed[-1] / 2


@pytest.mark.parametrize("moment", [0, 1, 20, 48, 1000])
def test_a_moment_counts_the_buckets_that_are_full_and_averaged(moment):
    shown = draw(moment=moment)
    _, now = buckets.overlap([4 * MIB] * 24, 25 * MIB, settings(buckets.CONTROLS, {}))
    at = now.end * min(moment, 48) / 48
    full, done = (sum(each <= at for each in times) for times in (now.filled, now.ends))
    assert (f"{full} buckets are full and {done} averaged." in shown["text"]) == (moment > 0)
    assert shown["steps"] == 49


def test_the_insight_knows_which_size_exposes_the_least():
    caps = [cap for cap, _ in buckets.CAPS]
    best = [cap for cap in caps if draw(bucket=cap)["insight"].startswith("No other size exposes less")]

    def seconds_exposed(cap):
        given = settings(buckets.CONTROLS, {"bucket": cap})
        sizes = [given["gradient"]] * given["layers"]
        held = memory.ddp_buckets(sizes, MIB if given["small_first"] else cap, cap)
        link = given["latency"] * 1e-6, 1 / given["bandwidth"]
        job = given["backward"] / 1000, held, given["world_size"], *link, given["algorithm"]
        return collectives.bucketed_backward(sizes, *job).exposed

    least = min(map(seconds_exposed, caps))
    assert best == [cap for cap in caps if seconds_exposed(cap) <= least * 1.0001]
    assert 0 < len(best) < len(caps)
