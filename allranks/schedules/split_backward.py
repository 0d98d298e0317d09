"""How does a pipeline idle less? By splitting the backward: weight gradients run when nothing else can.

The model: a backward is two operations. The input gradient B is what the rank before waits for; the weight
gradient W can run at any time after its B, and so fills what would be idle (Qi et al. 2024). Durations are
those of one micro-batch on one rank, in any unit of time. Activations are counted in micro-batches of one
rank: M_B from the start of F to the end of B, then M_W, which is at most M_B, until the end of W.
"""

from ..inputs import quantity, whole
from .operations import FORWARD, INPUT_GRAD, WEIGHT_GRAD, Operation, Schedule


def zb_h1(stages, microbatches):
    """ZB-H1: 1F1B whose weight gradients run r micro-batches late on rank r (Qi et al. 2024, section 2.1).

    Every rank holds at most `stages` micro-batches, as the first rank of 1F1B does. With fewer
    micro-batches than stages it is legal, and its bubble larger than `zb_h1_bubble`. In the steady state
    each rank runs F, B, W in turn, as in the script from which the paper's bubble rates come.
    """
    return _handcrafted("zb_h1", stages, microbatches, 1)


def zb_h2(stages, microbatches):
    """ZB-H2: twice as many forwards before the first backward as in ZB-H1 (Qi et al. 2024, section 2.2).

    For T_F = T_B = T_W there is no bubble: ranks start and end at different times, each busy in between,
    and no synchronization may stand between two steps. Every rank holds at most 2p-1 micro-batches. With
    fewer than 2p-1 of them it is legal, and its bubble larger than `zb_h2_bubble`.
    """
    return _handcrafted("zb_h2", stages, microbatches, 2)


def _handcrafted(name, stages, microbatches, ahead):
    whole("stages", stages)
    whole("microbatches", microbatches)
    orders = []
    for rank in range(stages):
        warmup = min(ahead * (stages - 1 - rank), microbatches)
        order = [Operation(FORWARD, index, rank) for index in range(warmup)]
        late = ahead * rank
        for index in range(microbatches):
            if warmup + index < microbatches:
                order.append(Operation(FORWARD, warmup + index, rank))
            order.append(Operation(INPUT_GRAD, index, rank))
            if index >= late:
                order.append(Operation(WEIGHT_GRAD, index - late, rank))
        first = max(microbatches - late, 0)
        order += [Operation(WEIGHT_GRAD, index, rank) for index in range(first, microbatches)]
        orders.append(tuple(order))
    return Schedule(name, stages, microbatches, 1, tuple(orders))


def zb_v(stages, microbatches):
    """ZB-V: two chunks a rank, laid out as a V; no bubble at the memory of 1F1B (Qi et al. 2024, section 6).

    Rank r holds the virtual stages r and 2p-1-r, so a micro-batch ends its forward where it began, and its
    backward starts there at once. The bubble is zero for T_F = T_B = T_W and at least 2p-1 micro-batches;
    no rank holds more than 2p halves of a micro-batch's activations, which is p micro-batches.

    The order is that of torch.distributed.pipelining's ScheduleZBVZeroBubble, operation by operation; fewer
    micro-batches than 2p-1 follow the order of 2p-1 of which the last ones are left out, as in torch.
    """
    whole("stages", stages)
    whole("microbatches", microbatches)
    orders = []
    for rank in range(stages):
        order = _v_order(stages, max(microbatches, 2 * stages - 1), rank)
        orders.append(tuple(operation for operation in order if operation.microbatch < microbatches))
    return Schedule("zb_v", stages, microbatches, 2, tuple(orders))


def _v_order(stages, microbatches, rank):
    down, up = rank, 2 * stages - 1 - rank
    done = {(kind, stage): 0 for kind in (FORWARD, INPUT_GRAD, WEIGHT_GRAD) for stage in (down, up)}
    order = []

    def run(stage, kinds):
        for kind in kinds:
            order.append(Operation(kind, done[kind, stage], stage))
            done[kind, stage] += 1

    group = FORWARD, INPUT_GRAD, WEIGHT_GRAD
    for _ in range(2 * (stages - rank) - 1):
        run(down, group[:1])
    for _ in range(rank):
        run(up, group[:1])
        run(down, group[:1])
    for _ in range(stages - rank):
        run(up, group)
    while done[FORWARD, up] < microbatches:
        run(down, group if done[FORWARD, down] < microbatches else group[1:])
        run(up, group)
    for _ in range(rank):
        run(down, (INPUT_GRAD,))
        run(up, (INPUT_GRAD,))
    for _ in range(stages - rank):
        run(down, (INPUT_GRAD, WEIGHT_GRAD))
    for stage in (up, down):
        while done[WEIGHT_GRAD, stage] < microbatches:
            run(stage, (WEIGHT_GRAD,))
    return order


def zb_h1_bubble(stages, forward, input_grad, weight_grad):
    """Idle time of each rank in ZB-H1: (p-1)(T_F+T_B-T_W) (Qi et al. 2024, table 2).

    It is what `zb_h1` takes for T_W ≤ T_F, at least p micro-batches and transfers that take no time.
    """
    _check_durations(stages, forward, input_grad, weight_grad)
    return (stages - 1) * (forward + input_grad - weight_grad)


def zb_h2_bubble(stages, forward, input_grad, weight_grad, transfer=0.0):
    """Idle time of the rank that is busy longest in ZB-H2: (p-1)(T_F+T_B-2T_W) (Qi et al. 2024, table 2).

    It is what `zb_h2` takes for T_W ≤ T_F, T_W ≤ T_B and at least 2p-1 micro-batches, between the first
    start and the last end of that rank. Transfers of T_comm ≤ T_W each add 2(p-1)T_comm, as the authors'
    script asserts.
    """
    _check_durations(stages, forward, input_grad, weight_grad)
    return (stages - 1) * (forward + input_grad - 2 * weight_grad + 2 * quantity("transfer", transfer))


def _check_durations(stages, forward, input_grad, weight_grad):
    whole("stages", stages)
    quantity("forward", forward), quantity("input_grad", input_grad), quantity("weight_grad", weight_grad)


def kept_for_weight_grad(hidden, heads, sequence):
    """M_W/M_B of a transformer layer: 32h / (34h + 5as) (Qi et al. 2024, table 1).

    W needs, in 2 bytes an element, the input of each weight and the gradient of its output: 32sbh bytes of
    the sb(34h + 5as) that a forward leaves.
    """
    whole("hidden", hidden), whole("heads", heads), whole("sequence", sequence)
    return 32 * hidden / (34 * hidden + 5 * heads * sequence)
