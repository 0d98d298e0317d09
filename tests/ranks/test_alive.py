"""Memory counts once, as long as something refers to it, and weights never."""

import torch

from allranks.alive import Alive


def test_memory_counts_until_it_is_freed():
    alive = Alive([])
    one = alive.note(torch.zeros(10))
    two = alive.note(torch.zeros(5))
    assert alive.nbytes == 60
    del one
    assert alive.nbytes == 20
    assert alive.note(two) is two


def test_views_of_one_memory_count_once_and_integers_and_weights_never():
    weight = torch.zeros(7)
    alive = Alive([weight[:3]])
    x = torch.zeros(4, 5)
    held = [alive.note(t) for t in (x, x[1:], x.T, weight, torch.arange(9))]
    assert alive.nbytes == 80
    assert len(held) == 5


def test_the_peak_is_the_most_that_was_looked_at():
    alive = Alive([])
    x = alive.note(torch.zeros(10))
    alive.look()
    del x
    alive.look()
    assert (alive.peak, alive.nbytes) == (40, 0)


def test_what_autograd_saves_is_alive_until_backward():
    layer = torch.nn.Linear(4, 4, bias=False)
    alive = Alive(layer.parameters())
    with alive.saved():
        y = layer(torch.ones(2, 4))
        del y
        assert alive.nbytes == 0
        y = layer(torch.ones(2, 4))
    assert alive.nbytes == 32
    y.sum().backward()
    del y
    assert alive.nbytes == 0
