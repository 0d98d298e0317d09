"""What does a parameter server carry, and how stale are the gradients that it applies?

A worker pushes its gradients to the ranks that own slices of the weights, and pulls the weights back from
them (Li et al. 2014). Who owns how much decides who sends how much.
"""

import math

from allranks.inputs import quantity, whole


def sent_bytes(slices, workers):
    """Return the bytes that each rank sends in a step: its pushes as a worker, its answers as an owner.

    slices: bytes of the weights that each rank owns. workers: the ranks that train.
    """
    total = sum(quantity("a slice", nbytes) for nbytes in slices)
    for worker in workers:
        whole("a worker", worker, 0, len(slices) - 1)
    pushed = [total - nbytes if rank in workers else 0 for rank, nbytes in enumerate(slices)]
    answered = [nbytes * (len(workers) - (rank in workers)) for rank, nbytes in enumerate(slices)]
    return [one + other for one, other in zip(pushed, answered)]


def best_slices(nbytes, workers, spare):
    """Return how many bytes each worker owns, and each of the `spare` servers, so that all send the same.

    No other division has a less busy rank (Jiang et al. 2020, Theorem 1): without spare servers every worker
    owns an equal slice, and with one for each worker the workers own nothing.
    """
    quantity("nbytes", nbytes), whole("workers", workers, 2), whole("spare", spare, 0, workers)
    parts = workers * workers + spare * workers - 2 * spare
    return (workers - spare) * nbytes / parts, 2 * (workers - 1) * nbytes / parts


def staleness(turns):
    """Return, for each push, how many updates came between the pull of its weights and itself.

    turns: the workers in the order in which their pushes arrive; each pulls at once.
    """
    given, stale = {}, []
    for version, worker in enumerate(turns):
        stale.append(version - given.get(worker, 0))
        given[worker] = version + 1
    return stale


def most_staleness(workers, pushes):
    """Return the largest sum of `staleness` that any order of `pushes` of all `workers` can have.

    Between two pushes of a worker lie those of others, so its staleness adds up to its last place less its
    own pushes; workers in turn have the last places of all. The mean is below workers − 1.
    """
    whole("workers", workers), whole("pushes", pushes, workers)
    return (workers - 1) * pushes - workers * (workers - 1) // 2


def largest_rate(staleness):
    """Return the rate, times the curvature, up to which descent converges with gradients this stale.

    w ← w − rate · w₋ₛ has solutions zᵗ with zˢ(z − 1) = −rate. The first to leave the unit circle has the
    angle π/(2s + 1) there, where the rate is |z − 1| = 2 sin(π/(2(2s + 1))).
    """
    whole("staleness", staleness, 0)
    return 2 * math.sin(math.pi / (2 * (2 * staleness + 1)))
