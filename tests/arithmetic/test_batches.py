"""The noise scale is estimated without bias, and steps and examples trade as published."""

import statistics
from random import Random

import pytest

from allranks import batches


def gradients(choose, signal, spread, count, dims=20):
    """Gradients of single examples: the true one, of squared norm dims·signal², and noise."""
    return [[choose.gauss(signal, spread) for _ in range(dims)] for _ in range(count)]


def squared_length(vectors):
    return sum((sum(column) / len(vectors)) ** 2 for column in zip(*vectors))


@pytest.mark.parametrize("world_size, per_rank", [(2, 1), (4, 3), (5, 2)])
def test_noise_and_signal_are_those_of_the_examples_on_average(world_size, per_rank):
    choose, found = Random(0), []
    for _ in range(3000):
        all_of_them = gradients(choose, signal=0.5, spread=2.0, count=world_size * per_rank)
        parts = [all_of_them[k * per_rank : (k + 1) * per_rank] for k in range(world_size)]
        local = statistics.mean(map(squared_length, parts))
        found.append(batches.noise_and_signal(local, squared_length(all_of_them), per_rank, len(all_of_them)))
    noise, signal = map(statistics.mean, zip(*found))
    assert noise == pytest.approx(20 * 2.0**2, rel=0.05)
    assert signal == pytest.approx(20 * 0.5**2, abs=0.05 * 20 * 2.0**2 / len(all_of_them))


def test_it_is_the_sample_variance_of_the_ranks_gradients():
    ranks = gradients(Random(1), 1.0, 1.0, count=4)
    noise, _ = batches.noise_and_signal(
        statistics.mean(squared_length([g]) for g in ranks), squared_length(ranks), per_rank=8, batch=32
    )
    assert noise == pytest.approx(8 * sum(statistics.variance(column) for column in zip(*ranks)))


def test_the_scale_of_many_steps_is_a_ratio_of_means():
    steps = [(4.0, 2.0), (3.0, 2.0)]
    both = [batches.noise_and_signal(*step, 2, 8) for step in steps]
    expected = sum(noise for noise, _ in both) / sum(signal for _, signal in both)
    assert batches.noise_scale(steps, 2, 8) == pytest.approx(expected)
    assert batches.noise_scale_of_run([steps[0]] * 5 + [steps[1]] * 5, 2, 8) == pytest.approx(
        statistics.mean(batches.noise_scale([step], 2, 8) for step in steps)
    )


@pytest.mark.parametrize("noise", [0.5, 20, 4000])
def test_at_the_noise_scale_steps_and_examples_are_twice_the_fewest(noise):
    assert batches.steps(noise, noise, 100) == 200
    assert batches.examples(noise, noise, 100) == 2 * 100 * noise
    assert batches.least_steps(batches.steps(7, noise, 100), 7, noise) == pytest.approx(100)


def test_sizes_that_give_one_equation_only_are_refused():
    with pytest.raises(ValueError, match="per_rank must be a whole number from 1 to 7, not 8"):
        batches.noise_and_signal(1.0, 1.0, 8, 8)
    with pytest.raises(ValueError, match="4 steps are fewer than one window of 5"):
        batches.noise_scale_of_run([(1.0, 0.5)] * 4, 1, 4)


def test_the_linear_rule_is_the_published_one():
    assert batches.linear_rate(8192, 0.1, 256) == pytest.approx(3.2)  # Goyal et al. 2017, section 5.2


def test_a_window_of_no_steps_is_refused():
    with pytest.raises(ValueError, match="window must be a whole number of at least 1, not 0"):
        batches.noise_scale_of_run([(4.0, 2.0)] * 5, 2, 8, window=0)
