"""What few do with `launch`, and somebody will: odd functions, classes, files left open, odd exceptions."""

import abc
import atexit
import functools
import logging
import logging.handlers
import os
import signal
import subprocess
import sys
import threading
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from allranks import launch
from allranks.launch import RankFailed, RanksTimedOut, hints

pytestmark = pytest.mark.usefixtures("nothing_is_left_behind")


def failure(fn, *args, kind=RankFailed, **options):
    with pytest.raises(kind) as caught:
        launch(fn, *args, **{"world_size": 2, **options})
    return caught.value


# ---- functions ----


def with_rank(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        return fn(dist.get_rank(), *args, **kwargs)

    return wrapper


@with_rank
def times(rank, x):
    return rank * x


def test_a_decorator_may_add_an_argument_or_take_one():
    def loud(fn):
        @functools.wraps(fn)
        def wrapper(*args, loud=False):
            return fn(*args), loud

        return wrapper

    assert launch(times, 5, world_size=2) == [0, 5]
    assert launch(loud(abs), -1, loud=True, world_size=1) == [(1, True)]


class Later:
    async def __call__(self):
        return 1


class Many:
    def __call__(self):
        yield 1


async def later(x):
    return x


@pytest.mark.parametrize(
    "fn, name", [(Later(), "Later"), (Many(), "Many"), (functools.partial(later, 1), "later")]
)
def test_an_object_or_a_partial_that_is_called_as_a_coroutine_is_refused(fn, name):
    error = failure(fn, kind=TypeError)
    assert f"but {name} is a generator or coroutine function" in str(error)


@functools.singledispatch
def kind(x):
    return "other"


@kind.register
def _(x: list):
    return [kind(each) for each in x]


@kind.register
def _(x: torch.Tensor):
    return "tensor"


class Kinds:
    @functools.singledispatchmethod
    def of(self, x):
        return "other"

    @of.register
    def _(self, x: int):
        return "int"


def test_functions_that_dispatch_by_type_travel():
    assert launch(kind, [1, torch.ones(1)], world_size=1) == [["other", "tensor"]]
    assert launch(lambda: (kind.__name__, kind.__wrapped__(3)), world_size=1) == [("kind", "other")]
    assert launch(Kinds().of, 1, world_size=1) == ["int"]


# ---- classes: what ran when they were defined does not run again ----


class Keyed:
    def __init_subclass__(cls, *, key):
        cls.key = key


class One(Keyed, key="one"):
    pass


class Listed:
    names = []  # noqa: RUF012

    def __init_subclass__(cls):
        Listed.names.append(cls.__name__)


class Two(Listed):
    pass


class Flagging(abc.ABCMeta):
    def __new__(meta, name, bases, variables, *, flag):
        made = super().__new__(meta, name, bases, variables)
        made.flag = flag
        return made

    def __init__(cls, name, bases, variables, *, flag):
        super().__init__(name, bases, variables)


class Flagged(metaclass=Flagging, flag=3):
    pass


def test_classes_whose_bases_or_metaclass_want_keywords_travel(monkeypatch):
    for each in (Keyed, Listed):
        monkeypatch.setattr(each, "__module__", "__main__")
    assert launch(lambda: One.key, world_size=1) == ["one"]
    assert launch(lambda: Two().names, world_size=1) == [["Two"]]
    assert launch(lambda: (Flagged.flag, isinstance(Flagged(), Flagged)), world_size=1) == [(3, True)]


# ---- what is refused is found ----

lock = threading.Lock()


def helper():
    return lock


def calls_helper():
    return helper()


class Guarded:
    def __init__(self):
        self.parts = [threading.Lock()]

    def go(self):
        return 1

    def __call__(self):
        return 1


def guarded_by_default(guard=lock):
    return guard


def lazily():
    return (lambda: lock)()


def sums(x, y):
    return x + y


def counts(n):
    return (lambda: exit(n))()  # IPython's, if this were a cell


LOCK = "cannot be sent to the ranks: TypeError: cannot pickle '_thread.lock' object"


@pytest.mark.parametrize(
    "fn, message, notes",
    [
        (calls_helper, f"variable 'helper', which calls_helper uses, {LOCK}", ["it is at lock in helper()"]),
        (Guarded().go, f"variable 'self', which go uses, {LOCK}", ["it is at .parts[0]"]),
        (Guarded(), f"function 'Guarded' {LOCK}", ["it is at .parts[0]"]),
        (guarded_by_default, f"variable 'guard', which guarded_by_default uses, {LOCK}", []),
        (lazily, f"variable 'lock', which lazily uses, {LOCK}", []),
        (functools.partial(sums, lock, 2), f"variable 'x', which sums uses, {LOCK}", []),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_sent_is_named_wherever_a_function_holds_it(fn, message, notes):
    error = failure(fn, kind=TypeError)
    assert str(error) == message
    assert getattr(error, "__notes__", []) == notes


def test_exit_in_an_inner_function_is_explained(monkeypatch):
    class Exit:
        def __init__(self):
            self.shell = threading.Lock()

    monkeypatch.setitem(globals(), "exit", Exit())
    assert failure(counts, 1, kind=TypeError).__notes__ == [hints.RETURN]


def test_tensors_that_view_one_memory_as_two_dtypes_are_explained():
    x = torch.ones(2)
    assert failure(print, x, x.view(torch.int32), kind=TypeError).__notes__ == [hints.VIEWS]
    assert hints.VIEWS in failure(lambda: (x, x.view(torch.int32))).__notes__[0]


def test_a_generator_that_comes_back_is_explained():
    assert hints.LAZY in failure(lambda: (i for i in range(3))).__notes__[0]


@pytest.mark.parametrize(
    "said, hint",
    [
        (
            "argument 'x' cannot be sent: cannot pickle 'HMAC' object ._trait_values['x'] OutStream",
            "NO_NOTEBOOK",
        ),
        ("variable 'ip', which f uses, … ._trait_values['x'] ZMQInteractiveShell", "NO_NOTEBOOK"),
        ("variable 'A', which f uses, … .say, get_ipython in say().__self__._trait_values", "NO_NOTEBOOK"),
        ("argument 'args' cannot be sent: … [0].session._trait_values['auth']", "NO_NOTEBOOK"),
        ("cannot pickle 'torch._C._DispatchModule' object", "OPERATOR"),
        ("EOFError\n  getpass.py, line 148, in _raw_input", "NO_KEYBOARD"),
    ],
)
def test_the_table_knows_what_others_say(said, hint):
    assert hints.about(said) == getattr(hints, hint)


# ---- the end of a rank is the end of a program ----


def test_files_left_open_are_written_and_exit_functions_run(tmp_path, capsys):
    def leaves(folder):
        global left
        left = open(f"{folder}/text", "w")  # noqa: SIM115
        left.write("kept")
        memory = logging.handlers.MemoryHandler(100, target=logging.FileHandler(f"{folder}/log"))
        logging.getLogger("left").addHandler(memory)
        logging.getLogger("left").warning("logged")
        atexit.register(print, "the end")

    launch(leaves, tmp_path, world_size=1)
    assert (tmp_path / "text").read_text() == "kept"
    assert (tmp_path / "log").read_text() == "logged\n"
    assert capsys.readouterr().out == "[rank 0] the end\n"


def test_files_left_open_by_a_rank_that_fails_are_written(tmp_path):
    def fails(folder):
        file = open(f"{folder}/text", "w")  # noqa: SIM115
        file.write("kept")
        raise ValueError

    failure(fails, tmp_path, world_size=1)
    assert (tmp_path / "text").read_text() == "kept"


# ---- what is said of ranks that fail or stand still ----


class Unwilling(Exception):
    def __getattr__(self, name):
        raise RuntimeError(f"no {name}")


def test_an_exception_that_does_not_answer_is_named():
    def step():
        raise Unwilling("x")

    error = failure(step)
    assert str(error) == "ranks 0, 1 raised Unwilling: x"
    assert "in step\n" in error.__notes__[0]


def test_what_torchs_own_checks_say_is_the_same_at_every_run():
    def step():
        dist.reduce_scatter_single(torch.zeros(2), torch.ones(5))

    message = "Check failed: outputShape[0] * worldSize == inputShape[0] (4 vs. 5)."
    error = failure(step)
    assert str(error) == f"ranks 0, 1 raised RuntimeError: {message}"
    assert error.__notes__[0].endswith(f"\n  RuntimeError: {message}")


def test_a_mismatch_before_an_exception_is_told_with_it():
    def step():
        objects = [1] * (1 + dist.get_rank())
        dist.broadcast_object_list(objects, src=0)

    said = str(failure(step))
    assert said.startswith("rank 1 raised ")
    assert said.endswith(
        " · rank 0 entered broadcast with (1,) Long · rank 1 entered broadcast with (2,) Long"
    )


def test_a_monitored_barrier_blames_the_rank_that_did_not_come():
    def step():
        if dist.get_rank() == 2:
            time.sleep(60)
        dist.monitored_barrier(timeout=timedelta(seconds=3))

    error = failure(step, world_size=3)
    assert str(error).endswith("gave up waiting for rank 2 in monitored_barrier")
    assert error.ranks == [2]


def test_a_function_without_a_line_of_the_readers_is_said_to_have_begun():
    note = failure(time.sleep, 60, kind=RanksTimedOut, timeout=0.5).__notes__[0]
    assert note == "ranks 0, 1: in your function"
    sleeps = functools.partial(subprocess.check_call, ["sleep", "60"])
    note = failure(sleeps, kind=RanksTimedOut, timeout=3).__notes__[0]
    assert note.startswith("ranks 0, 1: in subprocess.py, line ")


def test_a_rank_that_refuses_to_say_where_it_stands_is_not_said_not_to_have_begun():
    def step():
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        sum(range(10**12))

    assert failure(step, kind=RanksTimedOut, timeout=0.5).__notes__ == ["ranks 0, 1: did not answer"]


def test_a_line_without_source_leaves_no_gap():
    names = {"dist": dist}
    exec("def step():\n  raise KeyError('k')", names)
    assert failure(names["step"]).__notes__ == [
        "ranks 0, 1 raised\n  <string>, line 2, in step\n  KeyError: 'k'"
    ]


def test_a_rank_that_closes_its_pipes_prints_nothing_of_the_launcher(capsys):
    failure(os.closerange, 3, 1000)
    assert "_report_abort" not in capsys.readouterr().out


def test_results_with_dtensors_are_warned_of_and_torch_says_nothing(caplog):
    def shards():
        from torch.distributed.tensor import Shard, distribute_tensor

        mesh = dist.device_mesh.init_device_mesh("cpu", (2,))
        return distribute_tensor(torch.arange(4.0), mesh, [Shard(0)])

    with pytest.warns(UserWarning, match="^the results hold DTensors or a DeviceMesh") as seen:
        results = launch(shards, world_size=2)
    assert seen[0].filename == __file__
    assert [t.to_local().tolist() for t in results] == [[0, 1], [2, 3]]
    assert not caplog.records


def test_output_needs_no_more_than_print_does(monkeypatch):
    class Kept:
        def __init__(self):
            self.text = ""

        def write(self, text):
            self.text += text

    kept = Kept()
    monkeypatch.setattr(sys, "stdout", kept)
    launch(print, "hello", world_size=1)
    assert kept.text == "[rank 0] hello\n"


def test_filters_of_the_root_loggers_handlers_travel(monkeypatch, capsys):
    def no_secrets(record):
        return "secret" not in record.getMessage()

    def logs():
        logging.warning("open")
        logging.warning("secret")

    handler = logging.StreamHandler()
    handler.addFilter(no_secrets)
    monkeypatch.setattr(logging.root, "handlers", [handler])
    launch(logs, world_size=1)
    assert capsys.readouterr().out == "[rank 0] open\n"
