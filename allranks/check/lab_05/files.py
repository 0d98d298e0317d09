"""A configuration for NVMe, which a CPU cannot run without compiling, and moments in a file, which it can."""

import copy
import os
import random
import tempfile

import torch
import torch.distributed as dist

from allranks import deepspeed_config, private
from allranks.check import exercise
from allranks.check.lab_05.common import (
    engine_of,
    in_one_line,
    new_adam,
    new_batches,
    new_config,
    new_gpt,
    on_ranks,
    quoted,
    same,
    train,
    trained_alone,
)
from allranks.check.labs import is_written

NAMES = ("exp_avg", "exp_avg_sq")


def _read(config):
    """What DeepSpeed's own reader of the section says: (stage, place, folder) twice, or its objection."""
    private.deepspeed()
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig

    try:
        zero = DeepSpeedZeroConfig(**config["zero_optimization"])
    except Exception as error:
        return in_one_line(error)
    parts = zero.offload_optimizer, zero.offload_param
    return zero.stage, [
        (str(getattr(p.device, "value", p.device)), str(p.nvme_path)) if p else ("none", "") for p in parts
    ]


def _configured(answer, cases):
    results = []
    for config, folder in cases:
        given = copy.deepcopy(config)
        found = answer(config, folder)
        if not isinstance(found, dict) or not isinstance(found.get("zero_optimization"), dict):
            return [f"returned {quoted(found)}; expected a configuration"]
        rest = {**found, "zero_optimization": None} == {**given, "zero_optimization": None}
        try:
            deepspeed_config.check(found, dist.get_world_size())
            legal = True
        except ValueError as error:
            legal = str(error)
        results.append((config == given, rest, _read(found), legal, found["zero_optimization"]))
    return results


def _moments(optimizer):
    return [state[name] for state in optimizer.state.values() for name in NAMES if name in state]


def _filed(answer, folder, cases, batches):
    """For each stage on this rank: train, move the moments to a file, train on; what is where."""
    results = []
    for stage, adam in cases:
        slices = {"sub_group_size": 4000} if stage == 3 else {}  # several on a rank
        engine = engine_of(new_gpt(), new_config(stage, 8, adam, **slices))
        losses = train(engine, batches[:2])
        optimizer = engine.optimizer.optimizer
        before = torch.cat([t.flatten() for t in _moments(optimizer)]).clone()
        file = os.path.join(folder, f"stage_{stage}_rank_{dist.get_rank()}")
        answer(optimizer, file)
        seen = {"file": os.path.exists(file), "size": 4 * len(before)}
        results.append(seen)
        if not seen["file"]:
            continue
        after = _moments(optimizer)
        seen["found"] = os.path.getsize(file)
        seen["kept"] = [len(t) for t in after] and torch.equal(
            torch.cat([t.flatten() for t in after]), before
        )
        if seen["found"] == seen["size"]:
            in_file = torch.from_file(file, shared=True, size=len(before))
            seen["in order"] = torch.equal(in_file, before)
        losses += train(engine, batches[2:])
        seen["losses"] = losses
        now = torch.cat([t.flatten() for t in _moments(optimizer)])
        if seen["found"] == seen["size"]:
            pages = torch.from_file(file, shared=True, size=len(before))
            seen["written"] = torch.equal(pages.sort().values, now.sort().values)
            pages.fill_(0.5)  # what is in the file is what Adam reads, or it is a copy
            seen["read"] = all(bool((t == 0.5).all()) for t in _moments(optimizer))
    return results


@exercise
def nvme(config_answer, file_answer):
    """`on_nvme(config, folder)` and `moments_to_file(optimizer, file)`."""
    is_written(config_answer, file_answer)
    folder_name = f"/local/{random.randrange(10**6)}"
    cases = [
        (new_config(stage, 8, new_adam(), stage3_prefetch_bucket_size=1000), folder_name) for stage in (2, 3)
    ]
    for rank, found in enumerate(on_ranks(_configured, config_answer, cases)):
        for (config, _), seen in zip(cases, found):
            who = f"Rank {rank}, on_nvme of stage {config['zero_optimization']['stage']}"
            assert not isinstance(seen, str), f"{who}: the function {seen}."
            _judge_nvme(*seen, who, config, folder_name)
    adam, batches = new_adam(), new_batches(8, 4)
    alone, _ = trained_alone(batches, adam)
    with tempfile.TemporaryDirectory() as folder:
        stages = [(stage, adam) for stage in (3, 2)]
        for rank, found in enumerate(on_ranks(_filed, file_answer, folder, stages, batches)):
            for (stage, _), seen in zip(stages, found, strict=True):
                _judge_file(seen, f"Rank {rank}, stage {stage}", alone)
    return (
        "The configuration for NVMe is legal (read, not run); moments live in a mapped file, with the "
        "same losses."
    )


def _judge_nvme(unchanged, rest, read, legal, zero, who, config, folder):
    assert unchanged, f"{who}: the configuration that was given has changed; copy it deeply."
    assert rest, f"{who}: a setting outside zero_optimization has changed."
    assert not isinstance(read, str), f"{who}: DeepSpeed cannot read the section. {read}"
    stage, places = read
    assert stage == 3, (
        f"{who}: the stage is {stage}. NVMe needs stage 3; below it DeepSpeed silently moves the "
        "optimizer to the host's memory."
    )
    for name, (device, path) in zip(("offload_optimizer", "offload_param"), places, strict=True):
        assert device == "nvme", f"{who}: {name} is on {device}; expected nvme for both."
        assert path == folder, (
            f"{who}: {name}'s nvme_path is {path}; expected {folder}. Without a path, DeepSpeed complains "
            "only when it swaps."
        )
    assert legal is True, f"{who}: {legal}."
    kept = {k: v for k, v in config["zero_optimization"].items() if k != "stage"}
    assert {k: zero.get(k) for k in kept} == kept, f"{who}: another setting of zero_optimization has changed."


def _judge_file(seen, who, alone):
    assert seen["file"], (
        f"{who}: there is no file after the call; torch.from_file makes one of `size` elements."
    )
    assert seen["found"] == seen["size"], (
        f"{who}: the file has {seen['found']:,} bytes; this rank's moments take {seen['size']:,}, two of "
        "4 bytes for each element of its slice. torch.from_file counts elements."
    )
    assert seen["kept"], (
        f"{who}: the moments are not the ones from before the call, in order: copy them into the file, "
        "both of each slice, one after the other."
    )
    assert seen["in order"], (
        f"{who}: the file does not hold the moments slice by slice, exp_avg and then exp_avg_sq."
    )
    assert seen["written"], (
        f"{who}: after two more steps the file does not hold the moments: put the mapped tensors "
        "themselves, `shared=True`, into optimizer.state."
    )
    assert seen["read"], (
        f"{who}: what is written to the file does not reach the optimizer, which works on a copy."
    )
    assert same(seen["losses"], alone), (
        f"{who}: the last loss is {seen['losses'][-1]:.5f}; one process has {alone[-1]:.5f}."
    )
