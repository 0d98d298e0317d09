"""What autograd keeps for backward is counted once, without the weights."""

import torch
from torch import nn

from allranks.kept import kept_by, kept_over_time


def test_a_linear_layer_keeps_its_input_and_not_its_weight():
    layer, x = nn.Linear(8, 4), torch.randn(3, 8, requires_grad=True)
    kept, y = kept_by(lambda: layer(x), layer.parameters())
    assert kept == x.nbytes and torch.equal(y, layer(x))


def test_a_tensor_that_two_operations_keep_counts_once():
    x = torch.randn(3, 8, requires_grad=True)
    kept, _ = kept_by(lambda: x.sin() + x.cos(), ())
    assert kept == x.nbytes


def test_statistics_of_a_norm_are_left_out_on_request():
    norm, x = nn.LayerNorm(8), torch.randn(3, 8, requires_grad=True)
    both = [kept_by(lambda: norm(x), norm.parameters(), statistics=each)[0] for each in (True, False)]
    assert both == [x.nbytes + 2 * 3 * 4, x.nbytes]


def test_what_is_kept_over_time_rises_in_forward_and_falls_to_nothing_in_backward():
    layers, x = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)), torch.randn(3, 8, requires_grad=True)
    with kept_over_time(layers.parameters()) as kept:
        y = layers(x)
        assert kept.history == [0, x.nbytes, 2 * x.nbytes]
        y.sum().backward()
    assert kept.history == [0, x.nbytes, 2 * x.nbytes, x.nbytes, 0]


def test_a_tensor_that_two_operations_keep_is_released_by_the_second():
    x = torch.randn(3, 8, requires_grad=True)
    with kept_over_time(()) as kept:
        (x.sin() + x.cos()).sum().backward()
    assert kept.history == [0, x.nbytes, 0]


def test_statistics_are_left_out_of_what_is_kept_over_time_on_request():
    norm, x = nn.LayerNorm(8), torch.randn(3, 8, requires_grad=True)
    with kept_over_time(norm.parameters(), statistics=False) as kept:
        norm(x).sum().backward()
    assert max(kept.history) == x.nbytes
