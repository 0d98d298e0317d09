"""What `launch` promises of a world that ends well."""

import functools
import os
import random
import subprocess
import sys
import threading
import time

import cloudpickle
import numpy as np
import pytest
import torch
import torch.distributed as dist
from kernel import leftovers

from allranks import launch, progress
from allranks.launch import output, packing, plan

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # ranks need not import this file, and pytest

TOKEN = leftovers.mark()
SCALE = 3


@pytest.fixture(autouse=True)
def nothing_is_left_behind():
    yield
    assert leftovers.gone(lambda: leftovers.ranks(TOKEN)) == {}
    assert leftovers.directories(os.getpid()) == []


def average(x):
    t = torch.full((3,), float(dist.get_rank()) + x)
    dist.all_reduce(t, op=dist.ReduceOp.AVG)
    return t


class Point:
    def __init__(self, x):
        self.x = x

    def shift(self, by):
        return Point(self.x + by)

    def __call__(self, by):
        return self.x + by


def test_results_come_back_indexed_by_rank():
    assert launch(lambda: dist.get_rank() ** 2) == [0, 1, 4, 9]


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 16])
def test_the_process_group_is_ready(world_size):
    results = launch(average, 1.0, world_size=world_size)
    assert len(results) == world_size
    assert all(torch.equal(t, torch.full((3,), (world_size - 1) / 2 + 1.0)) for t in results)


def test_keyword_arguments_reach_the_function_even_one_named_fn():
    def f(a, *, fn, args=()):
        return a, fn, args

    assert launch(f, 1, fn=2, args=3, world_size=1) == [(1, 2, 3)]


def test_globals_closures_and_classes_travel():
    offset = 10

    def f(point):
        return point.shift(offset * SCALE)

    (result,) = launch(f, Point(1), world_size=1)
    assert type(result) is Point
    assert result.x == 31


@pytest.mark.parametrize(
    "fn, expected",
    [
        (len, 2),
        (functools.partial("{1}{0}".format, "cd"), "abcd"),
        (Point("a").__call__, "aab"),
        (Point("b"), "bab"),
        (lambda word: word.upper(), "AB"),
    ],
    ids=["builtin", "partial", "bound method", "callable object", "lambda"],
)
def test_any_callable_will_do(fn, expected):
    assert launch(fn, "ab", world_size=2) == [expected, expected]


def test_every_kind_of_result_comes_back():
    def f():
        return {
            "none": None,
            "nested": [{"t": (torch.arange(3), torch.tensor(2.0))}],
            "numpy": np.arange(4).reshape(2, 2),
            "parameter": torch.nn.Parameter(torch.ones(2)),
            "view": torch.arange(6).reshape(2, 3).T,
            "bf16": torch.ones(2, dtype=torch.bfloat16),
            "empty": torch.empty(0, 3),
        }

    (result,) = launch(f, world_size=1)
    assert result["none"] is None
    assert torch.equal(result["nested"][0]["t"][0], torch.arange(3))
    assert (result["numpy"] == [[0, 1], [2, 3]]).all()
    assert isinstance(result["parameter"], torch.nn.Parameter)
    assert torch.equal(result["view"], torch.tensor([[0, 3], [1, 4], [2, 5]]))
    assert result["bf16"].dtype is torch.bfloat16
    assert result["empty"].shape == (0, 3)


def test_200_mb_of_tensor_come_back_writable():
    (result,) = launch(lambda: torch.ones(50_000_000), world_size=1)
    result[0] = 2.0
    assert result[:2].tolist() == [2.0, 1.0]
    assert result.sum() == 50_000_001


def test_results_come_back_where_shared_memory_is_small(monkeypatch, tmp_path):
    monkeypatch.setattr(packing, "ROOM_NEEDED", 1 << 60)
    monkeypatch.setattr(packing.tempfile, "tempdir", str(tmp_path))
    (result,) = launch(lambda: torch.ones(1_000_000), world_size=1)
    assert result.sum() == 1_000_000
    assert list(tmp_path.iterdir()) == []


def test_results_come_back_where_there_is_no_shared_memory(monkeypatch):
    monkeypatch.setattr(packing, "SHARED_MEMORY", "/nowhere")
    assert launch(average, 1.0, world_size=1)[0].tolist() == [1.0, 1.0, 1.0]


