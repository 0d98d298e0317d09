"""How long do ranks idle when pairs of a DualPipe really run together? Played apart from `simulate`."""

from allranks.schedules.bidirectional import overlapped_pairs
from allranks.schedules.operations import BACKWARD, FORWARD, INPUT_GRAD, WEIGHT_GRAD


def overlapped_idle(schedule, forward, input_grad, weight_grad, overlapped):
    """For each rank its idle time until the last rank is done, if a pair takes the time `overlapped` (F&B).

    A pair starts when both of its operations can, and its two results are there when it ends; `simulate`
    plays the same pairs as two operations, one after the other. Durations are those of one micro-batch on a
    rank's whole share of the model; transfers take no time.
    """
    chunks, virtual = schedule.chunks, schedule.stages * schedule.chunks
    seconds = {
        FORWARD: forward,
        INPUT_GRAD: input_grad,
        WEIGHT_GRAD: weight_grad,
        BACKWARD: input_grad + weight_grad,
    }
    pairs = [set(positions) for positions in overlapped_pairs(schedule)]
    ready, busy, clocks = {}, [0] * schedule.stages, [0] * schedule.stages
    positions = [0] * schedule.stages
    runnable = True
    while runnable:
        runnable = False
        for rank, order in enumerate(schedule.orders):
            while positions[rank] < len(order):
                paired = positions[rank] in pairs[rank]
                step = order[positions[rank] : positions[rank] + 1 + paired]
                needed = [_needed(operation, virtual) for operation in step]
                if any(need and need not in ready for need in needed):
                    break
                start = max([clocks[rank]] + [ready[need] for need in needed if need])
                duration = (overlapped if paired else seconds[step[0].kind]) / chunks
                clocks[rank] = start + duration
                for kind, microbatch, stage in step:
                    if kind != WEIGHT_GRAD:
                        ready[kind == FORWARD, microbatch, stage] = clocks[rank]
                busy[rank] += duration
                positions[rank] += len(step)
                runnable = True
    return tuple(max(clocks) - each for each in busy)


def _needed(operation, stages):
    """Which result of the stage before, or after, an operation needs; None at the ends of the model."""
    kind, microbatch, stage = operation
    stage += -1 if kind == FORWARD else 1
    return (kind == FORWARD, microbatch, stage) if kind != WEIGHT_GRAD and 0 <= stage < stages else None
