"""`launch` in real Jupyter kernels: what cells define, what cells show, and what ends with the kernel."""

import json
import os
import time

import IPython
import pytest
from kernel import Kernel, leftovers

IMPORTS = "from allranks import launch, progress\nimport torch, torch.distributed as dist, os, time"
READY = "launch(dist.get_rank, world_size=2)"


def new_kernel(**environment):
    """A kernel whose processes carry a token of their own: `kernel.left()` finds what is left of them."""
    token = f"{os.getpid()}-{time.time_ns()}"
    kernel = Kernel(timeout=600, **{leftovers.TOKEN: token, **environment})
    kernel.left = lambda: leftovers.processes(token)
    return kernel


@pytest.fixture(scope="module")
def kernel():
    with new_kernel(ALLRANKS_OUTPUT="ordered") as kernel:
        assert kernel.run(IMPORTS).error is None
        assert kernel.run(READY).text == "[0, 1]"
        yield kernel
    assert leftovers.gone(kernel.left, seconds=60) == {}


BEGIN = """
import sys, threading, traceback

def begin():
    open(f"{folder}/{dist.get_rank()}", "w").close()

def begin_in(function):
    def watch(thread):
        names = ()
        while function not in names:
            time.sleep(0.01)
            names = [f.f_code.co_name for f, _ in traceback.walk_stack(sys._current_frames()[thread])]
        begin()
    threading.Thread(target=watch, args=[threading.get_ident()], daemon=True).start()
"""


def begun(kernel, folder, cell, ranks=2):
    """Start a cell whose function calls `begin` on each rank; return when all have.

    `begin_in` waits, in a thread, until the calling one is in a function of that name.
    """
    kernel.run(f"folder = {str(folder)!r}\n" + BEGIN)
    request = kernel.begin(cell)
    assert not leftovers.gone(lambda: len(list(folder.iterdir())) < ranks, seconds=600)
    time.sleep(0.1)  # what else there is to end may have begun
    return request


def shown(cell):
    """What a reader sees of a cell that raised."""
    assert cell.error is not None, cell.text
    return "\n".join(cell.error["traceback"])


def test_what_cells_define_travels_and_comes_back(kernel):
    kernel.run("scale = 3\nclass Point:\n    def __init__(self, x): self.x = x")
    kernel.run(
        "def make():\n    offset = 1\n    def f(x):\n"
        "        return Point(x * scale + offset + dist.get_rank())\n    return f"
    )
    cell = kernel.run(
        "points = launch(make(), 2, world_size=2)\n[type(p) is Point for p in points], points[1].x"
    )
    assert cell.text == "([True, True], 8)"


@pytest.mark.stamped(None)
def test_an_error_shows_the_lines_of_the_cell_and_nothing_of_the_launcher(kernel):
    kernel.run("class Unusual(Exception): pass")
    cell = kernel.run(
        "def step(x):\n    if dist.get_rank() == 1:\n        raise Unusual('not today')\n"
        "    dist.barrier()\n\nlaunch(step, 1)"
    )
    number = kernel.run("len(In) - 2").text
    assert cell.error["ename"] == "RankFailed"
    assert cell.error["evalue"] == "rank 1 raised Unusual: not today"
    assert shown(cell) == (
        "RankFailed: rank 1 raised Unusual: not today\n"
        f"ranks 0, 2, 3: Cell In[{number}], line 4, in step, waiting in barrier\n"
        "rank 1 raised\n"
        f"  Cell In[{number}], line 3, in step\n"
        "    raise Unusual('not today')\n"
        "  Unusual: not today"
    )


def test_an_exception_of_torch_is_shown_with_the_line_of_torch_that_raised_it(kernel):
    cell = kernel.run("def bad():\n    torch.nn.Linear(2, 2)(torch.ones(3))\nlaunch(bad, world_size=2)")
    lines = shown(cell).splitlines()
    assert lines[1] == "ranks 0, 1 raised"
    assert lines[2].endswith(", line 2, in bad")
    assert lines[3] == "    torch.nn.Linear(2, 2)(torch.ones(3))"
    assert lines[4].startswith("  torch/nn/modules/linear.py, line ")
    assert lines[5] == "  RuntimeError: mat1 and mat2 shapes cannot be multiplied (1x3 and 2x2)"
    assert len(lines) == 6


def test_a_deadlock_shows_the_line_on_which_each_rank_waits(kernel):
    kernel.run("def exchange():\n    peer = 1 - dist.get_rank()\n    dist.recv(torch.empty(1), src=peer)")
    cell = kernel.run("launch(exchange, world_size=2, timeout=0.5)")
    number = kernel.run("len(In) - 3").text
    assert shown(cell) == (
        "RanksTimedOut: ranks 0, 1 were still running after 0.5 s\n"
        f"ranks 0, 1: Cell In[{number}], line 3, in exchange, waiting in recv"
    )


