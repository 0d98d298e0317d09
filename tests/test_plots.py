"""A figure holds what it was given."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

from allranks import plots


@pytest.fixture(autouse=True)
def closed_figures(monkeypatch):
    monkeypatch.setattr(plt, "show", lambda: None)
    yield
    plt.close("all")


def test_pictures_stand_in_rows_under_their_label():
    plots.pictures({"data": np.zeros((3, 8, 8)), "drawn": np.ones((3, 8, 8))})
    axes = plt.gcf().axes
    assert len(axes) == 6
    assert [axes[0].get_ylabel(), axes[3].get_ylabel()] == ["data", "drawn"]
    assert (axes[3].images[0].get_array() == 1).all()


def test_losses_are_lines_with_labels():
    plots.losses({"serial": [3.0, 2.0], "ranks": [3.0, 2.0]})
    (axes,) = plt.gcf().axes
    assert [line.get_label() for line in axes.lines] == ["serial", "ranks"]
    assert list(axes.lines[0].get_ydata()) == [3.0, 2.0]


def test_a_timeline_has_a_bar_for_each_phase_of_each_rank():
    bars = [(0, "forward", 0.0, 0.25), (0, "backward", 0.25, 1.0), (1, "forward", 0.0, 0.5)]
    forward, backward = plots.timeline(bars, unit="the step = 1").data
    assert (forward.name, forward.y, forward.base, forward.x) == ("forward", (0, 1), (0.0, 0.0), (0.25, 0.5))
    assert (backward.name, backward.base, backward.x) == ("backward", (0.25,), (0.75,))
