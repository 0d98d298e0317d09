"""One start, a report to rank 0, and a sum that goes through nodes."""

import tempfile

import torch
import torch.distributed as dist

from allranks.check import exercise
from allranks.check.labs import are_close, drawn, is_written, on_ranks
from allranks.launch import recorder


def _model(seed):
    """A model with frozen weights, batch norm's statistics, and a buffer that no state dict contains."""
    torch.manual_seed(drawn(seed))
    model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.BatchNorm1d(5), torch.nn.Linear(5, 6))
    model[1].running_mean.normal_()
    model[1].num_batches_tracked.fill_(seed)
    model[2].weight.requires_grad_(False)
    model.register_buffer("mask", torch.randn(3), persistent=False)
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
                assert torch.equal(values[name], value), (
                    f"Rank 0's own {kind} {name} has changed; the others should copy it."
                    if rank == 0
                    else f"On rank {rank} the {kind} {name} differs from rank 0's.{hint}"
                )
    return "Every rank starts from rank 0's parameters and buffers."


@exercise
def report(answer):
    """`answer(line)` is the list of all ranks' lines on rank 0, and None elsewhere."""
    is_written(answer)

    def on_rank(words):
        return answer(f"rank {dist.get_rank()} {'has much to say ' * (words * dist.get_rank())}")

    for world_size, words in ((2, 1), (4, 3)):
        expected = [f"rank {rank} {'has much to say ' * (words * rank)}" for rank in range(world_size)]
        first, *others = on_ranks(on_rank, words, world_size=world_size)
        assert first is not None, "Rank 0 returned None; it should return the list of lines."
        assert isinstance(first, list | tuple), (
            f"Rank 0 returned {type(first).__name__}, not a list of lines."
        )
        assert len(first) == world_size, f"Rank 0 has {len(first)} lines from {world_size} ranks."
        for rank, (line, right) in enumerate(zip(first, expected, strict=True)):
            assert line == right, (
                f"Line {rank} on rank 0 is not the one that rank {rank} sent: keep the order of ranks."
            )
        for rank, other in enumerate(others, start=1):
            assert other is None, f"Rank {rank} should return None; the lines are for rank 0 only."
    return "Rank 0 has a line from every rank, in order."


def _groups_used():
    """The ranks of the group of every collective that this process has entered, from any thread."""
    with tempfile.NamedTemporaryFile() as file:
        recorder.write(file.name)
        calls = recorder.read(file.name).calls
    everyone = range(dist.get_world_size())
    members = [everyone if call.members == "all" else call.members for call in calls if call.members]
    return [sorted(ranks) for ranks in members]


@exercise
def sum_by_node(answer):
    """`answer(x, per_node)` is the sum of `x` over all ranks, within nodes first."""
    is_written(answer)

    def on_rank(count, per_node):
        device = "cuda" if "nccl" in dist.get_backend() else "cpu"
        x = torch.arange(float(count), device=device) + 10 * dist.get_rank()
        before, already = x.clone(), len(_groups_used())
        total = answer(x, per_node)
        return total, torch.equal(x, before), _groups_used()[already:]

    for world_size, per_node, count in ((4, 2, 5), (6, 3, 7), (6, 2, 1)):
        x = torch.arange(float(count))
        expected = sum(x + 10 * rank for rank in range(world_size))
        case = f"With {world_size // per_node} nodes of {per_node}"
        results = on_ranks(on_rank, count, per_node, world_size=world_size)
        for rank, (total, unchanged, groups) in enumerate(results):
            are_close(total, expected, f"{case}, what rank {rank} returned")
            assert unchanged, f"{case}, the input of rank {rank} has changed; sum a copy of it."
            _go_through_nodes(groups, rank, world_size, per_node, f"{case}, rank {rank}")
    return "The sum over all ranks, by groups within a node and across nodes."


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
