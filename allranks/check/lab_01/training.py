"""All tasks together: one gradient of the running model, on ranks."""

import torch
import torch.distributed as dist

from allranks.check import labs
from allranks.check.lab_01.communicating import report, same_start, sum_by_node
from allranks.check.lab_01.diagnosing import logs
from allranks.check.lab_01.linking import links
from allranks.check.lab_01.measuring import all_reduce_measured
from allranks.check.lab_01.placing import my_device, my_part
from allranks.check.lab_01.scripts import main
from allranks.check.lab_01.timing import seconds_of
from allranks.check.labs import are_close, on_ranks
from allranks.model import GPT, digits, loss_of


def milestone(
    device, part, start, lines, seconds, total, script, pairs, ring, log, odd,
    measure, measurements, alpha_beta, plot, reflection,
):  # fmt: skip
    """Try every task, and then all of them together: one gradient of the running model, on ranks."""
    tokens = digits()[100:130]

    def on_rank():
        torch.manual_seed(dist.get_rank())
        model = GPT(layers=1, hidden=16, heads=2).to(device())
        start(model)
        rows = part(tokens)
        (loss_of(model, rows) * len(rows)).backward()
        gradient = total(torch.cat([p.grad.flatten() for p in model.parameters()]), 2) / len(tokens)
        return gradient, lines(str(len(rows)))

    def whole():
        torch.manual_seed(0)
        model = GPT(layers=1, hidden=16, heads=2)
        loss_of(model, tokens).backward()
        expected = torch.cat([p.grad.flatten() for p in model.parameters()])
        results = on_ranks(on_rank)
        for rank, (gradient, _) in enumerate(results):
            are_close(gradient, expected, f"The gradient on rank {rank}", rtol=1e-3)
        return f"30 examples on 4 ranks ({', '.join(results[0][1])}) give the gradient of one process."

    labs.milestone(
        [
            ("a device for each rank", my_device, device),
            ("a part for each rank", my_part, part),
            ("the same start", same_start, start),
            ("a report to rank 0", report, lines),
            ("a time that can be trusted", seconds_of, seconds),
            ("a sum by nodes", sum_by_node, total),
            ("the same under torchrun", main, script, device),
            ("the links of a machine", links, pairs, ring),
            ("what the logs say", logs, log, odd),
            (
                "an all-reduce, measured",
                all_reduce_measured,
                measure,
                measurements,
                alpha_beta,
                plot,
                reflection,
            ),
        ],
        whole,
        "the same functions run in a notebook, under torchrun, on CPUs and on GPUs.",
    )
