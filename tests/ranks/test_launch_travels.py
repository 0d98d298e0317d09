"""What of a notebook reaches the ranks, what comes back, and what is said of the rest: in a real kernel."""

import json
import os
import time

import pytest
from kernel import Kernel, leftovers

from allranks.launch import carried

IMPORTS = "from allranks import launch\nimport torch, torch.distributed as dist, numpy as np, os, sys, time"


@pytest.fixture(scope="module")
def kernel():
    token = f"{os.getpid()}-{time.time_ns()}"
    with Kernel(timeout=600, ALLRANKS_OUTPUT="ordered", **{leftovers.TOKEN: token}) as kernel:
        assert kernel.run(IMPORTS).error is None
        yield kernel
    assert leftovers.gone(lambda: leftovers.processes(token), seconds=60) == {}


def value(kernel, code):
    """What the last line of a cell is, of plain data."""
    *body, last = code.strip().split("\n")
    cell = kernel.run("\n".join([*body, f"import json; print('=>' + json.dumps({last}))"]))
    assert cell.error is None, "\n".join(cell.error["traceback"])
    return json.loads(cell.text.rpartition("=>")[2])


def test_a_result_leaves_the_classes_of_the_notebook_alone(kernel):
    kernel.run("def helper(): return 'old'")
    kernel.run(
        "class Net:\n    count = 0\n    def ask(self): return helper()\n"
        "def f():\n    Net.count += 1\n    Net.new = 1\n    return Net()"
    )
    assert value(kernel, "net, = launch(f, world_size=1)\n[net.ask(), Net.count, hasattr(Net, 'new')]") == [
        "old",
        0,
        False,
    ]
    assert value(kernel, "def helper(): return 'new'\n[net.ask(), Net().ask(), type(net) is Net]") == [
        "new",
        "new",
        True,
    ]
    assert value(kernel, "launch(lambda: Net().ask(), world_size=1)") == ["new"]


def test_objects_of_a_class_with_slots_come_back(kernel):
    kernel.run(
        "import dataclasses\n@dataclasses.dataclass(slots=True)\nclass Point:\n    x: int = 0\n"
        "class Sub(Point): __slots__ = ('y', '__weakref__')\n"
        "import typing\nclass Pair(typing.NamedTuple):\n    a: int"
    )
    shifted = (
        "launch(lambda p: (Point(p.x + 1), hasattr(p, '__dict__'), Sub(5), Pair(6)), Point(3), world_size=1)"
    )
    expected = "[back == Point(4), with_dict, type(sub) is Sub, sub.x, pair == Pair(6)]"
    assert value(kernel, f"(back, with_dict, sub, pair), = {shifted}\n{expected}") == [
        True,
        False,
        True,
        5,
        True,
    ]


def test_globals_that_a_class_inside_a_function_reads_in_its_body_travel(kernel):
    kernel.run(
        "import threading\nRATE = 0.5\nheld = threading.Lock()\n"
        "def f():\n    class Settings:\n        RATE = RATE\n        held = 1\n        twice = held + 1\n"
        "        class Inner:\n            world = dist.get_world_size()\n"
        "    return Settings.RATE, Settings.twice, Settings.Inner.world"
    )
    assert value(kernel, "launch(f, world_size=1)") == [[0.5, 2, 1]]


def test_places_to_import_from_that_are_no_plain_strings_do_no_harm(kernel):
    kernel.run("from pathlib import Path\nclass Text(str): pass\nsys.path += [Path('/a'), Text('/b'), None]")
    assert value(kernel, "launch(lambda: sys.path[-1], world_size=1)") == ["/b"]
    kernel.run("del sys.path[-3:]")


def test_a_formatter_that_cannot_travel_is_named(kernel):
    kernel.run(
        "import logging, threading\nhandler = logging.StreamHandler()\n"
        "handler.formatter = logging.Formatter()\nhandler.formatter.lock = threading.Lock()\n"
        "logging.root.addHandler(handler)"
    )
    error = kernel.run("launch(len, 'ab', world_size=1)").error
    kernel.run("logging.root.removeHandler(handler)")
    assert error["evalue"].startswith(
        "the way this notebook prints and logs cannot be sent to the ranks: TypeE"
    )


def test_a_cache_that_is_not_written_says_nothing_of_edits(monkeypatch, tmp_path):
    import py_compile

    monkeypatch.setattr("sys.dont_write_bytecode", False)
    (tmp_path / "kept.py").write_text("")
    py_compile.compile(tmp_path / "kept.py")
    assert carried._compiled(tmp_path / "kept.py")
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    assert carried._compiled(tmp_path / "kept.py") is None


