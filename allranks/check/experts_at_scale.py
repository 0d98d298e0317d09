"""The exercises of the chapter Experts in production: crossings, and routing to few nodes."""

import torch

from allranks import dispatchers
from allranks.check import exercise
from allranks.check.stubs import is_returned


def _scores(tokens, number, seed):
    """Scores without ties, most of them negative, as the logits of a router may be."""
    return torch.randn(tokens, number, generator=torch.Generator().manual_seed(seed)) - 1


@exercise
def crossings(answer):
    """`answer(chosen, home, per_node)`: copies that leave node `home`, if each node is reached once."""
    for experts, per_node, home, k in ((16, 4, 2, 8), (8, 4, 0, 2), (32, 4, 7, 8), (8, 8, 0, 3)):
        chosen = _scores(20, experts, home).topk(k).indices
        routes = [chosen.tolist() if node == home else [] for node in range(experts // per_node)]
        ways = dispatchers.hierarchical_copies, dispatchers.flat_copies
        expected, flat = (way(routes, experts, len(routes), 1)[home].between for way in ways)
        got = answer(chosen.clone(), home, per_node)
        is_returned(got)
        given = f"With {experts} experts, {per_node} to a node, and tokens on node {home}"
        away = (chosen // per_node != home).sum()
        assert int(away) == flat
        assert int(got) != flat or flat == expected, (
            f"{given}, {int(got)} copies leave if every choice is sent; experts on the same node share "
            "one copy."
        )
        assert int(got) == expected, f"{given}, {expected} copies should leave the node, not {int(got)}."
    return "One copy for each other node that a token visits."


@exercise
def few_nodes(answer):
    """`answer(scores, nodes, at_most, k)`: a token's k best experts on its best nodes, any order."""
    for tokens, experts, nodes, at_most, k in (
        (16, 16, 4, 2, 4),
        (16, 32, 8, 4, 8),
        (8, 16, 4, 4, 8),
        (8, 8, 2, 1, 3),
    ):
        scores = _scores(tokens, experts, experts + k)
        got = answer(scores.clone(), nodes, at_most, k)
        is_returned(got)
        given = f"With {experts} experts on {nodes} nodes, of which a token may visit {at_most}"
        assert tuple(got.shape) == (tokens, k), (
            f"{given}, the shape is {tuple(got.shape)}; expected {(tokens, k)}."
        )
        size = experts // nodes
        for row, ours in zip(scores.tolist(), got.tolist(), strict=True):
            visited = {expert // size for expert in ours}
            assert len(visited) <= at_most, (
                f"{given}, a token visits {len(visited)}. Does every excluded expert score below all others?"
            )
            assert sorted(ours) == _best(row, size, at_most, k), (
                f"{given}, a token chooses experts {sorted(ours)}; expected {_best(row, size, at_most, k)}."
            )
    return "The best experts on the best nodes, whatever the sign of the scores."


def _best(row, size, at_most, k):
    """A token's experts, found by sorting."""
    each = k // at_most
    nodes = range(len(row) // size)
    worth = {n: sum(sorted(row[n * size : (n + 1) * size])[-each:]) for n in nodes}
    allowed = sorted(nodes, key=worth.get)[-at_most:]
    experts = [e for n in allowed for e in range(n * size, (n + 1) * size)]
    return sorted(sorted(experts, key=row.__getitem__)[-k:])
