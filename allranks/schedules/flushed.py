"""In which order do ranks run forwards and backwards, when all gradients of a batch go into one update?

The model: rank r holds virtual stages r, r + p, r + 2p, … of the model's layers; a backward is not split.
Each batch ends with a flush: every rank waits until the last backward is done, then all update their
weights.
"""

from ..inputs import whole
from ..interleaving import group_size
from .operations import BACKWARD, FORWARD, Operation, Schedule


def gpipe(stages, microbatches):
    """All forwards, then all backwards (Huang et al. 2019, section 2.3).

    The bubble is (p-1)(T_F+T_B), and every rank keeps the activations of all m micro-batches.
    Backwards run from the first micro-batch to the last, as in torch; in the paper's figure 2 from the last
    to the first. Neither the bubble nor the peak depends on it.
    """
    whole("stages", stages), whole("microbatches", microbatches)
    orders = tuple(
        tuple(Operation(kind, each, rank) for kind in (FORWARD, BACKWARD) for each in range(microbatches))
        for rank in range(stages)
    )
    return Schedule("gpipe", stages, microbatches, 1, orders)


def looped_bfs(stages, microbatches, chunks):
    """GPipe with `chunks` virtual stages a rank: all micro-batches through one, then all through the next.

    Backwards run in the opposite order of the forwards (breadth-first pipeline parallelism, Lamy-Poirier
    2023; torch's ScheduleLoopedBFS). With fewer micro-batches than ranks every loop waits.
    """
    whole("stages", stages), whole("microbatches", microbatches), whole("chunks", chunks)
    orders = []
    for rank in range(stages):
        each = [(mine, rank + chunk * stages) for chunk in range(chunks) for mine in range(microbatches)]
        order = [Operation(FORWARD, *one) for one in each]
        orders.append(tuple(order + [Operation(BACKWARD, *one) for one in reversed(each)]))
    return Schedule("looped_bfs", stages, microbatches, chunks, tuple(orders))


def one_f_one_b(stages, microbatches):
    """One forward, one backward in turn: each rank starts backwards as early as it can.

    Rank r runs p-1-r forwards to warm up, then pairs, then the remaining backwards (PipeDream-Flush;
    Narayanan et al. 2021, section 2.2.1). The bubble is GPipe's, (p-1)(T_F+T_B), but rank r keeps no more
    than p-r activations.
    """
    whole("stages", stages), whole("microbatches", microbatches)
    return Schedule("one_f_one_b", stages, microbatches, 1, one_f_one_b_orders(stages, microbatches))


def one_f_one_b_orders(stages, microbatches):
    """The orders of `one_f_one_b`, one tuple of operations for each rank."""
    orders = []
    for rank in range(stages):
        ahead = min(stages - 1 - rank, microbatches)
        order = [Operation(FORWARD, each, rank) for each in range(ahead)]
        for each in range(ahead, microbatches):
            order.append(Operation(FORWARD, each, rank))
            order.append(Operation(BACKWARD, each - ahead, rank))
        order += [Operation(BACKWARD, each, rank) for each in range(microbatches - ahead, microbatches)]
        orders.append(tuple(order))
    return tuple(orders)


def interleaved(stages, microbatches, chunks, group=None):
    """1F1B with `chunks` (v) virtual stages on each rank, which take `group` (N) micro-batches each in turn.

    Rank r runs 2(p-1-r) + (v-1)N forwards to warm up, then pairs, then the remaining backwards. The bubble
    is (p-1)(T_F+T_B)/v, for v times the messages. Narayanan et al. (2021, section 2.2.2) have N = p, which
    must divide m; Llama 3 (Grattafiori et al. 2024, section 3.3.2) chooses N, and so takes any m. group: None
    is `group_size`, with which the orders are those of torch's ScheduleInterleaved1F1B wherever it accepts m.
    """
    whole("stages", stages), whole("microbatches", microbatches), whole("chunks", chunks)
    least = min(stages, microbatches)
    group = group_size(stages, microbatches) if group is None else whole("group", group, least, microbatches)
    if 0 < microbatches % group < least:
        raise ValueError(
            f"group must divide {microbatches} micro-batches or leave at least {least} over, "
            f"but {group} leaves {microbatches % group}"
        )
    total, orders = microbatches * chunks, []
    forwards, backwards = [], []
    for first in range(0, microbatches, group):
        for chunk in range(chunks):
            for each in range(first, min(first + group, microbatches)):
                forwards.append((each, chunk * stages))
                backwards.append((each, (chunks - 1 - chunk) * stages))
    for rank in range(stages):
        ahead = min(2 * (stages - 1 - rank) + (chunks - 1) * group, total)
        order = []
        for step in range(total + ahead):
            if step < total:
                each, stage = forwards[step]
                order.append(Operation(FORWARD, each, stage + rank))
            if step >= ahead:
                each, stage = backwards[step - ahead]
                order.append(Operation(BACKWARD, each, stage + rank))
        orders.append(tuple(order))
    return Schedule("interleaved", stages, microbatches, chunks, tuple(orders))
