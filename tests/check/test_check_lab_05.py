"""The checks of Lab 05: the solved lab's own answers are right, the usual wrong ones get a hint.

Ranks that import DeepSpeed are expensive, so all answers share worlds: a check is asked once to learn what
it wants to run, and again, with the same random numbers, to judge what that has returned.
"""

import contextlib
import copy
import os
import random
import tempfile
from pathlib import Path

import pytest
import solved
import torch
import torch.distributed as dist
from verdicts import verdict

from allranks import check, launch, memory
from allranks.check.lab_05 import common

ANSWERS = solved.answers("deepspeed")
TASKS = {
    "configuration": ["configuration"],
    "bytes_held": ["predicted", "held"],
    "excess": ["excess"],
    "offload": ["offload"],
    "nvme": ["on_nvme", "moments_to_file"],
    "repaired": ["repaired"],
    "checkpoint": ["save", "consolidated"],
    "choose": ["choose"],
}


class Asked(BaseException):
    """What a check wants to run: a function, its arguments, and the number of ranks."""


def together(calls):
    """On a rank: what each call returns, or the sentence of its error."""
    results = []
    for test, args in calls:
        try:
            results.append((True, test(*args)))
        except Exception as error:
            results.append((False, f"{type(error).__name__}: {error}"))
        dist.barrier()
    return results


