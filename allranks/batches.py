"""How large a batch is worth its ranks? Steps and examples of a run, from the noise of its gradients.

The gradient of B examples is the true one, of squared norm |G|², and noise of squared norm tr(Σ)/B. Their
ratio tr(Σ)/|G|² is the noise scale, in examples: below it more ranks save steps, above it they waste examples
(McCandlish et al. 2018, section 2 and appendix A.1). A model of SGD, and an estimate for other optimizers.
"""

from allranks.inputs import quantity, whole


def noise_and_signal(local, mean, per_rank, batch):
    """Return tr(Σ) and |G|², without bias, from squared norms of the gradients that a step has anyway.

    local: mean over the ranks of the squared norm of a rank's own gradient, of `per_rank` examples each.
    mean: squared norm of the averaged gradient, of all `batch` examples.
    """
    whole("batch", batch, 2), whole("per_rank", per_rank, 1, batch - 1)
    quantity("local", local), quantity("mean", mean)
    noise = (local - mean) / (1 / per_rank - 1 / batch)
    return noise, mean - noise / batch


def noise_scale(measured, per_rank, batch):
    """Return tr(Σ)/|G|² in examples: sums over all steps of `measured`, pairs (local, mean), divided once.

    A ratio of means, since a mean of ratios is ruled by the steps whose estimate of |G|² is near 0.
    """
    both = [noise_and_signal(local, mean, per_rank, batch) for local, mean in measured]
    noise, signal = sum(noise for noise, _ in both), sum(signal for _, signal in both)
    if signal <= 0:
        raise ValueError(f"{len(both)} steps are too few: their estimates of |G|² add up to {signal}")
    return noise / signal


def noise_scale_of_run(measured, per_rank, batch, window=5):
    """Return the mean over a run of the noise scales of its windows, each of `window` steps.

    A run sums 1 + noise/B over its steps, so the mean over steps is what predicts their number.
    """
    whole("window", window)
    starts = range(0, len(measured) - window + 1, window)
    if len(starts) == 0:
        raise ValueError(f"{len(measured)} steps are fewer than one window of {window}")
    return sum(noise_scale(measured[k : k + window], per_rank, batch) for k in starts) / len(starts)


def steps(batch, noise, least):
    """Return the steps of a run at `batch`: `least`, those of a batch without end, times 1 + noise/batch."""
    quantity("batch", batch, positive=True), quantity("noise", noise), quantity("least", least)
    return least * (1 + noise / batch)


def least_steps(measured, batch, noise):
    """Return the steps of a batch without end from the `measured` ones at `batch`: inverts `steps`."""
    return quantity("measured", measured) / steps(batch, noise, 1)


def examples(batch, noise, least):
    """Return the examples that a run consumes at `batch`: at the smallest batches `noise * least`."""
    return batch * steps(batch, noise, least)


def linear_rate(batch, base_rate, base_batch):
    """Return the learning rate of k times the batch: k times as large (Goyal et al. 2017, section 2.1)."""
    quantity("batch", batch), quantity("base_rate", base_rate)
    quantity("base_batch", base_batch, positive=True)
    return base_rate * batch / base_batch
