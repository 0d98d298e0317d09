"""All tasks together: chosen, configured, offloaded, trained, consolidated, equal to one process."""

import os
import random
import tempfile

import torch
import torch.distributed as dist

from allranks import memory
from allranks.check import labs
from allranks.check.lab_05.budgets import CANDIDATES, choose, needs
from allranks.check.lab_05.checkpoints import checkpoint
from allranks.check.lab_05.common import (
    RANKS,
    SIZES,
    engine_of,
    new_adam,
    new_batches,
    new_gpt,
    on_ranks,
    quietly,
    same,
    train,
    trained_alone,
)
from allranks.check.lab_05.configurations import configuration, offload
from allranks.check.lab_05.files import nvme
from allranks.check.lab_05.huggingface import alone, broken, fit, losses_of, new_arguments, repaired
from allranks.check.lab_05.measuring import steps_measured
from allranks.check.lab_05.states import SECTIONS, bytes_held, excess
from allranks.model import GPT

STEPS = 4


def _together(pieces, budget, adam, batches, folder, arguments, tokens):
    """On this rank, with the reader's functions: what was chosen, held and lost."""
    choice, configured, offloaded, in_file, held, save, repair = pieces
    zero = choice([dict(c) for c in CANDIDATES], *budget)
    config = configured(zero["stage"], 2, 2, adam)
    if len(zero) > 1:
        config = offloaded(config)
    engine = engine_of(new_gpt(), config)
    losses = train(engine, batches[:2])
    in_file(engine.optimizer.optimizer, os.path.join(folder, f"moments_{dist.get_rank()}"))
    losses += train(engine, batches[2:])
    with quietly():
        save(engine, os.path.join(folder, "saved"))
    dist.barrier()
    sixteen = engine_of(new_gpt(), configured(zero["stage"], 2, 2, adam) | {"bf16": {"enabled": True}})
    train(sixteen, batches[:1])
    here = held(sixteen)
    trainer = fit(repair(broken()["a missing line"]), arguments, tokens, folder)
    return zero, losses, here, losses_of(trainer)


def milestone(
    configured, predicted, held, explained, offloaded, to_nvme, in_file, repair, save, consolidated, choice,
    table, plot, reflection,
):  # fmt: skip
    """Try every task, and then all of them: a budget becomes a run, and the run plain 16-bit weights."""

    def whole():
        psi = sum(p.numel() for p in GPT(**SIZES).parameters())
        there = needs(CANDIDATES[5], psi, RANKS)
        seconds = random.choice([2.0, 8.0])
        budget = psi, RANKS, there.device, there.host, there.traffic.link / seconds, seconds
        adam, batches, arguments = new_adam(), new_batches(8, STEPS), new_arguments()
        tokens = new_batches(36, 1)[0]
        expected, model = trained_alone(batches, adam)
        pieces = choice, configured, offloaded, in_file, held, save, repair
        with tempfile.TemporaryDirectory() as folder:
            ranks = on_ranks(_together, pieces, budget, adam, batches, folder, arguments, tokens)

            def plain():
                with quietly():
                    return consolidated(os.path.join(folder, "saved"), torch.bfloat16)

            weights = on_ranks(plain, world_size=1)[0]
        foretold = predicted(psi, RANKS, ranks[0][0]["stage"])
        for rank, (zero, losses, here, fitted) in enumerate(ranks):
            assert zero == CANDIDATES[5], (
                f"Rank {rank} chose {zero}; expected stage 2 with its optimizer on cpu, which fits."
            )
            assert same(losses, expected), (
                f"Rank {rank}: the last loss is {losses[-1]:.5f}; one process has {expected[-1]:.5f}."
            )
            assert all(abs(a - b) <= 64 * 4 for a, b in zip(here, foretold, strict=True)), (
                f"Rank {rank} holds {here} bytes; {foretold} were predicted."
            )
            assert same(fitted, alone(tokens, arguments)), (
                f"Rank {rank}: the Trainer's losses differ from one process's."
            )
        loaded = new_gpt(seed=3).bfloat16()
        loaded.load_state_dict(weights)
        for (name, ours), theirs in zip(loaded.named_parameters(), model.parameters(), strict=True):
            assert torch.allclose(ours.float(), theirs, rtol=2**-7, atol=1e-4), (
                f"{name} differs from one process's, rounded."
            )
        reasons = explained(2, psi, psi // 2, RANKS)
        assert [reasons[name] for name in SECTIONS] == [4 * psi / RANKS, 0, 0], (
            "The excess of stage 2 is the copy."
        )
        assert to_nvme(configured(3, 2, 2, adam), folder)["zero_optimization"]["stage"] == 3
        states = memory.zero_states(psi, RANKS, 2)
        return (
            f"Stage 2 with Adam on the host was chosen for {there.device:,} bytes a rank; "
            f"{STEPS} losses are one process's, a rank has {states.optimizer:,} bytes of optimizer, and a "
            "plain model loads the weights."
        )

    labs.milestone(
        [
            ("one configuration for every stage", configuration, configured),
            ("bytes a rank, predicted and measured", bytes_held, predicted, held),
            ("why DeepSpeed estimates more", excess, explained),
            ("the optimizer on the host", offload, offloaded),
            ("moments in a file", nvme, to_nvme, in_file),
            ('the Trainer and its "auto"', repaired, repair),
            ("from shards to 16-bit weights", checkpoint, save, consolidated),
            ("a configuration for two budgets", choose, choice),
            ("seconds of a step, measured", steps_measured, table, plot, reflection),
        ],
        whole,
        "a run with DeepSpeed that equals one process, from its budget to its weights.",
    )