def test_a_class_that_a_rank_defines_comes_back_whole(kernel):
    kernel.run("def f():\n    class Local:\n        def two(self): return 2\n    return Local()")
    assert value(kernel, "[one.two() for one in launch(f, world_size=2)]") == [2, 2]


@pytest.mark.parametrize(
    "definition, expected",
    [
        (
            "class Point:\n    def __init__(self, x): self.x = x\n"
            "def f():\n    out = [None] * 2\n    dist.all_gather_object(out, Point(dist.get_rank()))\n"
            "    return [p.x for p in out]",
            [[0, 1]] * 2,
        ),
        (
            "import enum\nclass Color(enum.Enum):\n    RED = 1\n"
            "def f():\n    out = [Color.RED if dist.get_rank() else None]\n"
            "    dist.broadcast_object_list(out, src=1)\n    return out[0] is Color.RED",
            [True] * 2,
        ),
        (
            "import io\nclass Net(torch.nn.Linear): pass\n"
            "def f():\n    file = io.BytesIO()\n    torch.save(Net(1, 1), file)\n    file.seek(0)\n"
            "    return type(torch.load(file, weights_only=False)) is Net",
            [True] * 2,
        ),
        (
            "import torch.distributed.rpc as rpc\ndef double(x): return 2 * x\n"
            "def f():\n    rank = dist.get_rank()\n"
            "    rpc.init_rpc(f'w{rank}', rank=rank, world_size=2)\n"
            "    answer = rpc.rpc_sync(f'w{1 - rank}', double, args=(rank,))\n"
            "    rpc.shutdown()\n    return answer",
            [0, 2],
        ),
        (
            "import pickle, collections\nPair = collections.namedtuple('Pair', 'a b')\n"
            "def f():\n    return pickle.loads(pickle.dumps(Pair(1, 2))).b",
            [2, 2],
        ),
        (
            "total = 0\ndef add(n):\n    global total\n    total += n\n"
            "def f():\n    import __main__\n    add(3)\n    add(4)\n    return __main__.total, total",
            [[7, 7]] * 2,
        ),
        (
            "from multiprocessing import get_context\n"
            "def f():\n    with get_context('spawn').Pool(1) as pool:\n"
            "        return pool.map(abs, [-1, -2])",
            [[1, 2]] * 2,
        ),
    ],
    ids=["a class", "an enum", "a model", "RPC", "a namedtuple", "a global", "spawn"],
)
def test_main_of_a_rank_holds_what_the_notebook_defined(kernel, definition, expected):
    kernel.run(definition)
    assert value(kernel, "launch(f, world_size=2)") == expected


def test_cached_functions_travel(kernel):
    kernel.run(
        "import functools\n@functools.cache\ndef fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)\n"
        "@functools.lru_cache(maxsize=3)\ndef square(n): return n * n\n"
        "class Table:\n    @functools.cached_property\n    def big(self): return 40"
    )
    assert value(
        kernel, "launch(lambda: (fib(30), square.cache_info().maxsize, Table().big), world_size=1)"
    ) == [[832040, 3, 40]]


def test_a_module_beside_the_notebook_is_found_after_a_change_of_directory(kernel, tmp_path):
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "beside_by_test.py").write_text(f"name = {name!r}\n")
    kernel.run("def f():\n    import beside_by_test\n    return beside_by_test.name, os.getcwd()")
    for name in ("one", "other"):
        place = str(tmp_path / name)
        assert value(kernel, f"%cd -q {place}\nlaunch(f, world_size=1)") == [[name, place]]


def test_default_dtype_print_options_and_logging_travel(kernel):
    kernel.run(
        "import logging\nlogging.basicConfig(level=logging.INFO, format='%(levelname)s: %(message)s')\n"
        "torch.set_default_dtype(torch.float64)\n"
        "torch.set_printoptions(precision=2)\nnp.set_printoptions(precision=3)\n"
        "torch.use_deterministic_algorithms(True)\ntorch.set_float32_matmul_precision('high')"
    )
    kernel.run(
        "def f():\n    logging.info('ready')\n    print(torch.tensor(1 / 3), np.array([1 / 3]))\n"
        "    return (str(torch.ones(1).dtype), torch.are_deterministic_algorithms_enabled(),\n"
        "            torch.get_float32_matmul_precision())"
    )
    cell = kernel.run("launch(f, world_size=1)")
    assert cell.text.splitlines() == [
        "[rank 0] INFO: ready",
        "[rank 0] tensor(0.33) [0.333]",
        "[('torch.float64', True, 'high')]",
    ]
    kernel.run(
        "torch.set_default_dtype(torch.float32); torch.set_printoptions(profile='default')\n"
        "np.set_printoptions(precision=8); torch.use_deterministic_algorithms(False)\n"
        "torch.set_float32_matmul_precision('highest')\n"
        "logging.basicConfig(force=True, level=logging.WARNING)"
    )


