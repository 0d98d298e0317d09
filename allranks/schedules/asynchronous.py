"""What if a pipeline never flushes? Then every rank updates its weights after every backward.

The model: PipeDream. What is called a micro-batch here is one of PipeDream's mini-batches: its gradient is an
update of its own. Version n of a rank's weights has seen n updates.
"""

from collections import namedtuple

from ..inputs import whole
from .flushed import one_f_one_b_orders
from .operations import Schedule

Use = namedtuple("Use", "operation version latest stashed")
"""Which weights an operation uses: `version`, when the newest is `latest` and `stashed` versions are held."""


def pipedream(stages, microbatches):
    """Asynchronous 1F1B with weight stashing (Narayanan et al. 2019, section 3.2 and 3.3).

    In steady state no rank waits. The operations are in the order of `one_f_one_b` for one long batch; but
    each backward ends with an update, so that a later forward has newer weights: see `weights_used`. The
    backward of a micro-batch uses the version of its forward, kept until then.
    """
    whole("stages", stages), whole("microbatches", microbatches)
    return Schedule("pipedream", stages, microbatches, 1, one_f_one_b_orders(stages, microbatches))


def weights_used(schedule):
    """The weights that each operation of an asynchronous schedule uses: for each rank, a list of `Use`.

    A forward takes the newest version, a backward the one of its forward. The gradient that the backward of
    micro-batch j makes is applied to version `latest` and gives version latest + 1. Its staleness is
    latest - version, p-1-r on rank r in steady state. At most p-r versions are held: 4, 3, 2, 1 of 4 ranks.
    """
    if any(operation.kind not in ("F", "BW") for order in schedule.orders for operation in order):
        raise ValueError(f"{schedule.name} splits its backwards; only an unsplit one ends with an update")
    uses = []
    for order in schedule.orders:
        latest, taken, mine = 0, {}, []
        for operation in order:
            if operation.kind == "F":
                taken[operation.microbatch, operation.stage] = latest
            version = taken[operation.microbatch, operation.stage]
            mine.append(Use(operation, version, latest, len(set(taken.values()) | {latest})))
            if operation.kind != "F":
                del taken[operation.microbatch, operation.stage]
                latest += 1
        uses.append(mine)
    return uses


def staleness(stages):
    """How many updates late each rank's gradients are in steady state: (p-1, …, 1, 0).

    w(t+1) = w(t) - ν ∇f(w_1(t-p+1), w_2(t-p+2), …, w_p(t)) (Narayanan et al. 2019, section 3.3).
    """
    return tuple(range(whole("stages", stages) - 1, -1, -1))


def stashed_versions(stages):
    """How many versions of its weights each rank holds in steady state, the newest included: (p, …, 2, 1)."""
    return tuple(range(whole("stages", stages), 0, -1))
