"""The checks of the chapter Experts in production: crossings, and routing to few nodes."""

import torch
from verdicts import verdict

from allranks.check import experts_at_scale


def every_choice(chosen, home, per_node):
    return (chosen // per_node != home).sum()


def each_node_once(chosen, home, per_node):
    nodes = (chosen // per_node).tolist()
    return sum(len(set(visited) - {home}) for visited in nodes)


def own_node_too(chosen, home, per_node):
    return sum(len(set(visited)) for visited in (chosen // per_node).tolist())


def test_a_node_is_reached_once(capsys):
    assert verdict(capsys, experts_at_scale.crossings, each_node_once).startswith("✓")
    assert "share one copy" in verdict(capsys, experts_at_scale.crossings, every_choice)
    assert "leave the node, not" in verdict(capsys, experts_at_scale.crossings, own_node_too)
    assert "returns nothing" in verdict(capsys, experts_at_scale.crossings, lambda *given: None)


def limited(scores, nodes, at_most, k, excluded=float("-inf")):
    by_node = scores.unflatten(1, (nodes, -1))
    best = by_node.topk(k // at_most).values.sum(-1).topk(at_most).indices
    allowed = torch.zeros(len(scores), nodes, 1).scatter(1, best[..., None], 1)
    return by_node.masked_fill(allowed == 0, excluded).flatten(1).topk(k).indices


def test_the_best_experts_are_on_the_best_nodes(capsys):
    assert verdict(capsys, experts_at_scale.few_nodes, limited).startswith("✓")
    zero = verdict(capsys, experts_at_scale.few_nodes, lambda *given: limited(*given, excluded=0))
    assert "below all others" in zero
    one = verdict(capsys, experts_at_scale.few_nodes, lambda s, n, m, k: limited(s, n, m, k)[:, :1])
    assert "the shape is" in one

    def worst(scores, nodes, at_most, k):
        return limited(-scores, nodes, at_most, k)

    assert "a token chooses" in verdict(capsys, experts_at_scale.few_nodes, worst)
    assert "returns nothing" in verdict(capsys, experts_at_scale.few_nodes, lambda *given: None)