def test_the_precision_of_each_of_torchs_backends_travels_and_what_is_inherited_stays_so(kernel):
    kernel.run(
        "def f():\n    b = torch.backends\n"
        "    owners = (b, b.cudnn, b.mkldnn.matmul, b.mkldnn.conv)\n"
        "    read = lambda: [one.fp32_precision for one in owners]\n"
        "    first = read()\n    b.fp32_precision = 'ieee'\n    return first, read()"
    )
    kernel.run("torch.backends.fp32_precision = 'tf32'; torch.backends.mkldnn.matmul.fp32_precision = 'bf16'")
    assert value(kernel, "launch(f, world_size=1)") == [
        [["tf32", "tf32", "bf16", "tf32"], ["ieee", "ieee", "bf16", "ieee"]]
    ]
    kernel.run("torch.backends.fp32_precision = torch.backends.mkldnn.matmul.fp32_precision = 'none'")
    assert value(kernel, "launch(f, world_size=1)")[0][0] == ["none"] * 4


def test_a_function_sets_what_torch_keeps_in_modules_of_its_own_classes(kernel):
    kernel.run(
        "def f():\n    torch.backends.cudnn.deterministic = True\n"
        "    return torch.backends.cudnn.deterministic, torch.backends.cuda.matmul.allow_tf32"
    )
    assert value(kernel, "launch(f, world_size=1)") == [[True, False]]


def test_ranks_of_a_notebook_do_not_join_a_world_that_its_environment_remembers(kernel):
    kernel.run("os.environ.update(RANK='0', WORLD_SIZE='1', MASTER_ADDR='localhost', MASTER_PORT='1')")
    assert value(kernel, "launch(dist.get_rank, world_size=2)") == [0, 1]
    kernel.run("for name in ('RANK', 'WORLD_SIZE', 'MASTER_ADDR', 'MASTER_PORT'): del os.environ[name]")


def test_a_module_that_was_edited_and_not_reloaded_is_named(kernel, tmp_path):
    module = tmp_path / "edited_by_test.py"
    module.write_text("def answer(): return 1\n")
    kernel.run(f"sys.path.insert(0, {str(tmp_path)!r})\nimport edited_by_test")
    assert value(kernel, "launch(edited_by_test.answer, world_size=1)") == [1]
    module.write_text("def answer(): return 2\n")
    os.utime(module, (time.time() + 5, time.time() + 5))
    cell = kernel.run("launch(edited_by_test.answer, world_size=1), edited_by_test.answer()")
    assert cell.text.endswith("([2], 1)")
    assert "edited_by_test.py was edited after it was imported here: ranks run the new version" in cell.text
    kernel.run("import importlib; importlib.reload(edited_by_test)")
    assert kernel.run("launch(edited_by_test.answer, world_size=1)").text == "[2]"


def test_an_array_of_400_mb_travels_as_fast_as_a_tensor(kernel):
    arrays, tensors = [], []
    kernel.run("large = np.zeros(50_000_000)\nlarge[-1] = 7\ntext = bytes(100_000_000)")
    assert value(kernel, "back, = launch(lambda x: x, large, world_size=1)\nback[-1]") == 7
    assert value(kernel, "back[0] = 1\n[back[0], large[0]]") == [1, 0]
    cell = "start = time.perf_counter()\nlaunch(lambda x: x, {}, world_size=1)\ntime.perf_counter() - start"
    for _ in range(10):  # what else the machine does can only add to either
        arrays.append(value(kernel, cell.format("large")))
        tensors.append(value(kernel, cell.format("torch.from_numpy(large)")))
        if min(arrays) < 2 * min(tensors) + 1:
            break
    assert min(arrays) < 2 * min(tensors) + 1
    assert value(kernel, "back, = launch(lambda x: x, text, world_size=1)\nlen(back)") == 100_000_000
    kernel.run("del large, text, back")


def test_variables_that_are_read_at_the_start_of_a_program_reach_ranks_even_if_set_late(kernel, tmp_path):
    """The last test of this kernel: for PYTHONHASHSEED its fork server is replaced."""
    kernel.run(
        f"os.environ.update(TMPDIR={str(tmp_path)!r}, TZ='XYZ-3', PYTHONHASHSEED='7')\n"
        "def f():\n    import tempfile, time\n    return tempfile.gettempdir(), time.tzname[0], hash('a')"
    )
    expected = value(
        kernel, "import subprocess as s\nint(s.check_output([sys.executable, '-c', 'print(hash(\"a\"))']))"
    )
    assert value(kernel, "launch(f, world_size=1)") == [[str(tmp_path), "XYZ", expected]]
