"""What gloo forgives and NCCL does not: a program passes on gloo, and the rules say in a sentence why not."""

import math
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import unbatched_pipeline
from torch.nn.parallel import DistributedDataParallel

from allranks import launch, schedules
from allranks.trace import trace


def other():
    return 1 - dist.get_rank()


def both_send_first():
    came = torch.zeros(3)
    request = dist.isend(torch.ones(3), other())
    dist.recv(came, other())
    request.wait()


def a_send_before_a_collective():
    if dist.get_rank() == 0:
        request = dist.isend(torch.ones(3), 1)
        dist.all_reduce(torch.ones(3))
        request.wait()
    else:
        dist.all_reduce(torch.ones(3))
        dist.recv(torch.ones(3), 0)


def tags():
    numbers = (1, 2) if dist.get_rank() == 0 else (2, 1)
    requests = [
        dist.isend(torch.ones(n), 1, tag=n) if dist.get_rank() == 0 else dist.irecv(torch.ones(n), 0, tag=n)
        for n in numbers
    ]
    [request.wait() for request in requests]


def from_anyone():
    dist.send(torch.ones(3), 1) if dist.get_rank() == 0 else dist.recv(torch.ones(3))


def another_root():
    dist.broadcast(torch.ones(3), src=dist.get_rank())


def another_dtype():
    dist.broadcast(torch.ones(3, dtype=(torch.float32, torch.int32)[dist.get_rank()]), src=0)


def another_shape_of_one_size():
    dist.all_reduce(torch.ones(2, 2) if dist.get_rank() == 0 else torch.ones(4))
    return "allowed"


def communicators_in_two_orders():
    pair, t = dist.new_group([0, 1]), torch.ones(3)
    groups = [pair, None] if dist.get_rank() == 0 else [None, pair]
    [request.wait() for request in [dist.all_reduce(t.clone(), group=g, async_op=True) for g in groups]]


def an_input_is_reused():
    t, whole = torch.ones(3), torch.zeros(6)
    request = dist.all_gather_single(whole, t, async_op=True)
    t.zero_()
    request.wait()


def an_output_is_prepared():
    t = torch.ones(3)
    request = dist.all_reduce(t, async_op=True)
    t += 1
    request.wait()


def a_transposed_tensor():
    dist.all_reduce(torch.ones(3, 2).T)


def short_integers():
    t = torch.ones(3, dtype=torch.int16)
    dist.send(t, 1) if dist.get_rank() == 0 else dist.recv(t, 0)


def monitored():
    dist.monitored_barrier()


def the_requests_of_a_batch():
    calls = [dist.P2POp(dist.isend, torch.ones(3), other()), dist.P2POp(dist.irecv, torch.ones(3), other())]
    sent, came = dist.batch_isend_irecv(calls)
    sent.wait(), came.wait()


FORGIVEN = [
    (
        both_send_first,
        "NCCL would hang: rank 0 is in send to rank 1 of 3 × float32 and waits for rank 1 · "
        "rank 1 is in send to rank 0 of 3 × float32 and waits for rank 0",
    ),
    (
        a_send_before_a_collective,
        "NCCL would hang: rank 0 is in send to rank 1 of 3 × float32 and waits for rank 1 · "
        "rank 1 is in all_reduce of 3 × float32 and waits for rank 0",
    ),
    (tags, "NCCL has no tags: send to rank 1 of 1 × float32 has the tag 1"),
    (from_anyone, "NCCL receives from one rank, not from any: name the source of recv"),
    (
        another_root,
        "NCCL needs the same collective on all ranks: rank 0 entered broadcast of 3 × float32, root 0 · "
        "rank 1 entered broadcast of 3 × float32, root 1",
    ),
    (
        another_dtype,
        "NCCL needs the same collective on all ranks: rank 0 entered broadcast of 3 × float32, root 0 · "
        "rank 1 entered broadcast of 3 × int32, root 0",
    ),
    (
        communicators_in_two_orders,
        "NCCL needs communicators in the same order on all ranks: before all_reduce of 3 × float32 on "
        "ranks 0, 1, the collectives on ranks 0, 1 were",
    ),
    (
        an_input_is_reused,
        "NCCL uses the input of all_gather of 3 × float32 until wait(), but it was written to",
    ),
    (
        an_output_is_prepared,
        "NCCL uses the output of all_reduce of 3 × float32 until wait(), but it was written to",
    ),
    (
        a_transposed_tensor,
        "NCCL needs contiguous tensors: all_reduce of 6 × float32 has strides (1, 2)",
    ),
    (short_integers, "NCCL has no int16: send to rank 1 of 3 × int16"),
    (monitored, "NCCL has no monitored_barrier: use barrier"),
    (the_requests_of_a_batch, "ValueError: not enough values to unpack (expected 2, got 1)"),
]


