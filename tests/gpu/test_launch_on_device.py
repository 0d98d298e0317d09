"""What `launch` promises, of ranks whose tensors are on a device: a GPU each, or shared; dry, on the CPU.

`make gpu-check` runs this on GPUs. As a part of the suite it runs on the CPU, under gloo.
"""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections import namedtuple

import pytest
import torch
import torch.distributed as dist
from kernel import leftovers
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from allranks import launch
from allranks.launch import RankFailed, RanksTimedOut
from allranks.launch.plan import SHARE

GPUS = torch.cuda.device_count() if "ALLRANKS_ON_GPU" in os.environ else 0
MARGIN = 2.0 if GPUS else 0.5  # seconds beyond what ranks take to start
SLACK = 64 * 2**20  # bytes of a GPU that the driver may take or return meanwhile

World = namedtuple("World", "backend ranks")
if GPUS:
    WORLDS = [World("nccl", GPUS), World("cuda:gloo", 2 * GPUS), World("gloo", 2)]
    if os.environ.get(SHARE) == "1":
        WORLDS.append(World("nccl", 2 * GPUS))
else:
    WORLDS = [World("gloo", 2), World("gloo", 1)]
WITH_PEERS = [world for world in WORLDS if world.ranks > 1]


def named(worlds):
    return pytest.mark.parametrize("world", worlds, ids=[f"{w.backend}, {w.ranks}" for w in worlds])


every_world, worlds_with_peers = named(WORLDS), named(WITH_PEERS)


def device():
    """On a rank: where its tensors are. `launch` hides the GPUs from ranks on the CPU."""
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else "cpu"


def finish():
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def meet():
    """An all-reduce that has happened when this returns: under NCCL the call alone only enqueues it."""
    t = torch.ones(1, device=device())
    dist.all_reduce(t)
    return t.item()


def used():
    """Bytes in use on each GPU."""
    return [total - free for free, total in map(torch.cuda.mem_get_info, range(GPUS))]


@pytest.fixture(autouse=True)
def the_device_is_as_before_and_the_next_launch_works(nothing_is_left_behind):
    before = used()
    yield
    deadline = time.monotonic() + 10
    while any(now > then + SLACK for now, then in zip(used(), before, strict=True)):
        assert time.monotonic() < deadline, f"bytes in use on the GPUs: {before} before, {used()} after"
        time.sleep(0.1)
    ranks = max(1, GPUS)
    assert launch(meet, world_size=ranks, timeout=120) == [ranks] * ranks


@pytest.fixture(scope="module")
def starting():
    """Seconds that a world takes to start, by world: under NCCL or on a shared GPU, several."""
    found = {}
    for world in WORLDS:
        start = time.monotonic()
        launch(meet, world_size=world.ranks, backend=world.backend, timeout=300)
        first, start = time.monotonic() - start, time.monotonic()
        launch(meet, world_size=world.ranks, backend=world.backend, timeout=300)
        found[world] = min(first, time.monotonic() - start)
    return found


def failure(world, fn, *args, kind=RankFailed, timeout=120.0):
    with pytest.raises(kind) as caught:
        launch(fn, *args, world_size=world.ranks, backend=world.backend, timeout=timeout)
    return caught.value


@every_world
def test_a_collective_on_the_device_is_right_and_results_come_back_on_the_cpu(world):
    def average(x):
        t = torch.full((1000,), dist.get_rank() + x, device=device())
        dist.all_reduce(t)
        return t / dist.get_world_size()

    results = launch(average, 1.0, world_size=world.ranks, backend=world.backend)
    assert len(results) == world.ranks
    for t in results:
        assert t.device.type == "cpu"
        assert torch.equal(t, torch.full((1000,), 1.0 + (world.ranks - 1) / 2))


@every_world
def test_a_rank_has_the_device_that_is_promised(world):
    def mine():
        return str(device()), torch.ones(1, device=device()).device.index

    where = launch(mine, world_size=world.ranks, backend=world.backend)
    if world.backend == "gloo":
        assert where == [("cpu", None)] * world.ranks
    else:
        assert where == [(f"cuda:{rank % GPUS}", rank % GPUS) for rank in range(world.ranks)]


@every_world
def test_a_rank_that_raises_is_named_while_the_others_wait(world):
    last = world.ranks - 1

    def step():
        meet()
        if dist.get_rank() == last:
            raise ValueError("no data on this rank")
        meet()

    error = failure(world, step)
    assert str(error) == f"rank {last} raised ValueError: no data on this rank"
    assert error.ranks == [last]


@every_world
def test_a_rank_that_is_killed_is_named(world):
    def step():
        meet()
        if dist.get_rank() == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        meet()

    error = failure(world, step)
    assert str(error) == "rank 0 was killed by SIGKILL (by a person, or because memory ran out)"
    assert error.ranks == [0]


@every_world
def test_a_rank_that_exits_is_named(world):
    def step():
        meet()
        if dist.get_rank() == 0:
            os._exit(3)
        meet()

    error = failure(world, step)
    assert str(error) == "rank 0 exited with code 3 before the function returned"


@every_world
def test_a_rank_that_asks_for_more_memory_than_there_is_is_named(world):
    def step():
        meet()
        if dist.get_rank() == 0:
            torch.empty(2**48, dtype=torch.uint8, device=device())
        meet()

    error = failure(world, step)
    kind = "RuntimeError" if world.backend == "gloo" else "OutOfMemoryError"
    assert str(error).startswith(f"rank 0 raised {kind}: ")
    assert error.ranks == [0]


