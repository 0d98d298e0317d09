"""How many copies of its tokens does a rank send inside its node and between nodes, to reach their experts?

The model: `ranks` ranks in nodes of `per_node`, experts spread over them in equal parts, in order. Flat: a
copy for each choice goes straight to the expert's rank. Hierarchical (DeepSeek-V3, section 3.2.2): one copy
for each other node that a token visits goes to the rank with the same place there, which sends one on to each
other rank of its node that has an expert of the token. Bytes are copies times the bytes of a token.
"""

from collections import namedtuple

from .inputs import multiple, whole

Copies = namedtuple("Copies", "inside between")
"""What a rank sends: copies of tokens to ranks of its node, and to those of other nodes."""


def _homes(routes, experts, ranks):
    part = multiple("experts", experts, "ranks", whole("ranks", ranks)) // ranks
    return [[[expert // part for expert in chosen] for chosen in of_rank] for of_rank in routes]


def flat_copies(routes, experts, ranks, per_node):
    """`Copies` of each rank if every choice is sent straight to the rank of its expert.

    routes: for each rank, the experts of each of its tokens.
    """
    multiple("ranks", ranks, "per_node", whole("per_node", per_node))
    made = []
    for rank, tokens in enumerate(_homes(routes, experts, ranks)):
        away = [home for homes in tokens for home in homes if home != rank]
        inside = sum(home // per_node == rank // per_node for home in away)
        made.append(Copies(inside, len(away) - inside))
    return made


def hierarchical_copies(routes, experts, ranks, per_node):
    """`Copies` of each rank if a token is sent once to each node it visits, and fanned out there."""
    multiple("ranks", ranks, "per_node", whole("per_node", per_node))
    inside, between = [0] * ranks, [0] * ranks
    for rank, tokens in enumerate(_homes(routes, experts, ranks)):
        for homes in tokens:
            for node in {home // per_node for home in homes}:
                landing = node * per_node + rank % per_node
                between[rank] += landing != rank
                visited = {home for home in homes if home // per_node == node}
                inside[landing] += len(visited - {landing})
    return [Copies(*copies) for copies in zip(inside, between)]