@pytest.mark.parametrize("program, sentence", FORGIVEN, ids=lambda given: getattr(given, "__name__", ""))
def test_gloo_forgives_and_the_rules_do_not(program, sentence):
    if (
        program is another_dtype
    ):  # gloo forgives it, and `launch` compares what ranks entered when all returned
        with pytest.raises(launch.RankFailed, match="gloo reported no error"):
            launch(program, world_size=2)
    elif program is not another_root:  # two roots hang under gloo, too
        launch(program, world_size=2)
    with pytest.raises(RuntimeError) as error:
        launch(program, world_size=2, rules="nccl")
    assert sentence in str(error.value)
    assert not hasattr(error.value, "timeout")


@pytest.mark.stamped(None)
def test_a_hang_is_found_within_a_second():
    launch(dist.barrier, world_size=2, rules="nccl")
    started = time.monotonic()
    with pytest.raises(RuntimeError, match="NCCL would hang"):
        launch(both_send_first, world_size=2, timeout=1_000, rules="nccl")
    assert time.monotonic() - started < 500, "the sentence does not come from the deadline"


def old_step(schedule, p, m):
    rank = dist.get_rank()
    torch.manual_seed(0)
    part = [torch.nn.Linear(4, 4) for _ in range(p)][rank]
    stage = unbatched_pipeline.Stage(part, torch.nn.functional.mse_loss, (2, 4))
    x = torch.ones(2 * m, 4).chunk(m)
    return unbatched_pipeline.step(stage, schedule(p, m).orders[rank], x, x)


def test_the_pipeline_of_the_first_edition_hangs_in_1f1b():
    assert launch(old_step, schedules.one_f_one_b, 4, 8, world_size=4)[-1] > 0
    with pytest.raises(
        RuntimeError, match=r"NCCL would hang: rank 2 is in send to rank 3 .* rank 3 is in send to rank 2"
    ):
        launch(old_step, schedules.one_f_one_b, 4, 8, world_size=4, rules="nccl")
    assert launch(old_step, schedules.gpipe, 4, 8, world_size=4, rules="nccl")[-1] > 0


def results_before_and_after_waiting():
    found = []
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.uint8):
        t = torch.ones(2, dtype=dtype)
        request = dist.all_reduce(t, async_op=True)
        before = t.clone()
        request.wait()
        found.append((before.tolist(), t.tolist()))
    return found


def test_a_result_is_poison_until_it_is_waited_for():
    for mine in launch(results_before_and_after_waiting, world_size=2, rules="nccl"):
        floats, brain_floats, integers, small = mine
        for before, after in (floats, brain_floats):
            assert all(x != x for x in before) and after == [2, 2]
        assert integers == ([2**63 - 1] * 2, [2, 2])
        assert small == ([255] * 2, [2, 2])


def in_place():
    whole = torch.zeros(2 * dist.get_world_size())
    mine = whole.chunk(dist.get_world_size())[dist.get_rank()]
    mine += dist.get_rank() + 1
    dist.all_gather_single(whole, mine, async_op=True).wait()
    return whole.tolist()


def test_an_input_may_be_a_part_of_the_output():
    assert launch(in_place, world_size=2, rules="nccl") == [[1, 1, 2, 2]] * 2


def everything():
    """One of each: what it prints is compared with gloo."""
    rank, p = dist.get_rank(), dist.get_world_size()
    t, found = torch.arange(4.0) + rank, []
    for asynchronous in (False, True):
        ways = [
            (dist.all_reduce, (t.clone(),)),
            (dist.broadcast, (t.clone(), 1)),
            (dist.reduce, (t.clone(), 1)),
            (dist.all_gather, ([torch.zeros(4) for _ in range(p)], t.clone())),
            (dist.all_gather_single, (torch.zeros(4 * p), t.clone())),
            (dist.reduce_scatter, (torch.zeros(4), [t + i for i in range(p)])),
            (dist.reduce_scatter_single, (torch.zeros(4), torch.arange(4.0 * p) + rank)),
            (dist.all_to_all, ([torch.zeros(4) for _ in range(p)], [t + i for i in range(p)])),
            (dist.all_to_all_single, (torch.zeros(3 * p), torch.arange(3.0 * p) + rank)),
            (dist.gather, (t.clone(), [torch.zeros(4) for _ in range(p)] if rank == 0 else None)),
            (dist.scatter, (torch.zeros(4), [t + i for i in range(p)] if rank == 0 else None)),
        ]
        for way, given in ways:
            request = way(*given, async_op=asynchronous)
            if asynchronous:
                request.wait()
            keep = rank == 1 if way is dist.reduce else True
            found.append([str(given)] if keep else [])
    objects = [None] * p
    dist.all_gather_object(objects, {"rank": rank})
    dist.barrier()
    return found, objects


def test_everything_else_is_as_on_gloo():
    assert launch(everything, world_size=3, rules="nccl") == launch(everything, world_size=3)


def ddp_step():
    torch.manual_seed(0)
    model = DistributedDataParallel(
        torch.nn.Sequential(*[torch.nn.Linear(9, 9) for _ in range(20)]), bucket_cap_mb=1e-4
    )
    with trace() as counted:
        model(torch.ones(2, 9) * (1 + dist.get_rank())).sum().backward()
    return [p.grad for p in model.parameters()], counted.calls, counted.sent