def test_the_environment_is_that_of_torchrun():
    names = ["RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR"]
    seen = launch(lambda: [os.environ[name] for name in names], world_size=2)
    assert seen == [["0", "0", "2", "2", "0", "127.0.0.1"], ["1", "1", "2", "2", "0", "127.0.0.1"]]


def test_each_rank_has_its_own_seed_in_torch_numpy_and_python():
    def draw():
        return torch.rand(1).item(), np.random.rand(), random.random()

    seen = launch(draw, world_size=2)
    assert len({value for rank in seen for value in rank}) == 6
    assert launch(draw, world_size=2) == seen


def test_a_rank_computes_with_one_thread_unless_told_otherwise(monkeypatch):
    assert launch(torch.get_num_threads, world_size=2) == [1, 1]
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert launch(torch.get_num_threads, world_size=2) == [2, 2]


def test_environment_variables_set_in_the_notebook_reach_the_ranks(monkeypatch):
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "INFO")
    monkeypatch.setenv("ANSWER", "42")
    level = "DebugLevel.INFO"
    assert launch(lambda: (os.environ["ANSWER"], str(dist.get_debug_level())), world_size=1) == [
        ("42", level)
    ]


def test_the_working_directory_is_that_of_the_notebook(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert launch(os.getcwd, world_size=1) == [str(tmp_path)]


def test_a_function_of_a_module_that_was_edited_runs_as_it_is_now(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(tmp_path)
    for answer in (1, 22):  # Python trusts its cache if a file has the same length and the same second
        (tmp_path / "edited.py").write_text(f"def answer():\n    return {answer}\n")
        sys.modules.pop("edited", None)
        import edited

        assert launch(edited.answer, world_size=1) == [answer]


def test_a_rank_may_destroy_its_process_group_and_make_another():
    def f():
        dist.destroy_process_group()
        dist.init_process_group("gloo")
        t = torch.ones(1)
        dist.all_reduce(t)
        return t.item()

    assert launch(f) == [4.0, 4.0, 4.0, 4.0]


def test_rpc_works_on_ranks():
    def f():
        import torch.distributed.rpc as rpc

        rank = dist.get_rank()
        rpc.init_rpc(f"worker{rank}", rank=rank, world_size=dist.get_world_size())
        answer = rpc.rpc_sync(f"worker{1 - rank}", max, args=(rank, 7))
        rpc.shutdown()
        return answer

    assert launch(f, world_size=2) == [7, 7]


def test_ddp_and_fsdp_give_the_gradients_of_one_process():
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    def gradient(wrap):
        torch.manual_seed(0)
        model, batch = torch.nn.Linear(4, 2), torch.randn(4, 4)
        if wrap is not None:
            model = wrap(model) or model
            batch = batch[dist.get_rank() :: dist.get_world_size()]
        model(batch).square().mean().backward()
        grad = next(model.parameters()).grad
        return grad.full_tensor() if hasattr(grad, "full_tensor") else grad

    serial = gradient(None)
    for wrap in (DistributedDataParallel, fully_shard):
        for parallel in launch(gradient, wrap, world_size=2):
            assert torch.allclose(parallel, serial, atol=1e-6)


def test_a_dataloader_with_workers_works_on_ranks():
    def f():
        loader = torch.utils.data.DataLoader(list(range(8)), batch_size=4, num_workers=2)
        return [batch.sum().item() for batch in loader]

    assert launch(f, world_size=2) == [[6, 22], [6, 22]]


def test_a_process_that_a_rank_forks_does_not_come_back_as_a_rank():
    def f():
        if os.fork() == 0:
            raise SystemExit(1)
        os.wait()
        return dist.get_rank()

    assert launch(f, world_size=2) == [0, 1]


def test_what_a_rank_leaves_running_ends_with_it():
    launch(lambda: subprocess.Popen(["sleep", "1000"]).pid, world_size=2)


def test_threads_may_launch_at_the_same_time():
    results = {}
    threads = [
        threading.Thread(target=lambda x=x: results.update({x: launch(average, x, world_size=2)}))
        for x in (1.0, 2.0)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results[1.0][0].tolist() == [1.5, 1.5, 1.5]
    assert results[2.0][0].tolist() == [2.5, 2.5, 2.5]


def test_launches_leak_no_descriptor_no_thread_and_no_directory():
    def held():
        return len(os.listdir("/proc/self/fd")), threading.active_count()

    launch(average, 1.0, world_size=2)
    before = held()
    for _ in range(20):
        launch(average, 1.0, world_size=2)
    assert held() == before


def test_a_script_needs_no_main_guard(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from allranks import launch\n"
        "import torch.distributed as dist\n"
        "print('main runs')\n"
        "print(launch(lambda: dist.get_rank(), world_size=2))\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("main runs\n[0, 1]\n", "")


# What ranks print


def test_lines_are_marked_and_come_in_the_order_of_the_ranks(capsys):
    def f():
        for rank in reversed(range(4)):
            if rank == dist.get_rank():
                print(f"one\ntwo of {rank}")
            dist.barrier()

    launch(f)
    lines = [f"[rank {rank}] {line}" for rank in range(4) for line in ("one", f"two of {rank}")]
    assert capsys.readouterr().out == "\n".join(lines) + "\n"


def test_what_c_code_and_subprocesses_print_is_marked_too(capsys):
    def f():
        import ctypes

        libc = ctypes.CDLL(None)
        libc.printf(b"from C")
        libc.fflush(None)
        os.write(2, b", from the descriptor\n")
        subprocess.run(["echo", "from a subprocess"], check=True)
        libc.printf(b"left in a buffer")

    launch(f, world_size=1)
    assert capsys.readouterr().out == (
        "[rank 0] from C, from the descriptor\n[rank 0] from a subprocess\n[rank 0] left in a buffer\n"
    )


def test_carriage_returns_garbage_and_a_missing_newline_are_shown_sensibly(capsys):
    launch(lambda: os.write(1, b"10 %\r20 %\r\nbytes \xff\xfe\nno newline"), world_size=1)
    assert capsys.readouterr().out == "[rank 0] 20 %\n[rank 0] bytes \ufffd\ufffd\n[rank 0] no newline\n"


def test_10_mb_of_output_are_cut_and_kept_whole_in_a_file(capsys):
    def f():
        print(("x" * 99 + "\n") * 100_000, end="")

    launch(f, world_size=1)
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) == output.SHOWN // 100 + 1
    told, _, path = shown[-1].rpartition(" in ")
    assert told == "[rank 0] … and 9,800,000 bytes more; all of it is"
    assert os.path.getsize(path) == 10_000_000
    os.remove(path)
    os.rmdir(os.path.dirname(path))


def test_a_line_too_long_to_be_shown_is_cut(capsys, monkeypatch):
    monkeypatch.setattr(output, "SHOWN", 10)
    launch(lambda: print("x" * 30), world_size=1)
    shown, cut = capsys.readouterr().out.splitlines()
    assert shown == "[rank 0] xxxxxxxxxx"
    path = cut.removeprefix("[rank 0] … and 21 bytes more; all of it is in ")
    os.remove(path)
    os.rmdir(os.path.dirname(path))


def test_a_rank_may_close_its_output(capsys):
    def f():
        print("last words")
        os.close(1)
        sys.stdout.close()
        return 1

    assert launch(f, world_size=1) == [1]
    assert capsys.readouterr().out == "[rank 0] last words\n"


def test_progress_shows_nothing_where_output_is_compared(capsys):
    def f():
        return sum(progress(range(100), desc="steps"))

    assert launch(f, world_size=2) == [4950, 4950]
    assert list(progress(range(3))) == [0, 1, 2]
    assert capsys.readouterr() == ("", "")


# What is not possible is said before anything starts


@pytest.mark.parametrize(
    "wrong, kind, message",
    [
        (
            {"world_size": 0},
            ValueError,
            "world_size=0: a world has 1 to 64 ranks here. Every rank is a process on this one machine, "
            "connected to every other; a larger world needs several machines and torchrun.",
        ),
        ({"world_size": -1}, ValueError, "world_size=-1: a world has 1 to 64 ranks here."),
        ({"world_size": 65}, ValueError, "world_size=65: a world has 1 to 64 ranks here."),
        ({"world_size": 2.0}, TypeError, "world_size=2.0 is not a whole number of ranks."),
        ({"world_size": "4"}, TypeError, "world_size='4' is not a whole number of ranks."),
        (
            {"timeout": 0},
            ValueError,
            "timeout=0: give a number of seconds above 0; every launch has a deadline.",
        ),
        ({"timeout": None}, ValueError, "timeout=None: give a number of seconds above 0"),
        ({"timeout": float("inf")}, ValueError, "timeout=inf: give a number of seconds above 0"),
        ({"backend": "mpi"}, ValueError, "backend='mpi' is not one of 'nccl' (a GPU per rank), 'gloo'"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_an_impossible_request_is_refused(wrong, kind, message):
    with pytest.raises(kind) as caught:
        launch(average, 1.0, **wrong)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    "gpus, world_size, backend, expected",
    [
        (0, 4, None, ("gloo", (None,) * 4)),
        (4, 4, None, ("cpu:gloo,cuda:nccl", (0, 1, 2, 3))),
        (8, 2, None, ("cpu:gloo,cuda:nccl", (0, 1))),
        (1, 4, None, ("gloo", (None,) * 4)),
        (1, 3, "cuda:gloo", ("cpu:gloo,cuda:gloo", (0, 0, 0))),
        (4, 2, "gloo", ("gloo", (None, None))),
        (2, 2, "nccl", ("cpu:gloo,cuda:nccl", (0, 1))),
    ],
)
def test_a_rank_gets_a_gpu_of_its_own_where_there_are_enough(
    monkeypatch, gpus, world_size, backend, expected
):
    monkeypatch.setattr(plan, "_count_gpus", lambda: gpus)
    assert plan.make_plan(world_size, backend)[1:] == expected


@pytest.mark.parametrize(
    "gpus, backend, message",
    [
        (
            1,
            "nccl",
            "backend='nccl' needs one GPU per rank: 4 ranks were asked for and 1 GPUs are here (NCCL refuses "
            "two ranks on one GPU). Ask for fewer ranks, or use backend='gloo' for ranks on the CPU, or "
            "backend='cuda:gloo' to let ranks share a GPU.",
        ),
        (
            0,
            "cuda:gloo",
            "backend='cuda:gloo' puts ranks on GPUs, and there is none here. Use backend='gloo'.",
        ),
    ],
)
def test_a_backend_without_its_gpus_is_refused(monkeypatch, gpus, backend, message):
    monkeypatch.setattr(plan, "_count_gpus", lambda: gpus)
    with pytest.raises(ValueError) as caught:
        launch(average, 1.0, backend=backend)
    assert str(caught.value) == message


def test_a_call_instead_of_a_function_is_refused():
    with pytest.raises(TypeError) as caught:
        launch(average(1.0) if dist.is_initialized() else 7)
    assert str(caught.value) == (
        "launch needs a function, and was given int: "
        "write launch(f, x) to run f(x) on every rank, not launch(f(x))."
    )


def test_a_generator_or_coroutine_function_is_refused():
    def generator():
        yield 1

    async def coroutine():
        return 1

    for fn in (generator, coroutine, functools.partial(coroutine)):
        with pytest.raises(TypeError, match="launch needs a function that returns its result"):
            launch(fn)


def test_an_argument_that_cannot_be_sent_is_named():
    lock = threading.Lock()

    def f(x, lock=None):
        return x

    def reader():
        return lock

    why = "cannot be sent to the ranks: TypeError: cannot pickle '_thread.lock' object"
    for call, culprit in [
        (lambda: launch(f, 1, lock), "argument 'lock'"),
        (lambda: launch(f, lock=lock, x=1), "argument 'lock'"),
        (lambda: launch(f, [lock]), "argument 'x'"),
        (lambda: launch(reader), "variable 'lock', which reader uses,"),
    ]:
        with pytest.raises(TypeError) as caught:
            call()
        assert str(caught.value) == f"{culprit} {why}"


def test_launch_under_torchrun_is_refused(monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    with pytest.raises(RuntimeError, match="torchrun, which has started the ranks already"):
        launch(average, 1.0)


def test_later_launches_are_fast():
    launch(average, 1.0)
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        launch(average, 1.0)
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 0.5  # 0.1 s on a quiet machine; benchmarks/ measures it
