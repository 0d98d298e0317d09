"""Ranks that average the gradients of equal parts take the steps of one process; other ranks do not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks.averaging import POINTS, WAYS, apart, best, combined, descend, gradient, parts, split

START = (-1.0, -0.5)


def alone(rate, steps, points=POINTS):
    return descend(points, [len(points)], "mean", rate, steps, START)


@pytest.mark.parametrize("ranks", [2, 4, 8, 16])
def test_equal_parts_averaged_are_one_process(ranks):
    path = descend(POINTS, split(16, ranks), "mean", 0.2, 12, START)
    assert max(apart(path, alone(0.2, 12))) < 1e-12
    assert all(len(set(weights)) == 1 for weights in path), "the ranks stay the same"


@given(st.integers(2, 8), st.integers(0, 7), st.floats(0.01, 0.5))
def test_parts_of_any_size_weighted_by_their_points_are_one_process(ranks, extra, rate):
    try:
        sizes = split(16, ranks, extra)
    except ValueError:
        assert extra > 16 - 16 // ranks - (ranks - 1)
        return
    assert sum(sizes) == 16 and min(sizes) >= 1 and sizes[0] == 16 // ranks + extra
    path = descend(POINTS, sizes, "weighted", rate, 6, START)
    assert max(apart(path, alone(rate, 6))) < 1e-9


def test_a_mean_of_means_of_unequal_parts_is_another_gradient_and_ends_elsewhere():
    sizes = split(16, 4, 6)
    owned = [gradient(START, each) for each in parts(POINTS, sizes)]
    assert sizes == [10, 2, 2, 2]
    assert combined(owned, sizes, "mean")[0] != pytest.approx(gradient(START, POINTS))
    assert combined(owned, sizes, "weighted")[0] == pytest.approx(gradient(START, POINTS))
    far = descend(POINTS, sizes, "mean", 0.2, 200, START)[-1][0]
    assert far != pytest.approx(best(POINTS), abs=0.1)


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_a_sum_of_equal_parts_is_a_learning_rate_p_times_as_large(ranks):
    path = descend(POINTS, split(16, ranks), "sum", 0.05, 6, START)
    assert max(apart(path, alone(0.05 * ranks, 6))) < 1e-9


def test_ranks_that_keep_their_gradients_fit_their_own_points():
    owned = parts(POINTS, split(16, 2))
    last = descend(POINTS, [8, 8], "none", 0.3, 400, START)[-1]
    for weights, points in zip(last, owned, strict=True):
        assert weights == pytest.approx(best(points), abs=1e-3)


def test_one_process_reaches_the_best_weights_and_these_have_no_gradient():
    assert alone(0.4, 60)[-1][0] == pytest.approx(best(POINTS))
    assert gradient(best(POINTS), POINTS) == pytest.approx((0, 0), abs=1e-12)


def test_a_gradient_is_the_slope_of_the_loss():
    def loss(a, b):
        return sum((a + b * x - y) ** 2 for x, y in POINTS) / 2 / len(POINTS)

    a, b, tiny = 0.3, -0.7, 1e-6
    by_a = (loss(a + tiny, b) - loss(a - tiny, b)) / 2 / tiny
    by_b = (loss(a, b + tiny) - loss(a, b - tiny)) / 2 / tiny
    assert gradient((a, b), POINTS) == pytest.approx((by_a, by_b))


def test_what_cannot_be_split_or_combined_is_refused():
    with pytest.raises(ValueError, match="extra must leave one of 16 points to each of 4 ranks, not be 10"):
        split(16, 4, 10)
    with pytest.raises(ValueError, match=f"way must be one of {', '.join(map(repr, WAYS))}, not 'median'"):
        combined([(1.0, 1.0)], [1], "median")