def test_ddp_is_as_on_gloo_and_trace_sees_the_same():
    for mine, its in zip(
        launch(ddp_step, world_size=2, rules="nccl"), launch(ddp_step, world_size=2), strict=True
    ):
        torch.testing.assert_close(mine[0], its[0])
        assert mine[1:] == its[1:]


def compute_alone(seconds):
    if dist.get_rank() == 0:
        return "early"
    time.sleep(seconds)
    dist.barrier(group=dist.new_group([1, 2], use_local_synchronization=True))


def test_the_judge_stays_until_the_last_rank_has_returned():
    assert launch(compute_alone, 2.5, world_size=3, rules="nccl")[0] == "early"


def test_the_environment_can_ask_for_the_rules(monkeypatch):
    monkeypatch.setenv("ALLRANKS_RULES", "nccl")
    with pytest.raises(RuntimeError, match="NCCL has no tags"):
        launch(tags, world_size=2)
    monkeypatch.setenv("NCCL_BUFFSIZE", "4194304")
    launch(both_send_first, world_size=2)


@pytest.mark.parametrize(
    "asked, sentence",
    [
        ({"rules": "mpi"}, "rules='mpi' is not 'nccl'"),
        ({"rules": "nccl", "backend": "nccl"}, "NCCL enforces its own rules"),
    ],
)
def test_rules_that_there_are_not_are_refused(asked, sentence):
    with pytest.raises(ValueError, match=sentence):
        launch(dist.barrier, **asked)


@pytest.mark.parametrize("value", [math, torch.zeros(2), ["nccl"], {}])
@pytest.mark.parametrize("key", ["rules", "backend", "cluster"])
def test_what_is_no_word_is_refused_by_its_type(key, value):
    with pytest.raises(TypeError, match=f"^{key} is of type {type(value).__name__}, but launch takes"):
        launch(dist.barrier, **{key: value})


def test_a_wrong_word_in_the_environment_is_called_what_it_is(monkeypatch):
    monkeypatch.setenv("ALLRANKS_RULES", "mpi")
    with pytest.raises(ValueError, match="ALLRANKS_RULES='mpi' in the environment is not 'nccl'"):
        launch(dist.barrier)


PROGRAM = """
import sys, torch, torch.distributed as dist
dist.init_process_group("nccl", device_id=torch.device("cuda", int(sys.argv[1]) and dist_rank()))
t = torch.ones(3)
if sys.argv[1] == "2":
    dist.isend(t, 1 - dist.get_rank())
    dist.recv(t, 1 - dist.get_rank())
dist.all_reduce(t)
print(f"sum {t.tolist()}\\n", end="")  # torchrun starts ranks with -u
dist.destroy_process_group()
"""
HEAD = "import os\ndef dist_rank(): return int(os.environ['RANK'])\n"
BACKEND = """
import torch, torch.distributed as dist, allranks.nccl
dist.init_process_group("nccl_rules")
t = torch.ones(3)
request = dist.all_reduce(t, async_op=True)
before = t.isnan().all().item()
request.wait()
pair = dist.new_group([0, 1])
dist.all_reduce(t, group=pair)
print(f"poison {before} {t.tolist()} {allranks.nccl.communicators()} {dist.get_backend()}\\n", end="")
allranks.nccl.leave(stay=True)
"""


def torchrun(tmp_path, text, *arguments, through=()):
    program = tmp_path / "program.py"
    program.write_text(text)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", *through, str(program)]
    return subprocess.run(
        [*command, *arguments], capture_output=True, text=True, timeout=600, cwd=Path(__file__).parents[2]
    )


@pytest.mark.parametrize(
    "how, sentence",
    [
        ("1", "sum [2.0, 2.0, 2.0]"),
        ("2", "NCCL would hang: rank 0 is in send to rank 1"),
        ("0", "NCCL needs a device for each rank: ranks 0, 1 are on cuda:0 of"),
    ],
)
def test_a_program_that_knows_nothing_of_it_is_checked_under_torchrun(tmp_path, how, sentence):
    done = torchrun(tmp_path, HEAD + PROGRAM, how, through=("-m", "allranks.nccl"))
    assert sentence in done.stdout + done.stderr
    assert (done.returncode == 0) == (how == "1")


def test_it_is_a_backend_like_any_other(tmp_path):
    done = torchrun(tmp_path, BACKEND)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("poison True [4.0, 4.0, 4.0] (2, 2) nccl_rules") == 2, done.stdout


UNFINISHED = """
import torch, torch.distributed as dist, allranks.nccl
dist.init_process_group("nccl_rules")
dist.barrier()
works = [dist.all_reduce(torch.ones(5_000_000), async_op=True) for _ in range(3)]
allranks.nccl.leave(stay=True)
"""


def test_a_program_may_end_while_gloo_still_holds_its_tensors(tmp_path):
    done = torchrun(tmp_path, UNFINISHED)
    assert done.returncode == 0, done.stderr
