"""How can a forward run beside a backward on one rank? Micro-batches travel in both directions at once.

The model: DeepSeek-V3's pipeline (DeepSeek-AI 2024, section 3.2.1). In the steady state a rank always has
one micro-batch going forward and another one going backward, which it runs as one overlapped pair: the
network of the one is hidden behind the computation of the other. In this module B is the *whole* backward,
and W, its weight-gradient part, is contained in it, as in that paper; Qi et al. 2024 write B for the input
gradient alone.
"""

from ..inputs import multiple, one_of, quantity, whole
from .operations import BACKWARD, FORWARD, INPUT_GRAD, WEIGHT_GRAD, Operation, Schedule

FIRST, SECOND = 0, 1


def dualpipe(stages, microbatches):
    """DualPipe: two copies of the model, and half of the micro-batches enters at each end of the pipeline.

    Rank r holds stage r of the first copy, which micro-batches 0 … m/2-1 go through from rank 0 to rank
    p-1, and stage p-1-r of the second, which m/2 … m-1 go through from rank p-1 to rank 0.
    `Operation.stage` is the stage of the model, 0 … p-1, in both copies; the micro-batch says which one is
    meant. `overlapped_pairs` tells which forwards and backwards run together.

    `stages` and `microbatches` are even, with at least 2p micro-batches, as in the authors' implementation
    (github.com/deepseek-ai/DualPipe), whose order this is. Both gradients are one operation ("BW") except
    at the start and at the end of a batch, where they are split to fill idle time.
    """
    multiple("stages", whole("stages", stages, 2), "directions", 2)
    multiple("microbatches", whole("microbatches", microbatches, 2 * stages), "directions", 2)
    half, each = stages // 2, microbatches // 2
    orders = []
    for rank in range(stages):
        near = min(rank, stages - 1 - rank)
        mirrored = rank >= half
        orders.append(
            tuple(
                Operation(kind, index + each * (phase ^ mirrored), _stage(rank, stages, phase ^ mirrored))
                for kind, phase, index in _order(half, each, near)
            )
        )
    return Schedule("dualpipe", stages, microbatches, 1, tuple(orders))


def dualpipe_v(stages, microbatches):
    """DualPipeV: DualPipe cut in half, one copy of the model folded over p ranks as a V.

    Rank r holds the virtual stages r and 2p-1-r and runs what rank r of 2p ranks runs in `dualpipe`; what
    there comes from the other end comes here from the rank itself. At least 2p micro-batches, as in the
    authors' implementation and in torch.distributed.pipelining's ScheduleDualPipeV, whose order this is
    (their overlapped forward and backward are two consecutive operations here, see `overlapped_pairs`).
    """
    whole("stages", stages)
    whole("microbatches", microbatches, 2 * stages)
    orders = tuple(
        tuple(
            Operation(kind, index, _stage(rank, 2 * stages, phase))
            for kind, phase, index in _order(stages, microbatches, rank)
        )
        for rank in range(stages)
    )
    return Schedule("dualpipe_v", stages, microbatches, 2, orders)


def _stage(rank, stages, direction):
    return stages - 1 - rank if direction else rank


def _order(ranks, microbatches, rank):
    """The (kind, phase, index) of rank `rank` of half a DualPipe, in the eight steps of the authors' code.

    Phase 0 has its first stages on the lower ranks of the half, phase 1 its last.
    """
    done = {(kind, phase): 0 for kind in (FORWARD, BACKWARD) for phase in (FIRST, SECOND)}
    order, waiting = [], []

    def run(kind, phase):
        count = FORWARD if kind == FORWARD else BACKWARD, phase
        order.append((kind, phase, done[count]))
        if kind == INPUT_GRAD:
            waiting.append((WEIGHT_GRAD, phase, done[count]))
        done[count] += 1

    for _ in range(2 * (ranks - 1 - rank)):
        run(FORWARD, FIRST)
    for _ in range(rank + 1):
        run(FORWARD, FIRST)
        run(FORWARD, SECOND)
    for _ in range(ranks - 1 - rank):
        run(INPUT_GRAD, SECOND)
        order.append(waiting.pop(0))
        run(FORWARD, SECOND)
    for _ in range(microbatches - 2 * ranks + rank + 1):
        run(FORWARD, FIRST)
        run(BACKWARD, SECOND)
        run(FORWARD, SECOND)
        run(BACKWARD, FIRST)
    for _ in range(ranks - 1 - rank):
        run(BACKWARD, SECOND)
        run(FORWARD, SECOND)
        run(BACKWARD, FIRST)
    for turn in range(2 * (rank + 1)):
        run(INPUT_GRAD if turn > rank else BACKWARD, FIRST if turn % 2 else SECOND)
    for _ in range(ranks - 1 - rank):
        order.append(waiting.pop(0))
        run(INPUT_GRAD, FIRST)
    return order + waiting


def overlapped_pairs(schedule):
    """For each rank the positions in its order of the forwards that overlap with the backward after them.

    `schedule` is one of `dualpipe` or `dualpipe_v`. The first forward and backward of the steady state of
    the middle ranks (in `dualpipe_v`: of the last rank) stay apart, which makes the bubble smaller
    (authors' code).
    """
    one_of("the name of the schedule", schedule.name, ("dualpipe", "dualpipe_v"))
    pairs = []
    for order in schedule.orders:
        found = [
            position
            for position in range(len(order) - 1)
            if order[position].kind == FORWARD and order[position + 1].kind == BACKWARD
        ]
        middle = not any(operation.kind == WEIGHT_GRAD for operation in order[: found[0]])
        pairs.append(tuple(found[1:] if middle else found))
    return tuple(pairs)


def dualpipe_bubble(pipeline_stages, forward, backward, weight_grad, overlapped):
    """Idle time in DualPipe: (PP/2-1)(F&B+B-3W), where `backward` is the whole B (DeepSeek-AI 2024, table 2).

    `pipeline_stages` is PP: the ranks of `dualpipe`, and twice the ranks of `dualpipe_v`, where F, B and W
    are the times of one of its PP virtual stages. It is what the ranks idle that idle most (the middle
    ones, which overlap most pairs) if F = B - W and W ≤ F. More generally, for W ≤ B - W ≤ F, they idle
    (PP/2-1)(F&B+F-2W). Pairs played one operation after the other idle less than pairs that take F&B = F+B
    as one block, since their forward is sent on earlier: (PP/2-1)(F+B-2W) if F = B - W, the bubble of ZB-H1
    on half as many ranks.
    """
    multiple("pipeline_stages", whole("pipeline_stages", pipeline_stages, 2), "directions", 2)
    quantity("forward", forward), quantity("backward", backward), quantity("overlapped", overlapped)
    if quantity("weight_grad", weight_grad) > backward:
        raise ValueError(f"weight_grad must be a part of backward = {backward}, not {weight_grad}")
    return (pipeline_stages // 2 - 1) * (overlapped + backward - 3 * weight_grad)
