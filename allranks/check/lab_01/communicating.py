"""One start, a report to rank 0, and a sum that goes through nodes."""

import torch
import torch.distributed as dist

from allranks.check import exercise
from allranks.check.labs import are_close, drawn, groups_used, hidden, is_written, on_ranks


def _model(seed):
    """A model with frozen weights, batch norm's statistics, and buffers that no state dict contains.

    One counter is above 2**24 and one buffer is in fp64: a message in fp32 rounds both.
    """
    torch.manual_seed(drawn(seed))
    model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.BatchNorm1d(5), torch.nn.Linear(5, 6))
    model[1].running_mean.normal_()
    model[1].num_batches_tracked.fill_(2**24 + 1 + 2 * seed)
    model[2].weight.requires_grad_(False)
    model.register_buffer("mask", torch.randn(3), persistent=False)
    model.register_buffer("positions", torch.rand(4, dtype=torch.float64) + 1)
    return model


def _values(model):
    """Name → value of every parameter and buffer."""
    values = dict(model.named_parameters()) | dict(model.named_buffers())
    return {name: value.detach().cpu() for name, value in values.items()}


@exercise
def same_start(answer):
    """`answer(model)` gives every rank the parameters and buffers of rank 0's model."""
    is_written(answer)

    def on_rank():
        device = "cuda" if "nccl" in dist.get_backend() else "cpu"
        model = _model(seed=10 + 7 * dist.get_rank()).to(device)
        before = list(model.parameters())
        answer(model)
        kept = all(p is q for p, q in zip(before, model.parameters(), strict=True))
        frozen = [p.requires_grad for p in model.parameters()]
        return _values(model), kept, frozen

    model = _model(seed=10)
    expected = _values(model)
    for world_size in (2, 3):
        for rank, (values, kept, frozen) in enumerate(on_ranks(on_rank, world_size=world_size)):
            assert kept, (
                f"Rank {rank} has new Parameters: an optimizer created earlier still holds the old ones."
            )
            assert frozen == [p.requires_grad for p in model.parameters()], (
                f"On rank {rank} requires_grad has changed; it should stay as it was on every parameter."
            )
            for name, value in expected.items():
                kind = "parameter" if name in dict(model.named_parameters()) else "buffer"
                hint = " It is not in the state dict." if name not in model.state_dict() else ""
                if torch.equal(values[name].float(), value.float()):
                    hint = f" It is rounded: a message in fp32 does not hold every {value.dtype}."
                assert torch.equal(values[name], value), (
                    f"Rank 0's own {kind} {name} has changed; the others should copy it.{hint}"
                    if rank == 0
                    else f"On rank {rank} the {kind} {name} differs from rank 0's.{hint}"
                )
    return "Every rank starts from rank 0's parameters and buffers."


@exercise
def report(answer):
    """`answer(line)` is the list of all ranks' lines on rank 0, and None elsewhere."""
    is_written(answer)

    for lines in (
        ["ready", "ready"],  # the same words from two ranks are two lines
        ["warm\nand ready", "", "ζ = 7 °C ", "ready " * (40 + drawn(0) % 7)],
        ["3", "2", "1"],  # in order of rank, not of words
        *hidden(lambda draw: [[str(draw.random()) for _ in range(draw.choice((4, 5)))]]),
    ):
        world_size = len(lines)
        first, *others = on_ranks(lambda words: answer(words[dist.get_rank()]), lines, world_size=world_size)
        assert first is not None, "Rank 0 returned None; it should return the list of lines."
        assert isinstance(first, list), f"Rank 0 returned {type(first).__name__}, not a list of lines."
        assert len(first) == world_size, f"Rank 0 has {len(first)} lines from {world_size} ranks."
        order = (
            "keep the order of ranks"
            if sorted(map(str, first)) == sorted(lines)
            else ("a line is any text (it may be empty, long, or not in English) and arrives as it was sent")
        )
        for rank, (line, right) in enumerate(zip(first, lines, strict=True)):
            assert line == right, (
                f"Line {rank} on rank 0 is {str(line)[:30]!r}, and rank {rank} sent {right[:30]!r}: {order}."
            )
        for rank, other in enumerate(others, start=1):
            assert other is None, f"Rank {rank} should return None; the lines are for rank 0 only."
    return "Rank 0 has a line from every rank, in order."


@exercise
def sum_by_node(answer):
    """`answer(x, per_node)` is the sum of `x` over all ranks, within nodes first."""
    is_written(answer)

    def on_rank(shape, per_node):
        device = "cuda" if "nccl" in dist.get_backend() else "cpu"
        x = numbers(*shape, dist.get_rank()).to(device)
        before, already = x.clone(), len(groups_used())
        total = answer(x, per_node)
        return total, torch.equal(x, before), groups_used()[already:]

    def numbers(rows, columns, rank):
        count = torch.arange(rows * columns).view(rows, columns)
        return 2**25 + 10 * count + rank if rows == 1 else count / 3 + 10 * rank

    more = hidden(lambda draw: [(*draw.choice(((8, 4), (8, 2), (4, 2))), (draw.randrange(2, 9), 3))])
    for world_size, per_node, shape in ((4, 2, (1, 5)), (6, 3, (7, 2)), (6, 2, (1, 1)), *more):
        expected = sum(numbers(*shape, rank) for rank in range(world_size))
        case = f"With {world_size // per_node} nodes of {per_node}"
        results = on_ranks(on_rank, shape, per_node, world_size=world_size)
        for rank, (total, unchanged, groups) in enumerate(results):
            are_close(total, expected, f"{case}, what rank {rank} returned")
            assert unchanged, f"{case}, the input of rank {rank} has changed; sum a copy of it."
            _go_through_nodes(groups, rank, world_size, per_node, f"{case}, rank {rank}")
    return "Every rank has the sum over all ranks, by groups within a node and across nodes."


def _go_through_nodes(groups, rank, world_size, per_node, who):
    """Fail unless `rank` communicates within its node first, then with its peers on other nodes."""
    first = rank - rank % per_node
    node = list(range(first, first + per_node))
    peers = list(range(rank % per_node, world_size, per_node))
    for group in groups:
        assert len(group) < world_size, (
            f"{who} sends through a group of {world_size}: no message may involve all ranks."
        )
        assert group in (node, peers), (
            f"{who} sends through the group {group}. Its node is {node}, and its peers are {peers}."
        )
    assert {tuple(node), tuple(peers)} == {tuple(group) for group in groups}, (
        f"{who} sends through {groups or 'no group'}; expected its node {node} and its peers {peers}."
    )
    assert groups[0] == node, f"{who} sums over its peers {peers} first; the sum within the node is first."
