"""The exercises of the chapter Expert balance: capacity, drops and losses."""

import torch
import torch.distributed as dist

from allranks import experts, launch
from allranks.check import exercise
from allranks.check.stubs import is_returned

SECONDS = 20.0


def _scores(tokens, number, seed):
    """Scores without ties, of which the first experts get the higher ones."""
    noise = torch.randn(tokens, number, generator=torch.Generator().manual_seed(seed))
    return (noise - torch.arange(number) / 3).softmax(-1)


@exercise
def dispatch(answer):
    """`answer(scores, capacity)` marks which experts get which token: all first choices, then second ones."""
    for tokens, number, capacity in ((4, 3, 2), (6, 4, 1), (32, 8, 8), (32, 8, 0), (32, 8, 32)):
        scores = _scores(tokens, number, tokens)
        chosen = scores.topk(2).indices
        kept = torch.tensor(experts.dispatch(chosen.tolist(), number, capacity).kept)
        expected = torch.zeros(tokens, number).scatter(1, chosen, kept.float())
        given = f"With {tokens} tokens, {number} experts and room for {capacity}"
        got = answer(scores.clone(), capacity)
        is_returned(got)
        got = torch.as_tensor(got).float()
        assert got.shape == expected.shape, (
            f"{given}, the shape is {tuple(got.shape)}; expected {tuple(expected.shape)}."
        )
        most = int(got.sum(0).max())
        assert most <= capacity, f"{given}, an expert gets {most} tokens."
        wrong = (got != expected).any(1).nonzero().flatten().tolist()
        if wrong:
            token = wrong[0]
            first, second = chosen[token].tolist()
            want = [e for e, its in zip((first, second), kept[token].tolist()) if its]
            raise AssertionError(
                f"{given}, token {token} wants {first}, then {second}, and should get {want}, not "
                f"{got[token].nonzero().flatten().tolist()}. Who is served before its second choice?"
            )
    return "First choices come first, and earlier tokens before later ones."


@exercise
def nudge(answer):
    """`answer(bias, chosen, rate)`, on ranks with choices of their own, is the bias after one step."""
    number, rate = 6, 0.25
    choices = [_scores(20, number, seed).topk(2).indices for seed in range(4)]
    bias = torch.linspace(0, 1, number)

    def on_rank():
        got = answer(bias.clone(), choices[dist.get_rank()].clone(), rate)
        dist.barrier()
        return got

    load = torch.bincount(torch.cat(choices).flatten(), minlength=number).float()
    expected = bias + rate * (load.mean() - load).sign()
    results = launch(on_rank, world_size=4, timeout=SECONDS)
    for got in results:
        is_returned(got)
    alone = any(not torch.allclose(got, results[0]) for got in results)
    assert not alone, "The ranks have different biases, so a token's experts depend on its rank."
    up = bias - rate * (load.mean() - load).sign()
    assert not torch.allclose(results[0], up), (
        "That is the wrong way round: the bias of an expert with too little to do goes up."
    )
    assert torch.allclose(results[0], expected), (
        f"The bias is {[round(b, 2) for b in results[0].tolist()]}; one process with all tokens gets "
        f"{[round(b, 2) for b in expected.tolist()]}."
    )
    return "Every rank has the bias of one process that sees all tokens."
