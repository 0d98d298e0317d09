"""Does the planner put layouts into the order in which others measured them?

Compared are layouts of one group: of one model on one machine, with one batch. Two layouts that differ by
less than repeated measurements of one do are not in any order, so we count with and without these pairs.
"""

from collections import OrderedDict
from statistics import median

from .predict import card_of, kind

FEWEST = 3  # layouts of a group


def groups(made):
    """A dict from (source, model, devices, …) to layouts: dicts from `plan.Layout` to its `Prediction`s.

    A group has a source, shape of a model, state of a machine, number of devices, batch and dtype; only dense
    runs count, and groups of three layouts or more.
    """
    by_key = OrderedDict()
    for prediction in made:
        run = prediction.run
        key = (
            run.source, run.model, run.gpus, card_of(run), run.gbs, run.dtype, run.seq, run.layers,
            run.hidden, run.heads,
        )  # fmt: skip
        if kind(run) == "dense":
            repeats = by_key.setdefault(key, OrderedDict()).setdefault(prediction.plan.layout, [])
            repeats.append(prediction)
    return OrderedDict((key, layouts) for key, layouts in by_key.items() if len(layouts) >= FEWEST)


def spread(by_key):
    """By how much repeated measurements of one layout in `groups` differ at most: the longest, less 1."""
    ratios = []
    for layouts in by_key.values():
        for repeats in layouts.values():
            seconds = [prediction.measured for prediction in repeats]
            ratios.append(max(seconds) / min(seconds))
    return max(ratios) - 1


def ordered(layouts, apart=0.0):
    """(Pairs in the measured order, pairs): of the layouts of a group that differ by more than `apart`.

    The measured seconds of a layout are the median of its repeats. Two that are equal are no pair.
    """
    seconds = [
        (repeats[0].seconds, median(prediction.measured for prediction in repeats))
        for repeats in layouts.values()
    ]
    right = pairs = 0
    for i, (predicted, measured) in enumerate(seconds):
        for other_predicted, other_measured in seconds[:i]:
            if max(measured, other_measured) / min(measured, other_measured) - 1 > apart:
                pairs += 1
                right += (predicted - other_predicted) * (measured - other_measured) > 0
    return right, pairs


def order(by_key, apart=0.0):
    """(Kendall's τ, pairs) over all `groups`: the share of pairs in order, less the share of the others."""
    counts = [ordered(layouts, apart) for layouts in by_key.values()]
    right, pairs = (sum(column) for column in zip(*counts))
    return 2 * right / pairs - 1, pairs
