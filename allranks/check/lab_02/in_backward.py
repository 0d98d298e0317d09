"""Gradients that are averaged inside backward, each as soon as it is ready."""

import torch
import torch.distributed as dist

from allranks.check import exercise
from allranks.check.lab_02.common import (
    WORLDS,
    Mixed,
    Sent,
    device_of_rank,
    gradients_of,
    in_two_backwards,
    is_mean,
    tokens_of,
    told_on_ranks,
    weights_of,
)
from allranks.check.labs import drawn, is_written

HINTS = {
    "doesn't require gradient": "A hook cannot be put on a parameter that needs no gradient: skip the frozen "
    "ones.",
    "before its wait()": "An asynchronous all-reduce has to be waited for before its result is used.",
    "Invalid function argument": (
        "A function that uses a loop variable sees its last value: use the parameter that torch passes "
        "to the hook."
    ),
    "still running": "Every rank has to send the same gradients, in the same order.",
    "exited": "Every rank has to send the same gradients, in the same order.",
}


def new_model():
    torch.manual_seed(drawn(17))
    return Mixed()


@exercise
def hooks(answer):
    """`answer(model)`: from then on, each backward leaves the mean over ranks in every gradient."""
    is_written(answer)

    def on_rank():
        model = new_model().to(device_of_rank())
        before, sent = weights_of(model), []
        answer(model)
        for p in model.parameters():
            if p.requires_grad:
                p.register_post_accumulate_grad_hook(lambda _: sent[-1].append(len(counted.sums)))
        results, harmed = [], False
        for step in range(2):
            sent.append([])
            loss = model(tokens_of(dist.get_rank(), step).to(device_of_rank()))
            with Sent() as counted:
                loss.backward()
            harmed = harmed or any(p.data_ptr() in counted.places for p in model.parameters())
            others = sorted(set(counted.calls) - {"all_reduce"})
            results.append((gradients_of(model), sent[-1], len(counted.sums), others))
        dist.barrier()
        return results, not harmed and torch.equal(before, weights_of(model))

    for world_size, options in WORLDS:
        expected = in_two_backwards(new_model, world_size)
        for rank, (results, unchanged) in enumerate(
            told_on_ranks(HINTS, on_rank, world_size=world_size, **options)
        ):
            case = f"On {world_size} ranks, rank {rank}"
            assert unchanged, f"{case}: the hook averages the weights, not the gradients (p.grad)."
            for step, (gradients, sent, total, others) in enumerate(results):
                own = _own(rank, expected[0] if step else None, step)
                where = f"{case}'s gradient of {{}}{' in the second backward, which adds to it,' * step}"
                for name, mean in expected[step].items():
                    is_mean(gradients[name], mean, own[name], where.format(name), world_size)
                assert not others, (
                    f"{case}: the gradients are right, but travel by {' and '.join(others)}; an all-reduce "
                    "sends "
                    "less."
                )
                late = [k for k, count in enumerate(sent) if count <= k]
                assert len(late) < len(sent) - 1, (
                    f"{case}: the gradients are right, but none of the gradients was sent before the last "
                    "one was "
                    "ready: give each parameter a hook that sends its own."
                )
                assert not late, (
                    f"{case}: the gradients are right, but gradient {late[0] + 1} of {len(sent)} was not "
                    "sent as "
                    "soon as it was ready."
                )
                assert total <= len(sent), (
                    f"{case}: the gradients are right, but there are {total} all-reduces for {len(sent)} "
                    "gradients: some are sent more than once. (A tied weight is one parameter with two "
                    "names.)"
                )
    return "Each gradient is sent as soon as it is ready, once, and every rank has the mean."


def _own(rank, total, step):
    """The gradients that `rank` would have if nothing were sent in this backward."""
    model = new_model()
    model(tokens_of(rank, step)).backward()
    own = gradients_of(model)
    return own if total is None else {n: g if g is None else g + total[n] for n, g in own.items()}
