"""Settings and fixtures that tests share."""

import os

import pytest
from kernel import leftovers

os.environ.setdefault("MPLBACKEND", "Agg")
TOKEN = leftovers.mark()  # before any test starts a process


@pytest.fixture
def nothing_is_left_behind():
    yield
    assert leftovers.gone(lambda: leftovers.ranks(TOKEN)) == {}
    assert leftovers.directories(os.getpid()) == []
