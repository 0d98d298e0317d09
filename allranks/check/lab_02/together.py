"""The measurement, and all tasks of the lab together."""

import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F

from allranks.check import exercise, labs
from allranks.check.lab_02.bucketing import buckets
from allranks.check.lab_02.common import device_of_rank
from allranks.check.lab_02.in_backward import hooks
from allranks.check.lab_02.loading import loader
from allranks.check.lab_02.means import average_gradients, reduce_mean
from allranks.check.lab_02.overlapping import overlap
from allranks.check.lab_02.saving import checkpoint
from allranks.check.lab_02.stepping import evaluate, train_step
from allranks.check.lab_02.training import agree, fit, floats_of, trained_serially
from allranks.check.lab_02.wrapping import ddp
from allranks.check.labs import digits, on_ranks
from allranks.check.measured import by_form
from allranks.model import GPT

CAPS = (1, 10**9)  # bytes that close a bucket: each gradient alone, and all in one
TASK = (  # what the page asks, so that no sentence repeats it
    "Which bucket size is the fastest, and by which factor does it beat the slowest? "
    "How far apart are the repeats of one row? "
    "What would change with more ranks, or on a slower network?"
)


@exercise
def bucket_sizes(table, plot, reflection):
    """Seconds a step by bucket size: a table, a plot of it, and three sentences."""
    return by_form(
        table, plot, reflection, x="bucket (B)", y="step (s)", xs=CAPS, repeats=5, ratio_to=CAPS[1], task=TASK
    )


def milestone(
    mean,
    average,
    in_backward,
    packed,
    buckets_of,
    left,
    ddp_of,
    make_loader,
    in_epoch,
    step,
    score,
    save,
    load,
    trainer,
    table,
    plot,
    reflection,
):
    """Try every task, and then all of them together: the running model, trained, stopped and resumed."""
    data, held_out, batch_size, seed = digits()[900:980], digits()[1200:1230], 24, 8
    stop, end = 2, 4

    def on_rank(path, epochs):
        device = device_of_rank()
        torch.manual_seed(60 + dist.get_rank())
        model = GPT().to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        loader = make_loader(data, batch_size, seed)
        batches = [[batch.cpu() for batch in in_epoch(loader, epoch)] for epoch in range(end)]
        returned = trainer(model, optimizer, loader, held_out, epochs, 3, path)
        dist.barrier()
        return floats_of(returned), batches

    def by_hand():
        torch.manual_seed(60 + dist.get_rank())
        model = GPT().to(device_of_rank())
        ddp = ddp_of(model, 100_000)
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        losses = []
        for batch in in_epoch(make_loader(data, batch_size, seed), 0):
            tokens = batch.to(device_of_rank())
            loss = F.cross_entropy(ddp(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            ddp.finish()
            optimizer.step()
            losses.append(mean(loss).item())
        return losses

    def whole():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "last.pt")
            first = on_ranks(on_rank, path, stop)
            second = on_ranks(on_rank, path, end, world_size=2)
        epochs = [
            [torch.cat(parts) for parts in zip(*(batches[epoch] for _, batches in first), strict=True)]
            for epoch in range(end)
        ]
        torch.manual_seed(60)
        model = GPT()
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        losses, scores = trained_serially(model, optimizer, epochs, held_out)
        cut = len(losses) * stop // end
        for where, results, expected in (
            ("4 ranks", first, (losses[:cut], scores[:stop])),
            ("2 ranks, resumed", second, (losses[cut:], scores[stop:])),
        ):
            for rank, (run, _) in enumerate(results):
                assert not isinstance(run, str), f"On rank {rank} of {where} {run}."
                for what, values, right in zip(("losses", "scores"), run, expected, strict=True):
                    assert agree(values, right), (
                        f"The running model's {what} on rank {rank} of {where} differ from one process's."
                    )
        for rank, values in enumerate(on_ranks(by_hand)):
            assert agree(values, losses[: len(values)]), (
                f"With your DDP, the losses on rank {rank} differ from one process's."
            )
        return (
            f"{end} epochs of the running model, {stop} on 4 ranks and {end - stop} on 2: all {len(losses)} "
            f"losses are those of one process, from {losses[0]:.3f} to {losses[-1]:.3f}."
        )

    labs.milestone(
        [
            ("a mean over ranks", reduce_mean, mean),
            ("all gradients in one message", average_gradients, average),
            ("a hook for each gradient", hooks, in_backward),
            ("buckets", buckets, packed, buckets_of),
            ("overlap, proved", overlap, left),
            ("unused parameters and accumulation", ddp, ddp_of),
            ("a loader for ranks", loader, make_loader, in_epoch),
            ("a step with micro-batches", train_step, step),
            ("each example counts once", evaluate, score),
            ("a checkpoint", checkpoint, save, load),
            ("the trainer", fit, trainer),
            ("a measurement", bucket_sizes, table, plot, reflection),
        ],
        whole,
        "your own DDP, and a trainer that stops, resumes on other ranks, and equals one process throughout.",
    )
