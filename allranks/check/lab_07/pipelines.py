"""The order of a 1F1B stage, and a pipeline of small stages that equals one process."""

import torch
import torch.distributed as dist

from allranks.check import exercise
from allranks.check.lab_07.common import agreed, drawn, must, must_be, on_ranks
from allranks.check.labs import is_written
from allranks.launch import LaunchError

REFUSED = "torch refuses the peers of exchange"


def _right_order(stage, stages, microbatches):
    """Simulate the rule: a stage runs forward while fewer than stages - stage micro-batches are alive."""
    order, forwards, backwards = [], 0, 0
    while backwards < microbatches:
        if forwards < microbatches and forwards - backwards < stages - stage:
            order.append(("F", forwards))
            forwards += 1
        else:
            order.append(("B", backwards))
            backwards += 1
    return order


def _judge(one_f_one_b, exchange, run, weights, inputs):
    with agreed():
        for stages, microbatches in (1, 3), (4, 2), (4, 7), (4, 4):
            for stage in range(stages):
                _must_be_order(one_f_one_b, stage, stages, microbatches)
    # A stage's number is not its rank: even ranks are one pipeline, odd ranks are another.
    groups = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    me, stage = dist.get_rank() % 2, dist.get_rank() // 2
    _judge_exchange(exchange, inputs[0][0], groups[me], stage)
    everything = [w.clone().requires_grad_() for w in weights]
    right = sum(_loss(_layer(_layer(x, everything[0]), everything[1])) for x in inputs[me])
    right.backward()
    weight, done = weights[stage].clone().requires_grad_(), []

    def compute(k, x):
        done.append(("F", k))
        y = _layer(inputs[me][k] if x is None else x, weight)
        y = y if stage == 0 else _loss(y)
        y.register_hook(lambda _: done.append(("B", k)))
        return y

    order = _right_order(stage, 2, len(inputs[me]))
    with agreed():
        loss = run(list(order), compute, torch.empty_like(inputs[me][0]), groups[me])
        must(torch.is_tensor(loss), f"run returns {type(loss).__name__}; expected a tensor.")
        expected = right.detach() if stage == 1 else torch.zeros(())
        must_be(loss, expected, f"The loss of stage {stage}", "The last stage has it, and the others 0.")
        must(done == order, f"run has done {_said(done)}; expected the list, {_said(order)}.")
        must(weight.grad is not None, "the stage's weight has no gradient; expected one.")
        why = "Each backward takes the gradient that came for its own micro-batch."
        must_be(weight.grad, everything[stage].grad, f"The gradient of stage {stage}", why)


def _must_be_order(one_f_one_b, stage, stages, microbatches):
    """Refuse another list than that of 1F1B."""
    found = one_f_one_b(stage, stages, microbatches)
    must(isinstance(found, list | tuple), f"one_f_one_b returns {found!r}; expected a list.")
    expected = _right_order(stage, stages, microbatches)
    found = [tuple(one) if isinstance(one, list | tuple) else one for one in found]
    must(
        found == expected,
        f"one_f_one_b for stage {stage} of {stages} with {microbatches} micro-batches differs at "
        f"position {_differs(found, expected)}; expected {_said(expected)}.",
    )


def _judge_exchange(exchange, like, group, stage):
    """Two ranks of a group exchange their numbers at once; then one sends, and then nobody."""
    for to, source in ([1 - stage] * 2, (1, None) if stage == 0 else (None, 0), (None, None)):
        mine = torch.full_like(like, dist.get_rank())
        with agreed():
            found = _exchanged(exchange, mine if to is not None else None, to, source, like, group)
            if source is None:
                must(found is None, f"exchange returns {type(found).__name__}; expected None.")
            else:
                peer = dist.get_global_rank(group, source)
                why = f"Rank {source} of the group is rank {peer} of the world."
                must_be(found, torch.full_like(like, peer), "What exchange returns", why)


def _exchanged(exchange, *args):
    """What `exchange` returns; where torch refuses its peers, an error that `pipeline` explains."""
    try:
        return exchange(*args)
    except ValueError as error:
        raise RuntimeError(REFUSED) from error


def _said(order):
    return " ".join(f"{kind}{k}" for kind, k in order)


def _differs(found, expected):
    pairs = zip(found, expected, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(found), len(expected)))


def _layer(x, weight):
    return torch.tanh(x @ weight)


def _loss(y):
    return y.square().mean()


@exercise
def pipeline(one_f_one_b, exchange, run):
    """`one_f_one_b`, `exchange` and `run`: two pipelines of two stages, under NCCL's rules."""
    is_written(one_f_one_b, exchange, run)
    try:
        on_ranks(_judge, one_f_one_b, exchange, run, drawn(2, 6, 6), drawn(2, 5, 3, 6), world_size=4)
    except LaunchError as failure:
        if REFUSED not in str(failure):
            raise
        raise AssertionError(
            "torch refuses the messages of `exchange`. `to` and `source` are numbers in `group`: give them "
            "to P2POp as `group_peer`, next to `group`. As `peer` it takes ranks of the world."
        ) from failure
    return "Every stage runs 1F1B, and two pipelines have the loss and gradients of one process."
