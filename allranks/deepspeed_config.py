"""Does a DeepSpeed configuration mean what its author thinks? Its batch, its places, its bytes, its link.

Read from DeepSpeed 0.19.8: `runtime/config.py` for the batch, `runtime/zero/` for stages and offload.
DeepSpeed leaves some settings without effect and says nothing; here they are refused as well.
"""

import json
from collections import namedtuple

from allranks import memory
from allranks.inputs import quantity, whole

BATCH, MICRO, STEPS = "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"
CLIPPING = 1.0  # of the gradient's norm, where `gradient_clipping` is not given; 0 turns it off
DEVICES, OFFLOADS = ("none", "cpu", "nvme"), ("offload_optimizer", "offload_param")


class Setting(
    namedtuple("Setting", "batch micro_batch accumulation stage optimizer weights recipe clipping")
):
    """What a configuration sets: three batch sizes, ZeRO's stage, two places, a recipe of bytes, a norm."""


class Needs(namedtuple("Needs", "device host disk traffic")):
    """Bytes of states on each rank in three places, and the `memory.Traffic` of a step between them."""


def _refuse(given, allowed, remedy):
    raise ValueError(f"{given}; allowed: {allowed}; {remedy}")


def _section(config, name):
    """Return the dict `name` of `config`, empty where there is none."""
    value = config.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        _refuse(f"{name} is {value!r}", "an object", f'write "{name}": {{…}}')
    return value


def _batch_sizes(config, world_size):
    """Return batch, micro-batch and accumulation steps, those that are missing from those that are there."""
    given = {name: config.get(name) for name in (BATCH, MICRO, STEPS)}
    for name, value in given.items():
        if value == "auto":
            _refuse(
                f'{name} is "auto"',
                "a whole number",
                "fill it in: only Hugging Face's Trainer does it for you",
            )
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            _refuse(f"{name} is {value!r}", "a whole number of at least 1", "give one, or leave the line out")
    for name in config:
        if name.startswith("train_") and name not in (BATCH, MICRO):
            _refuse(f"{name} is a name that DeepSpeed does not read", f"{BATCH}, {MICRO}", "correct it")
    batch, micro, steps = given.values()
    if batch is None and micro is None:
        _refuse(f"neither {BATCH} nor {MICRO} is given", "one of them, or both", f"give {MICRO}")
    if steps is None:
        steps = 1 if batch is None or micro is None else batch // (micro * world_size)
    if micro is None:
        micro = batch // (world_size * steps)
    if batch is None:
        batch = micro * steps * world_size
    if batch != micro * steps * world_size:
        _refuse(
            f"{BATCH} is {batch}, but {micro} a micro-batch × {steps} steps × {world_size} ranks is "
            f"{micro * steps * world_size}",
            "equal numbers",
            f"leave {BATCH} out, or make it a multiple of micro-batch × ranks",
        )
    return batch, micro, steps


def _place(zero, name, stage):
    """Return where `zero[name]` puts states: "device", "cpu" or "nvme"."""
    offload = _section(zero, name)
    device, first = offload.get("device", "none"), 3 if name == "offload_param" else 1
    if device not in DEVICES:
        _refuse(f"{name}.device is {device!r}", "none, cpu or nvme", "choose one")
    if device == "none":
        return "device"
    if device == "nvme":
        first = 3
        if not offload.get("nvme_path"):
            _refuse(f"{name} is on nvme without a path", "a directory", f"give {name}.nvme_path")
    if stage < first:
        what = f"{name} on {device} in stage {stage}"
        _refuse(
            what,
            f"stage {first} {'only' if first == 3 else 'to 3'}",
            f"set stage to {first}, or device to none",
        )
    ratio = offload.get("ratio", 1.0)
    if ratio != 1.0 and stage < 3:
        _refuse(
            f"{name}.ratio is {ratio!r} in stage {stage}",
            "1.0 below stage 3",
            "set stage to 3, or leave it out",
        )
    return device


def check(config, world_size):
    """Return the `Setting` of `config`, JSON text or a dict, for `world_size` data-parallel ranks.

    Raises ValueError with what is given, what is allowed and what to do.
    """
    whole("world_size", world_size)
    if isinstance(config, str):
        config = json.loads(config)
    if not isinstance(config, dict):
        _refuse(f"the configuration is {config!r}", "an object", "write {…}")
    zero = _section(config, "zero_optimization")
    for name in zero:
        if name.startswith("offload_") and name not in OFFLOADS:
            _refuse(f"zero_optimization.{name} is not an option", ", ".join(OFFLOADS), "correct the name")
    stage = zero.get("stage", 0)
    if isinstance(stage, bool) or stage not in (0, 1, 2, 3):
        _refuse(f"zero_optimization.stage is {stage!r}", "0, 1, 2 or 3", "choose by what has to be sharded")
    short = [name for name in ("fp16", "bf16") if _section(config, name).get("enabled", False)]
    if len(short) == 2:
        _refuse("fp16 and bf16 are both enabled", "one of them", "disable one")
    places = [_place(zero, name, stage) for name in OFFLOADS]
    recipe = "zero-16" if short else "fp32"
    return Setting(
        *_batch_sizes(config, world_size), stage, *places, recipe, config.get("gradient_clipping", CLIPPING)
    )


def needs(config, parameters, world_size):
    """Return the `Needs` of each rank that trains `parameters` with `config`: states alone, no activations.

    With its optimizer elsewhere, a rank hands its slice of the gradients to the host; in stage 1 the whole
    gradients stay on the device as well. What stage 3 gathers while it computes is not counted.
    """
    quantity("parameters", parameters, positive=True)
    setting = check(config, world_size)
    if setting.optimizer == "device" and setting.weights != "device":
        _refuse(
            "offload_param without offload_optimizer is legal, but its traffic is not modelled here",
            "both, or the optimizer alone",
            "add offload_optimizer",
        )
    states = memory.zero_states(parameters, world_size, setting.stage, setting.recipe)
    held = {"device": 0, "cpu": 0, "nvme": 0}
    held[setting.optimizer] += states.optimizer
    held[setting.weights] += states.weights
    if setting.optimizer == "device" or setting.stage == 1:
        held["device"] += states.gradients
    if setting.optimizer != "device":
        sliced = memory.zero_states(parameters, world_size, 2, setting.recipe)
        held["cpu"] += sliced.gradients
    options = setting.optimizer, setting.weights, setting.recipe, setting.accumulation
    traffic = memory.offload_traffic(parameters, world_size, *options)
    return Needs(held["device"], held["cpu"], held["nvme"], traffic)


def bandwidth(config, parameters, world_size, seconds):
    """Return the bytes/s that link and disk need so that a step of `seconds` hides their traffic."""
    traffic = needs(config, parameters, world_size).traffic
    link = memory.bandwidth_needed(traffic.link, seconds)
    return link, memory.bandwidth_needed(traffic.disk, seconds)