@every_world
def test_a_rank_whose_kernel_fails_is_named(world):
    def step():
        meet()
        if dist.get_rank() == 0:
            torch.zeros(4, device=device())[torch.tensor([9], device=device())]
            finish()
        meet()

    error = failure(world, step)
    assert str(error).startswith("rank 0 raised ")
    assert error.ranks == [0]


@worlds_with_peers
def test_a_deadlock_ends_at_the_deadline(world, starting):
    def step():
        if dist.get_rank() == 0:
            meet()

    seconds = 2 * starting[world] + MARGIN
    start = time.monotonic()
    with pytest.raises((RanksTimedOut, RankFailed)) as caught:
        launch(step, world_size=world.ranks, backend=world.backend, timeout=seconds)
    assert time.monotonic() - start < 500  # the other deadlines are later
    if isinstance(caught.value, RanksTimedOut):  # NCCL waits, maybe also where it says good-bye
        assert 0 in caught.value.ranks
        assert f"still running after {seconds:g} s" in str(caught.value)
    else:  # gloo notices that its peers have left
        assert caught.value.ranks == list(range(1, world.ranks))
        assert str(caught.value).endswith("returned while rank 0 was still waiting in all_reduce")


@every_world
def test_a_kernel_without_end_is_ended_at_the_deadline(world, starting):
    def step():
        meet()
        if torch.cuda.is_available():
            torch.cuda._sleep(10**13)  # clock cycles: more than an hour; nothing public does it
            torch.cuda.synchronize()
        time.sleep(3600)

    seconds = 2 * starting[world] + MARGIN
    start = time.monotonic()
    error = failure(world, step, kind=RanksTimedOut, timeout=seconds)
    assert time.monotonic() - start < 500  # the other deadlines are later
    assert error.ranks == list(range(world.ranks))


@pytest.fixture
def interrupts():
    """Python raises KeyboardInterrupt, also where a shell started it in the background, deaf to Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@every_world
def test_an_interrupt_ends_all_ranks(world, interrupts, tmp_path):
    def step():
        meet()
        (tmp_path / "begun").touch()
        time.sleep(3600)

    def press():
        while not (tmp_path / "begun").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press, daemon=True).start()
    error = failure(world, step, kind=KeyboardInterrupt)
    assert str(error) == "all ranks were ended"


@every_world
def test_what_ranks_held_is_free_for_the_next_ones(world):
    share = 0.6 / world.ranks * max(1, GPUS)  # of a GPU's memory: two worlds at once would not fit

    def hold():
        free = torch.cuda.mem_get_info()[1] if torch.cuda.is_available() else 10**8
        t = torch.ones(int(share * free), dtype=torch.uint8, device=device())
        finish()
        return t[-1].item()

    for _ in range(3):
        assert launch(hold, world_size=world.ranks, backend=world.backend) == [1] * world.ranks


@every_world
def test_ddp_and_fsdp_give_the_gradients_of_one_process(world):
    def gradient(kind):
        torch.manual_seed(0)
        model, batch = torch.nn.Linear(8, 4), torch.randn(8 * dist.get_world_size(), 8)
        model, mine = model.to(device()), batch.to(device()).chunk(dist.get_world_size())[dist.get_rank()]
        if kind == "ddp":
            model = DistributedDataParallel(model)
        if kind == "fsdp":
            mesh = init_device_mesh(torch.device(device()).type, (dist.get_world_size(),))
            fully_shard(model, mesh=mesh)
        model(mine if kind else batch.to(device())).square().mean().backward()
        grad = next(model.parameters()).grad
        return grad.to_local() if kind == "fsdp" else grad

    where = {"world_size": world.ranks, "backend": world.backend}
    whole = launch(gradient, None, **where)[0]
    for parallel in launch(gradient, "ddp", **where):
        torch.testing.assert_close(parallel, whole, rtol=1e-4, atol=1e-5)
    # Not `full_tensor`: on CUDA tensors, gloo's coalesced all-gather crashes (pytorch#152645).
    parts = launch(gradient, "fsdp", **where)
    torch.testing.assert_close(torch.cat(parts), whole, rtol=1e-4, atol=1e-5)


@named(WORLDS if GPUS else WORLDS[:1])  # on the CPU, programs take seconds to begin
def test_nothing_outlives_a_program_that_is_killed(world, tmp_path):
    begun = tmp_path / "begun"
    script = tmp_path / "program.py"
    script.write_text(
        textwrap.dedent(f"""
            import time, pathlib, torch, torch.distributed as dist
            from allranks import launch

            def hold():
                where = "cuda" if torch.cuda.is_available() else "cpu"
                t = torch.ones(2**28, dtype=torch.uint8, device=where)
                total = torch.ones(1, device=where)
                dist.all_reduce(total)
                if total.item() == {world.ranks} and dist.get_rank() == 0:
                    pathlib.Path({str(begun)!r}).touch()
                time.sleep(3600)

            launch(hold, world_size={world.ranks}, backend={world.backend!r}, timeout=600)
        """)
    )
    token = f"{os.getpid()}-{time.time_ns()}"
    environment = {**os.environ, leftovers.TOKEN: token}
    with subprocess.Popen([sys.executable, str(script)], env=environment) as program:
        deadline = time.monotonic() + 600
        while not begun.exists():
            assert time.monotonic() < deadline and program.poll() is None, "the program did not begin"
            time.sleep(0.05)
        assert len(leftovers.processes(token)) >= 1 + world.ranks
        program.kill()
    assert leftovers.gone(lambda: leftovers.processes(token), 60) == {}
    assert leftovers.gone(lambda: leftovers.directories(program.pid), 60) == []