def asked(test, answers, known, seed, folder):
    """The line of the check, or Asked; `known` has what its worlds so far have returned."""
    known = iter(known)

    def replay(test, *args, world_size, **_):
        for ranks in known:
            failed = [found for worked, found in ranks if not worked]
            assert not failed, failed[0]
            return [copy.deepcopy(found) for _, found in ranks]
        raise Asked(test, args, world_size)

    random.seed(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(common, "launch", replay)
        patch.setattr(tempfile, "TemporaryDirectory", lambda: contextlib.nullcontext(str(folder)))
        return check.verdict(test.__wrapped__, *answers)


def lines_of(cases, folder):
    """{name: the line} for `cases` {name: (task, answers)}, in as few worlds as a check has steps."""
    known, lines = {name: [] for name in cases}, {}
    while len(lines) < len(cases):
        wanted = {}
        for name in cases.keys() - lines.keys():
            task, answers = cases[name]
            os.makedirs(folder / name, exist_ok=True)
            try:
                lines[name] = asked(getattr(check.lab_05, task), answers, known[name], name, folder / name)
            except Asked as call:
                wanted[name] = call.args
        for size in {size for _, _, size in wanted.values()}:
            names = [name for name in wanted if wanted[name][2] == size]
            calls = [wanted[name][:2] for name in names]
            ranks = launch(together, calls, world_size=size, timeout=240, backend="gloo")
            for name, *found in zip(names, *ranks, strict=True):
                known[name].append(found)
    return lines


WRONG = []


def wrong(hint, **changed):
    """The answers of the solved lab, some of them changed, are told `hint`."""
    (task,) = (task for task, names in TASKS.items() if changed.keys() <= set(names))
    answers = [(ANSWERS | changed)[name] for name in TASKS[task]]
    WRONG.append((f"{task}-{len(WRONG)}", task, answers, hint))


def changed_config(**changes):
    def configuration(*given):
        config = ANSWERS["configuration"](*given)
        return {name: value for name, value in (config | changes).items() if value is not None}

    return configuration


def stage_at_the_top(stage, *given):
    return ANSWERS["configuration"](0, *given) | {"stage": stage}


def batch_of_a_rank(stage, micro_batch, accumulation, adam):
    config = ANSWERS["configuration"](stage, micro_batch, accumulation, adam)
    del config["train_micro_batch_size_per_gpu"]
    return config | {"train_batch_size": micro_batch * accumulation}


def own_adam(stage, micro_batch, accumulation, adam):
    adam = {name: value for name, value in adam.items() if name != "torch_adam"}
    return ANSWERS["configuration"](stage, micro_batch, accumulation, adam)


def only_lr(stage, micro_batch, accumulation, adam):
    adam = {name: adam[name] for name in ("lr", "torch_adam")}
    return ANSWERS["configuration"](stage, micro_batch, accumulation, adam)


wrong("returned None", configuration=solved.nothing)
wrong("clips the gradient's norm at 1", configuration=changed_config(gradient_clipping=None))
wrong("The stage is read from the section", configuration=stage_at_the_top)
wrong("train_batch_size counts all ranks", configuration=batch_of_a_rank)
wrong("would compile", configuration=own_adam)
wrong("AdamW's", configuration=only_lr)
wrong("computes in 16 bits", configuration=changed_config(bf16={"enabled": True}))


def in_fp32(parameters, world_size, stage):
    states = memory.zero_states(parameters, world_size, stage, "fp32")
    return states.weights, states.optimizer


def undivided(parameters, world_size, stage):
    return 2 * parameters, 12 * parameters / world_size


def by_formula(engine):
    parameters = sum(getattr(p, "ds_numel", p.numel()) for p in engine.module.parameters())
    return ANSWERS["predicted"](parameters, 2, engine.zero_optimization_stage())


def empty_in_stage_3(engine):
    return sum(p.numel() * 2 for p in engine.module.parameters()), ANSWERS["held"](engine)[1]


def moments_alone(engine):
    weights, optimizer = ANSWERS["held"](engine)
    return weights, optimizer - sum(t.nbytes for t in ANSWERS["masters"](engine))


wrong("it has to be (weights, optimizer)", predicted=solved.nothing)
wrong("a weight has two bytes", predicted=in_fp32)
wrong("in stage 0 all of them", predicted=undivided)
wrong("the two numbers are exchanged", predicted=lambda *given: ANSWERS["predicted"](*given)[::-1])
wrong("all masters, and all", held=by_formula)
wrong("`p.ds_tensor` is its part here", held=empty_in_stage_3)
wrong("all masters, and all", held=moments_alone)


def explained(copy_of=4, left=2, layer=4, ranks=True, always=False):
    def excess(stage, parameters, largest, world_size):
        share = parameters / world_size if ranks else parameters
        late = stage == 3 or always
        numbers = copy_of * share, -left * share * late, layer * largest * late
        return dict(zip(("copy of the gradients", "left out", "whole layer"), numbers, strict=True))

    return excess


wrong("and not a dict", excess=solved.nothing)
wrong("'copy of the gradients' is", excess=explained(ranks=False))
wrong("'copy of the gradients' is", excess=explained(copy_of=2, left=0))
wrong("'left out' is", excess=explained(always=True))
wrong("'whole layer' is", excess=explained(layer=2))


def in_place(config):
    config["zero_optimization"]["offload_optimizer"] = {"device": "cpu"}
    return config


def shallow(config):
    return in_place(dict(config))


def both_always(config):
    config = ANSWERS["offload"](config)
    config["zero_optimization"]["offload_param"] = {"device": "cpu"}
    return config


def optimizer_alone(config):
    config = ANSWERS["offload"](config)
    config["zero_optimization"].pop("offload_param", None)
    return config


def no_refusal(config):
    return ANSWERS["offload"](config) if in_stage(config) else in_place(copy.deepcopy(config))


def above_1(config):
    if config["zero_optimization"]["stage"] < 2:
        raise ValueError("no")
    return ANSWERS["offload"](config)


wrong("sections included", offload=shallow)
wrong("leave it out", offload=both_always)
wrong("that is offload_param", offload=optimizer_alone)
wrong("so raise ValueError", offload=no_refusal)
wrong("this stage can offload the optimizer", offload=above_1)


def in_stage(config):
    return config["zero_optimization"]["stage"]


wrong("returned None", offload=lambda config: None if in_stage(config) else ANSWERS["offload"](config))


def nvme_in_its_stage(config, folder):
    found = ANSWERS["on_nvme"](config, folder)
    found["zero_optimization"]["stage"] = in_stage(config)
    return found


def without_a_path(config, folder):
    found = ANSWERS["on_nvme"](config, folder)
    del found["zero_optimization"]["offload_param"]["nvme_path"]
    return found


def a_copy(optimizer, file):
    ANSWERS["moments_to_file"](optimizer, file)
    for state in optimizer.state.values():
        state |= {name: state[name].clone() for name in ("exp_avg", "exp_avg_sq")}


def squares_first(optimizer, file):
    moments = [(state, name) for name in ("exp_avg_sq", "exp_avg") for state in optimizer.state.values()]
    pages = torch.from_file(file, shared=True, size=sum(state[name].numel() for state, name in moments))
    for (state, name), page in zip(moments, pages.split([s[n].numel() for s, n in moments]), strict=True):
        state[name] = page.view_as(state[name]).copy_(state[name])


def one_moment(optimizer, file):
    for state in optimizer.state.values():
        pages = torch.from_file(file, shared=True, size=state["exp_avg"].numel())
        state["exp_avg"] = pages.view_as(state["exp_avg"]).copy_(state["exp_avg"])


def empty_pages(optimizer, file):
    ANSWERS["moments_to_file"](optimizer, file)
    for state in optimizer.state.values():
        state["exp_avg"].zero_()


wrong("and not a configuration", on_nvme=solved.nothing)
wrong("NVMe takes stage 3", on_nvme=nvme_in_its_stage)
wrong("Without a path", on_nvme=without_a_path)
wrong("there is no file", moments_to_file=solved.nothing)
wrong("`shared=True`, put into", moments_to_file=a_copy)
wrong("slice by slice", moments_to_file=squares_first)
wrong("two of 4 bytes", moments_to_file=one_moment)
wrong("copy them into the file", moments_to_file=empty_pages)


def without(*names):
    def repaired(config):
        found = ANSWERS["repaired"](config)
        for name in names:
            del found[name]
        return found

    return repaired


def only_where_auto_was(config):
    return copy.deepcopy(config) | {"gradient_clipping": "auto"}


def of_stage_2(config):
    return ANSWERS["repaired"](config) | {"zero_optimization": {"stage": 2}}


def with_auto_buckets(config):
    zero = copy.deepcopy(config["zero_optimization"])
    return ANSWERS["repaired"](config) | {"zero_optimization": zero}


def fixed_weight_decay(config):
    found = ANSWERS["repaired"](config)
    del found["optimizer"]["params"]["weight_decay"]
    return found


wrong("returned None", repaired=solved.nothing)
wrong("Without a line DeepSpeed clips", repaired=without("gradient_clipping"))
wrong("mismatch TrainingArguments", repaired=only_where_auto_was)
wrong("and now stage 2 runs", repaired=of_stage_2)
wrong("hidden_size", repaired=with_auto_buckets)
wrong("AdamW's weight_decay", repaired=fixed_weight_decay)


def weights_alone(engine, folder):
    os.makedirs(folder, exist_ok=True)
    torch.save(engine.module.state_dict(), os.path.join(folder, "weights.pt"))


def of_the_module(folder, dtype):
    tag = Path(folder, "latest").read_text()
    shards = os.path.join(folder, tag)
    file = next(name for name in sorted(os.listdir(shards)) if name.endswith("model_states.pt"))
    weights = torch.load(os.path.join(shards, file), weights_only=False)["module"]
    return {name: weight.to(dtype) for name, weight in weights.items()}


def always_in(*dtypes):
    def consolidated(folder, dtype):
        weights = ANSWERS["consolidated"](folder, torch.float32)
        for other in dtypes or [dtype]:
            weights = {name: weight.to(other) for name, weight in weights.items()}
        return weights

    return consolidated


wrong("finds no checkpoint there", save=weights_alone)
wrong("empty on purpose", consolidated=of_the_module)
wrong("was asked for", consolidated=always_in(torch.float32))
wrong("not as a dict of tensors", consolidated=solved.nothing)


def twice(folder, dtype):
    weights = always_in(torch.bfloat16)(folder, dtype)
    return {name: weight.to(dtype) for name, weight in weights.items()}


wrong("rounded to bfloat16 first", consolidated=twice)


def choosing(link=True, host=True, strict=False, order=list, seconds=True, none="raise"):
    def choose(candidates, parameters, world_size, device, host_bytes, speed, time):
        for zero in order(candidates):
            there = ANSWERS["needs"](zero, parameters, world_size)
            carried = speed * time if seconds else speed
            pairs = [(there.device, device)]
            pairs += [(there.host, host_bytes)] * host + [(there.traffic.link, carried)] * link
            if all(n < room if strict else n <= room for n, room in pairs):
                return zero
        if none == "raise":
            raise ValueError("none")
        return None

    return choose


wrong("came back was None", choose=choosing(none=None))
wrong("bytes for the link", choose=choosing(link=False))
wrong("bytes for the host", choose=choosing(host=False))
wrong("may be used up whole", choose=choosing(strict=True))
wrong("stands before it", choose=choosing(order=reversed))
wrong("✗ Rank 0", choose=choosing(seconds=False))


@pytest.fixture(scope="module")
def lines(tmp_path_factory, ranks_need_not_import_the_test):
    cases = {name: (task, answers) for name, task, answers, _ in WRONG}
    return lines_of(cases, tmp_path_factory.mktemp("answers"))


@pytest.mark.parametrize("name, hint", [(name, hint) for name, _, _, hint in WRONG])
def test_a_wrong_answer_is_told_what_is_wrong(lines, name, hint):
    assert lines[name].startswith("✗") and hint in lines[name]


def test_saving_on_one_rank_alone_is_ended_and_explained(capfd, monkeypatch, nothing_is_left_behind):
    def on_rank_0(engine, folder):
        if dist.get_rank() == 0:
            engine.save_checkpoint(folder)

    monkeypatch.setattr(common, "SECONDS", 8.0)
    said = verdict(capfd, check.lab_05.checkpoint, on_rank_0, ANSWERS["consolidated"])
    assert "Every rank has to call save_checkpoint" in said


@pytest.mark.parametrize("answer", [None, ..., 3])
def test_what_is_no_function_is_told_so(answer):
    lines = [check.verdict(getattr(check.lab_05, t).__wrapped__, *[answer] * len(TASKS[t])) for t in TASKS]
    assert all("is a function" in line for line in lines)