def test_a_kernel_that_computed_with_many_threads_and_draws_can_launch(kernel):
    kernel.run("import matplotlib.pyplot as plt\nplt.plot([1, 2]); plt.close()\ntorch.set_num_threads(8)")
    kernel.run("m = torch.randn(500, 500)\nfor _ in range(10): m = (m @ m).tanh()")
    cell = kernel.run("[t.shape for t in launch(lambda: m @ m, world_size=2)]")
    assert cell.text == "[torch.Size([500, 500]), torch.Size([500, 500])]"


def test_autoreload_reaches_the_ranks(kernel, tmp_path):
    module = tmp_path / "reloaded_by_test.py"
    module.write_text("def answer():\n    return 1\n")
    kernel.run(f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n%load_ext autoreload\n%autoreload 2")
    assert kernel.run("import reloaded_by_test\nlaunch(reloaded_by_test.answer, world_size=1)").text == "[1]"
    module.write_text("def answer():\n    return 'two'\n")
    assert kernel.run("launch(reloaded_by_test.answer, world_size=1)").text == "['two']"


@pytest.mark.stamped(None)
def test_an_interrupt_ends_a_deadlock_at_once_and_the_next_launch_works(kernel, tmp_path):
    kernel.run("def wait():\n    begin_in('recv')\n    dist.recv(torch.empty(1), src=1 - dist.get_rank())")
    request = begun(kernel, tmp_path, "launch(wait, world_size=2, timeout=1_000)")
    start = time.monotonic()
    kernel.interrupt()
    cell = kernel.finish(request)
    assert time.monotonic() - start < 500  # the deadline is after 1,000 s
    assert shown(cell).splitlines()[0] == "Interrupted: all ranks were ended"
    assert shown(cell).endswith("line 3, in wait, waiting in recv")
    assert kernel.run(READY).text == "[0, 1]"


ENDS = ("Interrupted", "KeyboardInterrupt", "RanksTimedOut")
if IPython.version_info < (8,):
    ENDS += ("TypeError",)  # IPython 7's own, when it is interrupted while it formats a traceback


def test_interrupts_however_many_and_whenever_leave_nothing(kernel):
    kernel.run("from allranks.launch import standby")
    for attempt in range(12):
        request = kernel.begin("launch(time.sleep, 60, world_size=2, timeout=2)")
        time.sleep(0.02 * attempt)
        for _ in range(5):
            kernel.interrupt()
            time.sleep(0.025)
        cell = kernel.finish(request)  # or ipykernel was interrupted before it came to the cell
        assert cell.error is None or cell.error["ename"] in ENDS
    assert kernel.run(READY + "; standby.end()").error is None
    assert not leftovers.gone(lambda: len(kernel.left()) > 2, seconds=60), kernel.left()  # and fork server
    assert leftovers.gone(lambda: leftovers.directories(kernel.pid), seconds=60) == []


def test_forty_launches_leave_nothing_in_the_kernel(kernel):
    """A thousand did not either: 70 descriptors and 9 threads before and after, and 0.2 MB more memory."""
    count = "[len(os.listdir('/proc/self/fd')), threading.active_count()]"
    kernel.run(f"import threading\nfrom allranks.launch import standby\nfor _ in range(3): {READY}")
    descriptors, threads = json.loads(kernel.run(count).text)
    kernel.run(f"for _ in range(40): {READY}")
    now = json.loads(kernel.run(count).text)
    assert now[0] < descriptors + 10 and now[1] <= threads
    kernel.run("standby.end()")
    assert not leftovers.gone(lambda: len(kernel.left()) > 2, seconds=60), kernel.left()  # and fork server
    assert leftovers.gone(lambda: leftovers.directories(kernel.pid), seconds=60) == []


def test_a_fork_server_that_was_killed_is_replaced(kernel):
    kernel.run("from allranks.launch import server")
    kernel.run("os.kill(server.pid(), 9)\nos.waitid(os.P_PID, server.pid(), os.WEXITED | os.WNOWAIT)")
    cell = kernel.run(READY)
    assert (cell.text, cell.error) == ("[0, 1]", None)


def test_a_first_optimizer_in_the_kernel_costs_no_new_fork_server(kernel):
    kernel.run("from allranks.launch import server\nos.environ.pop('TORCHINDUCTOR_CACHE_DIR', None)")
    kernel.run(READY)
    before = kernel.run("server.pid()").text
    kernel.run("torch.optim.AdamW([torch.zeros(1)])")  # imports torch's compiler
    assert kernel.run("'TORCHINDUCTOR_CACHE_DIR' in os.environ").text == "True"  # which sets this
    assert kernel.run(READY).text == "[0, 1]"
    assert kernel.run("server.pid()").text == before


def test_a_fork_server_that_is_killed_takes_its_ranks_with_it_and_is_named(kernel):
    kernel.run("from allranks.launch import server")
    kernel.run(READY)
    kernel.run(
        "def f(pid):\n    dist.barrier()\n    if dist.get_rank() == 0: os.kill(pid, 9)\n    time.sleep(1000)"
    )
    cell = kernel.run("launch(f, server.pid(), world_size=2, timeout=1000)")
    assert cell.seconds < 500
    assert (
        cell.error["evalue"]
        == "ranks 0, 1 ended with the process that they were forked from, which was killed"
    )
    assert kernel.run(READY).text == "[0, 1]"


def test_two_executions_show_the_same_bytes():
    cells = [
        IMPORTS,
        "def hello(x):\n    t = torch.ones(2) * x\n    dist.all_reduce(t)\n    print(t)\n    return t",
        "launch(hello, 2)",
        "for _ in progress(range(3)): pass",
        "def hurt():\n    if dist.get_rank() == 2: os._exit(3)\n    hello(1)\n\nlaunch(hurt)",
        "def uneven():\n    dist.all_reduce(torch.ones(3 + dist.get_rank() // 3))\n\nlaunch(uneven)",
        "launch(time.sleep, 60, timeout=0.3)",
        "launch(lambda: object().x)",
    ]

    def execute():
        with new_kernel(ALLRANKS_OUTPUT="ordered") as kernel:
            return [(cell.text, cell.error) for cell in map(kernel.run, cells)]

    first = execute()
    assert [error and error["ename"] for _, error in first] == [
        *[None] * 4,
        *["RankFailed"] * 2,
        "RanksTimedOut",
        "RankFailed",
    ]
    assert first == execute()
    assert not any(os.sep + "tmp" in str(cell) or "127.0.0.1" in str(cell) for cell in first)


def test_lines_appear_while_the_ranks_run(tmp_path):
    with new_kernel(PYTEST_VERSION=None) as kernel:
        kernel.run(f"{IMPORTS}\nseen = {str(tmp_path / 'seen')!r}")
        request = kernel.begin(
            "def f():\n    print('first')\n    while not os.path.exists(seen): time.sleep(0.01)\n"
            "    print('last')\nlaunch(f, world_size=1);"
        )
        while "first" not in (shown := kernel.client.get_iopub_msg(timeout=600)["content"]).get("text", ""):
            assert "traceback" not in shown, shown
        assert shown["text"] == "[rank 0] first\n"
        (tmp_path / "seen").touch()
        assert kernel.finish(request).text == "[rank 0] last\n"


def test_importing_allranks_starts_the_fork_server_in_a_kernel_without_importing_torch():
    with new_kernel() as kernel:
        cell = kernel.run(
            "import allranks, sys\nfrom allranks.launch import server\n"
            "server.pid() is not None, 'torch' in sys.modules"
        )
        assert cell.text == "(True, False)"


def test_an_interrupt_while_the_fork_server_loads_does_no_harm():
    with new_kernel() as kernel:
        kernel.run("import os, signal, torch\nfrom allranks.launch import launch, server")
        kernel.run("os.kill(server.pid(), signal.SIGSTOP)")  # it loads until it may go on
        begun = kernel.begin("launch(print, 'hello', world_size=2)")
        assert not leftovers.gone(lambda: not leftovers.directories(kernel.pid), seconds=60)
        kernel.interrupt()
        cell = kernel.finish(begun)  # an interrupt raises as usual while `launch` still writes `print` down
        assert cell.error["ename"] == "KeyboardInterrupt" or shown(cell) == "Interrupted: no rank was started"
        kernel.run("os.kill(server.pid(), signal.SIGCONT)")
        cell = kernel.run("launch(len, 'abc', world_size=2)")
        assert cell.text == "[3, 3]"
    assert leftovers.gone(kernel.left, seconds=60) == {}


def test_two_kernels_launch_at_the_same_time():
    with new_kernel() as one, new_kernel() as other:
        for kernel in (one, other):
            kernel.run(IMPORTS)
        for _ in range(5):
            begun = [(kernel, kernel.begin(READY)) for kernel in (one, other)]
            assert [kernel.finish(cell).text for kernel, cell in begun] == ["[0, 1]", "[0, 1]"]


@pytest.mark.parametrize(
    "body, kill",
    [
        ("time.sleep(600)", Kernel.kill),
        ("import subprocess; subprocess.run(['sleep', '600'])", Kernel.kill),
        ("import subprocess; subprocess.run(['sleep', '600'])", Kernel.kill_group),
        ("import ctypes; ctypes.PyDLL(None).sleep(600)", Kernel.kill_group),
        ("next(iter(torch.utils.data.DataLoader(Slow(), num_workers=2)))", Kernel.kill),
    ],
    ids=[
        "asleep",
        "with a subprocess",
        "with a subprocess, by Jupyter",
        "in C code that holds the interpreter, by Jupyter",
        "with DataLoader workers",
    ],
)
def test_nothing_outlives_a_kernel_that_is_killed(body, kill, tmp_path):
    with new_kernel() as kernel:
        kernel.run(IMPORTS)
        kernel.run(
            "class Slow(torch.utils.data.Dataset):\n    def __len__(self): return 9\n"
            "    def __getitem__(self, i): time.sleep(60)"
        )
        kernel.run(f"def f():\n    begin(); {body}")
        begun(kernel, tmp_path, "launch(f, world_size=2)")
        assert len(kernel.left()) >= 5  # the kernel, the fork server, a keeper, two ranks
        pid = kernel.pid
        assert leftovers.directories(pid) != []
        kill(kernel)
        assert leftovers.gone(kernel.left, seconds=60) == {}
        assert leftovers.gone(lambda: leftovers.directories(pid), seconds=60) == []
