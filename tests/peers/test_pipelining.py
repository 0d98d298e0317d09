"""Pipeline schedules against torch's, operation by operation."""

import pytest
import torch
from torch.distributed.pipelining import schedules as theirs
from torch.distributed.pipelining.stage import _PipelineStageBase

from allranks import schedules as ours
from allranks.schedules import Operation

KINDS = {
    theirs.FORWARD: "F",
    theirs.BACKWARD_INPUT: "B",
    theirs.BACKWARD_WEIGHT: "W",
    theirs.FULL_BACKWARD: "BW",
}
RUNS = [(1, 1), (1, 4), (2, 2), (2, 6), (3, 3), (3, 12), (4, 8), (5, 10), (8, 16)]


class Stage(_PipelineStageBase):
    """What torch's schedules ask of a stage before they run it."""

    def __init__(self, index, ranks, virtual):
        self.submod, self.device, self.group = torch.nn.Identity(), torch.device("cpu"), None
        self.stage_index, self.num_stages = index, virtual
        self.group_size, self.group_rank = ranks, 0
        self.stage_index_to_group_rank = {each: each % ranks for each in range(virtual)}
        self.has_backward = True

    def _get_recv_ops(self, *args):
        raise NotImplementedError

    _prepare_forward_infra = _prepare_backward_infra = _create_grad_recv_info = _get_recv_ops


def torch_schedule(name, stages, microbatches, chunks=1):
    """The schedule object of torch, for rank 0: its `pipeline_order` is that of all ranks."""
    kind = getattr(theirs, name)
    if issubclass(kind, theirs.PipelineScheduleSingle):
        return kind(Stage(0, stages, stages), microbatches)
    virtual = stages * chunks
    held = range(0, virtual, stages)
    if name in ("ScheduleZBVZeroBubble", "ScheduleDualPipeV"):
        held = (0, virtual - 1)
    return kind([Stage(each, stages, virtual) for each in held], microbatches)


def operations(actions):
    """The compute operations among torch's actions; an overlapped pair is its forward, then its backward."""
    for action in actions:
        if action is not None and action.sub_actions is not None:
            yield from operations(action.sub_actions)
        elif action is not None and action.computation_type in KINDS:
            yield Operation(KINDS[action.computation_type], action.microbatch_index, action.stage_index)


def orders(schedule):
    """torch's orders without the idle steps in between, as ours are."""
    return tuple(tuple(operations(schedule.pipeline_order[rank])) for rank in sorted(schedule.pipeline_order))


def runtime_orders(schedule):
    """What torch's runtime computes, once it has put the messages between the operations."""
    lists = schedule.pipeline_order_with_comms
    return tuple(tuple(operations(lists[rank])) for rank in sorted(lists))


@pytest.mark.parametrize("stages, microbatches", RUNS)
def test_gpipe_is_torchs(stages, microbatches):
    assert ours.gpipe(stages, microbatches).orders == orders(
        torch_schedule("ScheduleGPipe", stages, microbatches)
    )


@pytest.mark.parametrize("stages, microbatches", RUNS)
def test_one_f_one_b_is_torchs_except_for_its_slip_on_the_last_rank(stages, microbatches):
    mine = ours.one_f_one_b(stages, microbatches).orders
    printed = orders(torch_schedule("Schedule1F1B", stages, microbatches))
    assert printed[:-1] == mine[:-1]
    # The last rank's forwards are numbered 1 … m, not 0 … m-1: a plan that torch prints and does not run.
    assert printed[-1] == tuple(
        Operation(kind, microbatch + (kind == "F"), stage) for kind, microbatch, stage in mine[-1]
    )
    with pytest.raises(ValueError, match="is not F, B, W"):
        ours.check(ours.one_f_one_b(stages, microbatches)._replace(orders=printed))


@pytest.mark.parametrize("chunks", [1, 2, 3])
@pytest.mark.parametrize("stages, microbatches", RUNS)
def test_looped_bfs_is_torchs(stages, microbatches, chunks):
    peer = torch_schedule("ScheduleLoopedBFS", stages, microbatches, chunks)
    assert ours.looped_bfs(stages, microbatches, chunks).orders == orders(peer) == runtime_orders(peer)


@pytest.mark.parametrize("chunks", [1, 2, 3])
@pytest.mark.parametrize("stages", [1, 2, 3, 4, 5, 8])
def test_interleaved_is_torchs_wherever_torch_interleaves(stages, chunks):
    for microbatches in range(1, 3 * stages + 3):
        mine = ours.interleaved(stages, microbatches, chunks)
        ours.check(mine)
        rounds = max(1, microbatches // stages)
        if microbatches % rounds:
            with pytest.raises(ValueError, match="multiple of the number of rounds"):
                torch_schedule("ScheduleInterleaved1F1B", stages, microbatches, chunks)
            continue
        peer = torch_schedule("ScheduleInterleaved1F1B", stages, microbatches, chunks)
        assert mine.orders == orders(peer) == runtime_orders(peer)
        assert ours.group_size(stages, microbatches) == microbatches // rounds


@pytest.mark.parametrize("stages, microbatches", RUNS)
def test_zb_v_is_torchs(stages, microbatches):
    peer = torch_schedule("ScheduleZBVZeroBubble", stages, microbatches, 2)
    assert ours.zb_v(stages, microbatches).orders == orders(peer)


@pytest.mark.parametrize("stages, microbatches", [run for run in RUNS if run[1] >= 2 * run[0]])
def test_dualpipe_v_is_torchs(stages, microbatches):
    peer = torch_schedule("ScheduleDualPipeV", stages, microbatches, 2)
    assert ours.dualpipe_v(stages, microbatches).orders == orders(peer)


@pytest.mark.parametrize("stages, microbatches", [run for run in RUNS if run[1] % run[0] == 0])
def test_torchs_interleaved_zero_bubble_with_one_chunk_is_zb_h1(stages, microbatches):
    peer = torch_schedule("ScheduleInterleavedZeroBubble", stages, microbatches, 1)
    assert ours.zb_h1(stages, microbatches).orders == orders(peer)


@pytest.mark.parametrize(
    "name, chunks",
    [
        ("ScheduleLoopedBFS", 2),
        ("ScheduleInterleaved1F1B", 2),
        ("ScheduleInterleavedZeroBubble", 2),
        ("ScheduleZBVZeroBubble", 2),
        ("ScheduleDualPipeV", 2),
    ],
)
def test_what_torch_runs_is_complete_legal_and_free_of_deadlock(name, chunks):
    peer = torch_schedule(name, 4, 8, chunks)
    ours.check(ours.Schedule(name, 4, 8, chunks, orders(peer)))


def test_every_schedule_of_torch_is_compared():
    known = {
        "ScheduleGPipe", "Schedule1F1B", "ScheduleLoopedBFS", "ScheduleInterleaved1F1B",
        "ScheduleInterleavedZeroBubble", "ScheduleZBVZeroBubble", "ScheduleDualPipeV",
    }  # fmt: skip
    assert {name for name in vars(theirs) if name.startswith("Schedule")} == known
