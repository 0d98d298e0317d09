"""A lab's milestone runs a check again only if its functions, or what they use, have changed."""

import importlib
import sys
import threading

import pytest

from allranks.check import exercise, labs, passed


@pytest.fixture(autouse=True)
def nothing_has_passed(monkeypatch):
    monkeypatch.setattr(passed, "_known", set())


def new_task():
    """A check, and the list of what it was given."""
    seen = []

    @exercise
    def doubles(answer):
        seen.append(answer)
        assert answer(2) == 4, "No."
        return "Twice."

    return doubles, seen


def defined(source, **names):
    """The last function that a notebook's cell defines, with other names of the notebook."""
    notebook = names | {"__name__": "__main__"}
    exec(source, notebook)
    return notebook["double"]


def milestone(task, *answers):
    labs.milestone([("twice", task, *answers)], lambda: "All.", "the end.")


DOUBLE = "def double(x):\n    return x * FACTOR"


def test_a_check_that_has_passed_is_not_run_again(capsys):
    task, seen = new_task()
    double = defined(DOUBLE, FACTOR=2)
    task(double)
    milestone(task, double)
    assert len(seen) == 1
    assert capsys.readouterr().out.splitlines()[1:] == ["✓ twice", "✓ All.", "Milestone reached: the end."]


@pytest.mark.parametrize(
    "change",
    [
        lambda double: double.__globals__.update(FACTOR=3),
        lambda double: setattr(double, "__defaults__", (1,)),
        lambda double: setattr(double, "__code__", defined("def double(x):\n    return x").__code__),
    ],
)
def test_a_function_that_has_changed_is_checked_again(capsys, change):
    task, seen = new_task()
    double = defined(DOUBLE, FACTOR=2)
    task(double)
    change(double)
    milestone(task, double)
    assert len(seen) == 2


def test_a_function_that_uses_a_changed_function_is_checked_again(capsys):
    task, seen = new_task()
    double = defined(
        "def double(x):\n    return half(x) * 4", half=defined("def double(x):\n    return x / 2")
    )
    task(double)
    double.__globals__["half"] = defined("def double(x):\n    return x / 3")
    milestone(task, double)
    assert len(seen) == 2
    assert "✗ twice" in capsys.readouterr().out


def test_what_has_failed_or_cannot_be_pickled_is_checked_again(capsys):
    task, seen = new_task()
    triple = defined(DOUBLE, FACTOR=3)
    task(triple)
    milestone(task, triple)
    locked = defined("def double(x):\n    LOCK\n    return 2 * x", LOCK=threading.Lock())
    task(locked)
    milestone(task, locked)
    assert len(seen) == 4


def test_a_function_of_a_module_that_may_be_edited_is_checked_again(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    file = tmp_path / "own_module_of_a_reader.py"
    file.write_text("def double(x):\n    return 2 * x\n")
    own = importlib.import_module(file.stem)
    monkeypatch.delitem(sys.modules, file.stem)
    monkeypatch.setitem(sys.modules, file.stem, own)
    task, seen = new_task()
    task(own.double)
    milestone(task, own.double)
    assert len(seen) == 2
