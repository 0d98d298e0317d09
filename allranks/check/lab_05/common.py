"""What do the tasks of the lab share? Engines that compile nothing, training, one process to equal."""

import contextlib
import importlib
import io
import logging
import random

import torch
import torch.distributed as dist

from allranks import private
from allranks.check.shown import shown as shown_on_ranks
from allranks.launch import launch
from allranks.model import GPT, digits, loss_of

RANKS = 2
SECONDS = 40.0  # that an answer may take; the imports of each rank are a part of it
SIZES = {"layers": 1, "hidden": 32, "heads": 2}
CPU = {"device": "cpu"}


def engine_of(model, config):
    """DeepSpeed's engine for `model`, on a CPU rank; where it would compile, it raises RuntimeError."""
    deepspeed = private.deepspeed()
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    return engine


def preload():
    """Import what ranks would: half a second for DeepSpeed on each, and two for the Trainer."""
    with contextlib.suppress(ImportError), quietly():
        private.deepspeed()
        importlib.import_module("transformers").Trainer  # noqa: B018 (imports it)


def train(engine, batches):
    """Train on ranks, one optimizer step for each of `batches`; return the mean losses of all ranks.

    A rank takes its part of a batch, cut into the engine's micro-batches; the last `engine.step()` of a
    batch is the one in which DeepSpeed lets the optimizer step.
    """
    losses = []
    for batch in batches:
        part = batch.chunk(dist.get_world_size())[dist.get_rank()]
        pieces = part.chunk(engine.gradient_accumulation_steps())
        total = torch.zeros(())
        for tokens in pieces:
            loss = loss_of(engine, tokens)
            engine.backward(loss)
            engine.step()
            total += loss.detach().float() / len(pieces)
        dist.all_reduce(total, op=dist.ReduceOp.AVG)
        losses.append(total.item())
    return losses


def on_ranks(test, *args, world_size=RANKS):
    """DeepSpeed's ranks are CPU ranks in this lab, also where there are GPUs."""
    return launch(test, *args, world_size=world_size, timeout=SECONDS, backend="gloo")


def shown(function, *args):
    """`allranks.check.shown` on two CPU ranks."""
    return shown_on_ranks(function, *args, backend="gloo")


def new_gpt(seed=0, **sizes):
    torch.manual_seed(seed)
    return GPT(**SIZES | sizes)


def new_adam():
    """Options of AdamW, drawn anew; an `eps` of this size lets Adam feel the length of a gradient."""
    return {
        "lr": round(random.uniform(2e-3, 6e-3), 5),
        "betas": [round(random.uniform(0.7, 0.88), 3), round(random.uniform(0.93, 0.99), 4)],
        "eps": round(random.uniform(0.01, 0.02), 4),
        "weight_decay": round(random.uniform(0.05, 0.2), 3),
        "torch_adam": True,
    }


def new_config(stage, size, adam, bf16=False, **zero):
    """What the lab's own tests train with: `size` sequences a step on all ranks, no clipping."""
    return {
        "train_batch_size": size,
        "gradient_clipping": 0.0,
        "optimizer": {"type": "AdamW", "params": adam},
        "zero_optimization": {"stage": stage, **zero},
        "bf16": {"enabled": bf16},
    }


def new_batches(size, steps):
    first = random.randrange(1000)
    return list(digits()[first : first + size * steps].split(size))


def trained_alone(batches, adam, clip=None, model=None):
    """The losses of one process, and the model it has trained."""
    model = model or new_gpt()
    options = {name: value for name, value in adam.items() if name != "torch_adam"}
    optimizer = torch.optim.AdamW(model.parameters(), **options)
    losses = []
    for batch in batches:
        loss = loss_of(model, batch)
        optimizer.zero_grad()
        loss.backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        losses.append(loss.item())
    return losses, model


def same(losses, expected):
    return len(losses) == len(expected) and all(
        abs(a / b - 1) < 1e-5 for a, b in zip(losses, expected, strict=True)
    )


def quoted(answer):
    """What was returned, as it fits into a line."""
    return "None" if answer is ... else " ".join(repr(answer).split())[:70]


def in_one_line(error):
    """What an error says: pydantic's and DeepSpeed's own take many lines."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:240]}"


@contextlib.contextmanager
def quietly():
    """DeepSpeed prints what it saves, and warns of what a test does on purpose; a check prints one line."""
    logging.disable(logging.WARNING)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)
