"""A demonstration cell of a lab prints one sentence while a task is open, and never raises."""

import pytest
import torch
import torch.distributed as dist

from allranks.check import shown as module
from allranks.check.shown import shown


def test_a_demonstration_returns_what_rank_0_returns(capfd):
    assert shown(lambda x: x + dist.get_rank(), torch.tensor(5)) == 5
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize(
    "function, sentence",
    [
        (lambda: None, "its function returns None"),
        (lambda: ..., "its function returns None"),
        (lambda: [1, None], "its function returns None"),
        (lambda: {"loss": None}, "its function returns None"),
        (lambda: None / 2, "ranks 0, 1 raised TypeError"),
    ],
)
def test_an_open_task_is_one_sentence(capfd, function, sentence):
    assert shown(function) == []
    printed, errors = capfd.readouterr()
    assert printed.startswith("✗ A task above is still open: ") and sentence in printed
    assert printed.count("\n") == 1 and errors == ""


def test_a_function_that_hangs_is_one_sentence(capfd, monkeypatch, nothing_is_left_behind):
    monkeypatch.setattr(module, "SECONDS", 2.0)
    assert shown(lambda: dist.barrier() if dist.get_rank() == 0 else dist.recv(torch.ones(1), 0)) == []
    assert "✗ A task above is still open: " in capfd.readouterr().out
