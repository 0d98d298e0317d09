"""Is the hierarchical dispatcher one process's mixture, and does it send what the arithmetic says?"""

import pytest
import torch
import torch.distributed as dist

from allranks import dispatchers, launch
from allranks.parallel.dispatchers import Hierarchical, node_groups, sent_by_link
from allranks.parallel.experts import AllToAll, Mixture, average_gradients, exchange


def new_mixture(k):
    torch.manual_seed(0)
    return Mixture(16, 8, experts=8, k=k, factor=8 / k)


def step(mixture, x):
    x = x.clone().requires_grad_()
    y = mixture(x)
    (y.pow(2).mean() + 0.01 * mixture.balance).backward()
    return y.detach(), x.grad


def on_rank(k, x, per_node):
    mixture = Hierarchical(new_mixture(k), node_groups(per_node))
    tokens = x.chunk(dist.get_world_size())[dist.get_rank()]
    y, x_grad = step(mixture, tokens)
    average_gradients(mixture)
    chosen = (mixture.gate(tokens).softmax(-1)).topk(k).indices.tolist()
    grads = mixture.gate.weight.grad, mixture.experts.up.grad, mixture.experts.down.grad
    return y, x_grad, *grads, mixture.copies, chosen


@pytest.mark.parametrize("per_node, rules", [(1, None), (2, None), (4, None), (2, "nccl")])
def test_hierarchical_dispatch_equals_one_process_and_sends_the_copies_of_the_formula(per_node, rules):
    torch.manual_seed(1)
    k, x = 4, torch.randn(64, 16)
    whole = new_mixture(k)
    parts = [step(whole, each) for each in x.chunk(4)]
    ranks = launch(on_rank, k, x, per_node, world_size=4, rules=rules)
    ys, x_grads, gates, ups, downs, copies, routes = zip(*ranks, strict=True)
    for i, got in ((0, ys), (1, x_grads)):
        torch.testing.assert_close(torch.cat(got), torch.cat([p[i] for p in parts]), rtol=1e-4, atol=1e-6)
    for gate in gates:
        torch.testing.assert_close(gate, whole.gate.weight.grad / 4, rtol=1e-4, atol=1e-7)
    torch.testing.assert_close(torch.cat(ups), whole.experts.up.grad / 4, rtol=1e-4, atol=1e-7)
    torch.testing.assert_close(torch.cat(downs), whole.experts.down.grad / 4, rtol=1e-4, atol=1e-7)
    assert list(copies) == [tuple(c) for c in dispatchers.hierarchical_copies(routes, 8, 4, per_node)]


def test_a_node_is_reached_once_and_flat_sends_a_copy_for_each_choice():
    routes = [[(4, 5, 6, 7)], [], [], []]  # a token of rank 0, all four experts on the other node
    assert dispatchers.flat_copies(routes, 8, 4, 2)[0] == (0, 4)
    assert dispatchers.hierarchical_copies(routes, 8, 4, 2) == [(0, 1), (0, 0), (1, 0), (0, 0)]


def test_one_rank_a_node_leaves_nothing_to_fan_out():
    routes = [[(0, 1, 2, 7)] * 3] * 4
    assert [c.inside for c in dispatchers.hierarchical_copies(routes, 8, 4, 1)] == [0] * 4


def bytes_on_rank(x):
    rank, (inside, _) = dist.get_rank(), node_groups(2)
    with sent_by_link(2) as sent:
        AllToAll.apply(x.chunk(4)[rank], [1, 2, 3, 4], [1 + rank] * 4, None)
        exchange(torch.ones(2, dtype=torch.int64), group=inside)
    return sent, dist.all_to_all_single.__name__


def test_bytes_are_counted_on_the_link_that_they_take():
    ranks = launch(bytes_on_rank, torch.ones(40, 5), world_size=4)
    rows = [(2, 7), (1, 7), (4, 3), (3, 3)]  # to the other rank of the node, and to the other node
    for (sent, name), (near, far) in zip(ranks, rows, strict=True):
        assert sent == {"inside": near * 20 + 8, "between": far * 20, "messages": 4}
        assert name == "all_to_all_single"
