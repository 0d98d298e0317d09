"""What `launch` promises of a world that ends well."""

import functools
import inspect
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
import weakref

import numpy as np
import opened
import pytest
import torch
import torch.distributed as dist
from torch.distributed.fsdp._fully_shard import _fsdp_init

from allranks import launch
from allranks.launch import RankFailed, packing, patience, plan, rank

pytestmark = pytest.mark.usefixtures("nothing_is_left_behind")
SCALE = 3


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


def test_a_rank_stays_while_others_still_connect_a_group_that_it_has_done_with():
    """Without LINGER, one launch in two fails here: "returned while ranks 3, 7 were still waiting"."""

    def connect():
        dist.new_group(list(range(dist.get_world_size())))

    for _ in range(10):
        launch(connect, world_size=8)


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
    launch(average, 1.0, world_size=2)
    before = opened.now()
    for _ in range(20):
        launch(average, 1.0, world_size=2)
    assert opened.since(before) == set()


def burn(seconds):
    while time.thread_time() < seconds:
        pass
    return "done"


def test_what_ranks_wait_for_a_processor_is_not_their_time(monkeypatch):
    monkeypatch.setattr(patience, "MOST", 100)  # others may want the processors, too
    many = min(3 * len(os.sched_getaffinity(0)), plan.MAX_WORLD_SIZE)  # three times too many
    assert launch(burn, 1.0, world_size=many, timeout=2) == many * ["done"]


def test_patience_ends_for_ranks_that_always_wait_for_a_processor(monkeypatch):
    monkeypatch.setattr(patience, "LEAST", 0)
    monkeypatch.setattr(patience, "waited", lambda pids: {1: time.monotonic()})
    given = patience.Patience(0.1, [1])
    allowed = given.last - given.end
    given.wait()
    assert time.monotonic() >= given.end == given.last
    assert allowed == pytest.approx(0.1 * (patience.MOST - 1))


def test_a_short_deadline_is_put_off_for_less(monkeypatch):
    clock, waits = iter([0, 1, 1, 1]), iter([{}, {"a thread that began meanwhile": 0.1}])
    monkeypatch.setattr(patience, "waited", lambda pids: next(waits))
    monkeypatch.setattr(patience.time, "monotonic", lambda: next(clock))
    assert patience.Patience(0.5, [1]).left() == pytest.approx(0.1)
    clock, waits = iter([0, 10, 10]), iter([{"a thread": 0}, {"a thread": 0.1}])
    assert patience.Patience(10, [1]).left() == 0


def test_patience_counts_what_any_thread_has_waited():
    """The main thread sleeps; others compute, in C code that lets all run, more than there are processors."""
    many = 2 * len(os.sched_getaffinity(0)) + 2
    code = (
        "import threading, zlib\n"
        "def burn():\n"
        "    while True: zlib.crc32(bytes(1 << 24))\n"
        f"for _ in range({many}): threading.Thread(target=burn).start()"
    )
    with subprocess.Popen([sys.executable, "-c", code]) as burning:
        main = f"/proc/{burning.pid}/task/{burning.pid}/schedstat"
        until = time.monotonic() + 60
        while max({**patience.waited([burning.pid]), main: 0}.values()) < 0.2 and time.monotonic() < until:
            time.sleep(0.05)
        burning.kill()
    assert time.monotonic() < until
    assert patience.waited([burning.pid]) == {}


def test_ranks_that_wait_for_a_processor_have_longer_to_fail_too(monkeypatch):
    def fail():
        time.sleep(dist.get_rank())
        raise ValueError("no")

    monkeypatch.setattr(patience, "waited", lambda pids: {1: time.monotonic()})
    monkeypatch.setattr(patience, "MOST", 100)
    with pytest.raises(RankFailed, match=r"^ranks 0, 1 raised ValueError: no"):
        launch(fail, world_size=2)


def test_a_script_needs_no_main_guard(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from allranks import launch\n"
        "import torch.distributed as dist\n"
        "print('main runs')\n"
        "print(launch(lambda: dist.get_rank(), world_size=2))\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=600)
    assert (done.stdout, done.stderr) == ("main runs\n[0, 1]\n", "")


def test_a_later_launch_of_four_ranks_takes_less_time_than_one_import_of_torch():
    def timed(call):
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    launch(average, 1.0)
    new = [sys.executable, "-c", "import torch"]
    launches, imports = [], []
    for _ in range(30):  # what else the machine does can only add to either
        launches.append(timed(lambda: launch(average, 1.0)))
        imports.append(timed(lambda: subprocess.run(new, check=True)))
        if len(launches) >= 3 and min(launches) < min(imports):
            break
    assert min(launches) < min(imports)


def test_fully_shard_stays_on_the_cpu_where_torch_was_built_for_gpus():
    assert "torch._C._get_accelerator()" in inspect.getsource(_fsdp_init._init_default_mesh)

    def become_a_rank_again():
        torch._C._get_accelerator = lambda *_: torch.device("cuda")  # torch from PyPI
        rank.become_rank(0, plan.make_plan(1, "gloo"), dict(os.environ), os.environ["ALLRANKS_WORLD"])
        return str(torch._C._get_accelerator())

    assert launch(become_a_rank_again, world_size=1, backend="gloo") == ["cpu"]


KEPT = []


def keep_a_dead_proxy(error):
    """As an object that has lost what it stands for: it answers no question, not even for its class."""

    class Gone:
        pass

    gone = Gone()
    KEPT.append(weakref.proxy(gone))
    del gone
    if error:
        raise error
    return "here"


def test_a_dead_proxy_costs_neither_a_result_nor_an_exception():
    assert launch(keep_a_dead_proxy, None, world_size=2) == ["here", "here"]
    with pytest.raises(RankFailed, match=r"^ranks 0, 1 raised ValueError: mine"):
        launch(keep_a_dead_proxy, ValueError("mine"), world_size=2)


def test_torchs_new_settings_of_precision_do_not_stop_a_launch(monkeypatch):
    monkeypatch.setattr(torch, "get_float32_matmul_precision", refuse)
    assert launch(len, "ab", world_size=1) == [2]


def refuse():
    raise RuntimeError("PyTorch is checking the matmul precision without a specific backend name")


class Stub:
    """A module that a notebook put in the place of one that is not there."""

    def __getattr__(self, name):
        return Stub()


def test_a_stub_among_the_modules_does_not_stop_a_launch(monkeypatch):
    monkeypatch.setitem(sys.modules, "a_tracker", Stub())
    assert launch(len, "ab", world_size=1) == [2]


def fail_in_a_folder_that_is_gone():
    os.chdir(folder := tempfile.mkdtemp())
    os.rmdir(folder)
    raise ValueError("mine")


def test_a_working_directory_that_a_function_removed_hides_no_exception():
    with pytest.raises(RankFailed, match=r"^rank 0 raised ValueError: mine"):
        launch(fail_in_a_folder_that_is_gone, world_size=1)
