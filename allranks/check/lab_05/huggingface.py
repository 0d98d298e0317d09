"""A configuration that leaves to the Hugging Face Trainer what the Trainer owns."""

import copy
import random
import tempfile

import torch
from torch import nn
from torch.utils.data import SequentialSampler

from allranks import private
from allranks.check import exercise
from allranks.check.lab_05.common import CPU, in_one_line, new_gpt, on_ranks, quietly, quoted, same
from allranks.check.labs import is_written
from allranks.model import digits, loss_of

STEPS = 3
TOP = (
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps",
    "gradient_clipping",
)
ADAM = ("lr", "betas", "eps", "weight_decay")


class WithLoss(nn.Module):
    """A model as the Trainer wants one: it returns its loss."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens):
        return {"loss": loss_of(self.model, tokens)}


def fit(config, arguments, tokens, folder):
    """Train with the Trainer on this rank, in the order of `tokens`; return the trainer."""
    private.deepspeed()
    from transformers import Trainer, TrainingArguments
    from transformers.trainer_callback import PrinterCallback

    class InOrder(Trainer):
        def _get_train_sampler(self, *_):
            return SequentialSampler(self.train_dataset)

    arguments = TrainingArguments(
        output_dir=folder,
        max_steps=STEPS,
        lr_scheduler_type="constant",
        use_cpu=True,
        report_to="none",
        save_strategy="no",
        logging_steps=1,
        disable_tqdm=True,
        dataloader_pin_memory=False,
        deepspeed=config,
        **arguments,
    )
    rows = [{"tokens": picture} for picture in tokens]
    trainer = InOrder(
        WithLoss(new_gpt()),
        arguments,
        train_dataset=rows,
        data_collator=lambda rows: {"tokens": torch.stack([row["tokens"] for row in rows])},
    )
    trainer.remove_callback(PrinterCallback)
    with quietly():  # it says at every start who owns the accumulation steps
        trainer.train()
    return trainer


def losses_of(trainer):
    """The mean losses of all ranks, a number for each step."""
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def _fitted(answer, cases, tokens, folder):
    results = []
    for name, config, arguments in cases:
        given = copy.deepcopy(config)
        found = answer(config)
        seen = {
            "same": config == given,
            "config": copy.deepcopy(found) if isinstance(found, dict) else quoted(found),
        }
        results.append(seen)
        if not isinstance(found, dict):
            continue
        try:
            trainer = fit(copy.deepcopy(found), arguments, tokens, folder)
        except Exception as error:
            seen["refused"] = in_one_line(error)
            continue
        engine = trainer.model_wrapped
        seen["class"] = type(engine).__name__
        if seen["class"] == "DeepSpeedEngine":
            seen["stage"], seen["clipping"] = engine.zero_optimization_stage(), engine.gradient_clipping()
            group = engine.optimizer.optimizer.param_groups[0]
            seen["adam"] = {name: group[name] for name in ADAM}
        seen["losses"] = losses_of(trainer)
    return results


def new_arguments():
    """TrainingArguments that differ from all defaults, drawn anew."""
    return {
        "per_device_train_batch_size": random.choice([2, 3]),
        "gradient_accumulation_steps": 2,
        "learning_rate": random.choice([2e-3, 5e-3]),
        "max_grad_norm": random.choice([0.2, 0.4]),
        "weight_decay": random.choice([0.05, 0.2]),
        "adam_beta1": 0.8,
        "adam_beta2": 0.95,
        "adam_epsilon": 0.01,
    }


def adam_of(arguments):
    return {
        "lr": arguments["learning_rate"],
        "betas": (arguments["adam_beta1"], arguments["adam_beta2"]),
        "eps": arguments["adam_epsilon"],
        "weight_decay": arguments["weight_decay"],
    }


def alone(tokens, arguments, ranks=2):
    """The losses of one process with the same arguments."""
    model, losses = new_gpt(), []
    optimizer = torch.optim.AdamW(model.parameters(), **adam_of(arguments))
    size = ranks * arguments["per_device_train_batch_size"] * arguments["gradient_accumulation_steps"]
    for batch in tokens.split(size)[:STEPS]:
        loss = loss_of(model, batch)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), arguments["max_grad_norm"])
        optimizer.step()
        losses.append(loss.item())
    return losses


def broken():
    """The three configurations of the page, in their kinds: refused, silent, refused."""
    own = {"torch_adam": True, "foreach": False}
    adam = {"type": "AdamW", "params": {"lr": 1e-3, **own}}
    automatic = {**dict.fromkeys(ADAM, "auto"), **own}
    batch = {"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto"}
    steps = random.choice([25, 40])
    return {
        "two masters": {
            "train_batch_size": 64,
            "train_micro_batch_size_per_gpu": 16,
            "gradient_clipping": 1.0,
            "optimizer": adam,
            "zero_optimization": {"stage": 1},
            "steps_per_print": steps,
            "bf16": {"enabled": False},
        },
        "a missing line": {
            **batch,
            "optimizer": {"type": "AdamW", "params": automatic},
            "zero_optimization": {"stage": 2, "offload_optimizer": CPU, "reduce_bucket_size": 40_000},
            "steps_per_print": steps,
        },
        "a question nobody answers": {
            **batch,
            "gradient_clipping": "auto",
            "optimizer": {"type": "AdamW", "params": automatic},
            "zero_optimization": {
                "stage": 3,
                "reduce_bucket_size": "auto",
                "stage3_prefetch_bucket_size": "auto",
                "stage3_param_persistence_threshold": 500,
            },
            "steps_per_print": steps,
        },
    }


def _not_run():
    """Another like the three, which is read and not run: stage, optimizer and numbers differ."""
    number = random.randrange(10_000, 90_000)
    return {
        "stage 0": {
            "train_batch_size": number,
            "optimizer": {"type": "Adam", "params": {"lr": 1 / number, "adam_w_mode": False}},
            "zero_optimization": {"stage": 0, "allgather_bucket_size": "auto", "reduce_bucket_size": number},
            "communication_data_type": "fp32",
        },
    }


def _repaired(answer, configs):
    results = []
    for config in configs:
        given = copy.deepcopy(config)
        found = answer(config)
        results.append((config == given, copy.deepcopy(found) if isinstance(found, dict) else quoted(found)))
    return results


def _judge_lines(found, config, who):
    """Fail unless `found` is `config` with "auto" where the Trainer owns a line, and nowhere else."""
    _are_automatic(found, TOP, who)
    zero, right = found.get("zero_optimization"), config["zero_optimization"]
    right = {key: value for key, value in right.items() if value != "auto"}
    extra = [key for key in zero or () if key not in right]
    assert not extra, (
        f'{who}: zero_optimization still has {extra[0]}: delete a line that says "auto", so that '
        "DeepSpeed's default applies."
    )
    assert zero == right, f"{who}: zero_optimization is {quoted(zero)}; expected {quoted(right)}."
    params, own = found["optimizer"].get("params", {}), config["optimizer"]["params"]
    _are_automatic(params, ADAM, f"{who}, optimizer.params")
    parts = (found, config), (params, own), (found["optimizer"], config["optimizer"])
    names = (*TOP, "optimizer", "zero_optimization"), ADAM, ("params",)
    for (ours, given), theirs in zip(parts, names, strict=True):
        for name in [k for k in ours | given if k not in theirs]:
            assert name in ours and name in given and ours[name] == given[name], (
                f"{who}: {name} is {quoted(ours.get(name))} but was {quoted(given.get(name))}; leave "
                "settings that are not the Trainer's alone."
            )


def _are_automatic(section, names, who):
    missing = [name for name in names if section.get(name) != "auto"]
    assert not missing, (
        f"{who}: {missing[0]} is {quoted(section.get(missing[0]))}. The Trainer owns it (see the table), "
        'so set it to "auto", even if the configuration does not mention it.'
    )


@exercise
def repaired(answer):
    """`answer(config)`: a new dict, in which the Trainer fills in what it owns and nothing else is "auto"."""
    is_written(answer)
    arguments = new_arguments()
    cases = [(name, config, arguments) for name, config in broken().items()]
    first = random.randrange(1000)
    tokens = digits()[first : first + 12 * STEPS]
    expected = alone(tokens, arguments)
    with tempfile.TemporaryDirectory() as folder:
        ranks = on_ranks(_fitted, answer, cases, tokens, folder)
    others = _not_run()
    lines = on_ranks(_repaired, answer, list(others.values()), world_size=1)[0]
    for rank, found in enumerate(ranks):
        for (name, config, _), seen in zip(cases, found, strict=True):
            _judge_trainer(seen, config, arguments, expected, f"Rank {rank}, {name}")
            _judge_lines(seen["config"], config, f"Rank {rank}, {name}")
    for (name, config), (unchanged, found) in zip(others.items(), lines, strict=True):
        assert isinstance(found, dict), f"{name}: the function returned {found}; expected a dict."
        assert unchanged, f"{name}: the configuration that was given has changed; copy it deeply."
        _judge_lines(found, config, f"Rank 0, {name}")
    return (
        "Three configurations are repaired: the Trainer's numbers reach DeepSpeed, and losses equal one "
        "process's."
    )


def _judge_trainer(seen, config, arguments, expected, who):
    assert isinstance(seen["config"], dict), (
        f"{who}: the function returned {seen['config']}; expected a dict."
    )
    assert seen["same"], f"{who}: the configuration that was given has changed; copy it deeply."
    assert "refused" not in seen, f"{who}: the Trainer stops. {seen['refused']}"
    assert seen["class"] == "DeepSpeedEngine", (
        f"{who}: the Trainer trains a {seen['class']} without DeepSpeed."
    )
    given, found = config["zero_optimization"], seen["config"]["zero_optimization"]
    kept = {key: value for key, value in given.items() if value != "auto"}
    assert seen["stage"] == given["stage"], (
        f"{who}: it was stage {given['stage']}, but now stage {seen['stage']} runs."
    )
    assert {key: found.get(key) for key in kept} == kept, (
        f"{who}: zero_optimization has lost {', '.join(k for k in kept if found.get(k) != kept[k])}, "
        "which belong to DeepSpeed: repair only what the Trainer owns or cannot fill in."
    )
    assert seen["config"].get("steps_per_print") == config["steps_per_print"], (
        f"{who}: steps_per_print is gone; keep lines that conflict with nothing."
    )
    right = arguments["max_grad_norm"]
    assert abs(seen["clipping"] - right) < 1e-9, (
        f"{who}: DeepSpeed clips at {seen['clipping']:g}, but the Trainer was given "
        f'max_grad_norm={right:g}. Without a line DeepSpeed clips at 1; "gradient_clipping": "auto" takes '
        "over the Trainer's."
    )
    for name, value in adam_of(arguments).items():
        found = seen["adam"][name]
        assert tuple(found) == value if name == "betas" else found == value, (
            f"{who}: AdamW's {name} is {found}, but the Trainer was given {value}: in optimizer.params "
            'the Trainer owns lr, betas, eps and weight_decay, so they should be "auto".'
        )
    assert same(seen["losses"], expected), (
        f"{who}: the last loss is {seen['losses'][-1]:.5f}; one process has {expected[-1]:.5f}."
    )
