"""Which groups does a framework's configuration make of the ranks? Four frameworks' names, one mesh.

Read from torchtitan 0.3.0 (`distributed/parallel_dims.py`), Megatron Core 0.16.1 (`core/parallel_state.py`),
Accelerate 1.15.0 (`parallelism_config.py`) and DeepSpeed 0.19.8 (`__init__.py`, `utils/groups.py`,
`runtime/pipe`). The model: ranks are numbered from 0, and the first axis of a mesh varies fastest. Settings
that change no group are passed over; a size that is not known is refused.
"""

from collections import namedtuple

from .inputs import multiple, one_of, whole
from .topology import groups

DENSE, EXPERTS = ("tp", "cp", "dp_shard", "dp_replicate", "pp"), ("etp", "ep", "expert_dp", "pp")
TITAN = {
    "data_parallel_replicate_degree": "dp_replicate",
    "data_parallel_shard_degree": "dp_shard",
    "tensor_parallel_degree": "tp",
    "context_parallel_degree": "cp",
    "pipeline_parallel_degree": "pp",
    "expert_parallel_degree": "ep",
}
MEGATRON = {
    "--tensor-model-parallel-size": "tp",
    "--context-parallel-size": "cp",
    "--pipeline-model-parallel-size": "pp",
    "--expert-model-parallel-size": "ep",
    "--expert-tensor-parallel-size": "etp",
}
ACCELERATE = {
    "dp_replicate_size": "dp_replicate",
    "dp_shard_size": "dp_shard",
    "tp_size": "tp",
    "cp_size": "cp",
    "sp_size": "sp",
}


class Setup(namedtuple("Setup", "mesh experts zero_stage")):
    """Two meshes of the same ranks, (axis, size) from the fastest, and ZeRO's stage.

    mesh: tp, cp, dp_shard, dp_replicate, pp. experts: what the ranks are to the experts of a mixture: etp
    (their own tensor parallelism), ep, expert_dp, pp.
    """

    __slots__ = ()


def group_of(rank, setup, axis):
    """The ranks of `rank`'s group along `axis`: one of a mesh's, or "dp" for dp_shard and dp_replicate."""
    one_of("axis", axis, ("dp",) + DENSE + EXPERTS[:3])
    mesh = setup.experts if axis in EXPERTS[:3] else setup.mesh
    axes = ("dp_shard", "dp_replicate") if axis == "dp" else (axis,)
    world_size = 1
    for _, size in mesh:
        world_size *= size
    whole("rank", rank, 0, world_size - 1)
    return next(group for group in groups(mesh, axes) if rank in group)


def torchtitan(parallelism, world_size):
    """The `Setup` of torchtitan's section `parallelism`, a dict, on `world_size` ranks.

    data_parallel_shard_degree is -1 if it is not given: all ranks that are left. Experts share the ranks of
    tp, cp and dp_shard, the fastest first.
    """
    sizes = _sizes(_dict("parallelism", parallelism), TITAN, "_degree", "torchtitan")
    if sizes["dp_shard"] == 1 and "data_parallel_shard_degree" not in parallelism:
        sizes["dp_shard"] = -1
    if sizes["dp_shard"] == -1:
        others = sizes["tp"] * sizes["cp"] * sizes["pp"] * sizes["dp_replicate"]
        multiple("world_size", whole("world_size", world_size), "the product of all other degrees", others)
        sizes["dp_shard"] = world_size // others
    _fills(sizes, world_size)
    reshard = parallelism.get("fsdp_reshard_after_forward", "default")
    one_of("fsdp_reshard_after_forward", reshard, ("default", "always", "never"))
    kept = reshard == "never" or (reshard == "default" and sizes["pp"] > 1)
    stage = (2 if kept else 3) if sizes["dp_shard"] * sizes["cp"] > 1 else 0
    return _setup(sizes, world_size, stage, etp=1)


def megatron(flags, world_size):
    """The `Setup` of Megatron-LM's command line `flags`, a string, on `world_size` ranks; dp is what is left.

    Experts are split by tensor parallelism as all else is, unless --expert-tensor-parallel-size says
    otherwise, so that their groups step over the ranks of tp.
    """
    if not isinstance(flags, str):
        raise ValueError(f"flags must be a command line, a string, not {flags!r}")
    words = [part for word in flags.split() for part in word.split("=", 1)]
    given = {}
    for word, following in zip(words, words[1:] + [""]):
        if word in MEGATRON:
            given[word] = int(following) if following.isdigit() else following
        elif word.startswith("--") and "-parallel-siz" in word:
            given[word] = following
    sizes = _sizes(given, MEGATRON, "-parallel-size", "Megatron-LM")
    others = sizes["tp"] * sizes["cp"] * sizes["pp"]
    multiple("world_size", whole("world_size", world_size), "tp × cp × pp", others)
    sharded = "--use-distributed-optimizer" in words
    sizes["dp_shard" if sharded else "dp_replicate"] = world_size // others
    etp = sizes["etp"] if "--expert-tensor-parallel-size" in given else sizes["tp"]
    setup = _setup(sizes, world_size, 1 if sharded else 0, etp)
    if "--use-tp-pp-dp-mapping" in words:  # pp before dp
        mesh = [axis for axis in setup.mesh if axis[0] in ("tp", "cp", "pp")]
        mesh += [axis for axis in setup.mesh if axis[0].startswith("dp")]
        experts = setup.experts[:2] + (setup.experts[3], setup.experts[2])
        setup = Setup(tuple(mesh), experts, setup.zero_stage)
    return setup


def accelerate(parallelism, world_size):
    """The `Setup` of Accelerate's ParallelismConfig, a dict, on `world_size` ranks.

    The product has to be the number of ranks, unless nothing is given. sp, DeepSpeed's Ulysses, is a cp here.
    Accelerate itself has neither pipelines nor experts.
    """
    start = "parallelism_config_"  # as in its YAML file
    given = _dict("parallelism", parallelism)
    plain = {name[len(start) :] if name.startswith(start) else name: n for name, n in given.items()}
    sizes = _sizes(plain, ACCELERATE, "_size", "Accelerate")
    if sizes["cp"] > 1 and sizes["sp"] > 1:
        raise ValueError(
            f"cp_size is {sizes['cp']} and sp_size {sizes['sp']}; allowed: one of them above 1; set one to 1"
        )
    sizes["cp"] *= sizes["sp"]
    if sizes["tp"] * sizes["cp"] * sizes["dp_shard"] * sizes["dp_replicate"] == 1:
        sizes["dp_replicate"] = whole("world_size", world_size)
    _fills(sizes, world_size)
    return _setup(sizes, world_size, 3 if sizes["dp_shard"] > 1 else 0, etp=1)


def deepspeed(config, world_size, stages=1):
    """The `Setup` of a DeepSpeed configuration, a dict, on `world_size` ranks; its experts are not read.

    stages: of the pipeline, which is no setting but a number in the code: `PipelineModule(num_stages=…)`.
    """
    zero = _dict("zero_optimization", _dict("config", config).get("zero_optimization", {}))
    stage = zero.get("stage", 0)
    one_of("zero_optimization.stage", stage, (0, 1, 2, 3))
    tp = _dict("tensor_parallel", config.get("tensor_parallel", {})).get("autotp_size", 1) or 1
    sizes = dict.fromkeys(DENSE + ("ep",), 1)
    sizes["tp"], sizes["pp"] = whole("autotp_size", tp), whole("stages", stages)
    if "sequence_parallel_size" in config and "data_parallel_size" in config:  # one alone makes no groups
        sizes["cp"] = whole("sequence_parallel_size", config["sequence_parallel_size"])
    if stages > 1 and stage > 1:
        raise ValueError(
            f"stage {stage} of ZeRO with {stages} stages of a pipeline; allowed: stages 0 and 1; "
            "lower stage to 1"
        )
    others = sizes["tp"] * sizes["cp"] * sizes["pp"]
    multiple("world_size", whole("world_size", world_size), "tp × sp × stages", others)
    sizes["dp_shard" if stage else "dp_replicate"] = world_size // others
    return _setup(sizes, world_size, stage, etp=1)


def _dict(name, given):
    if not isinstance(given, dict):
        raise ValueError(f"{name} must be a dict of settings, not {given!r}")
    return given


def _sizes(given, names, ending, framework):
    """{axis: size} with 1 for what is not given; -1 is left to the caller."""
    sizes = dict.fromkeys(DENSE + ("ep", "etp", "sp"), 1)
    for name, size in given.items():
        if name in names:
            left = names[name] == "dp_shard" and size == -1 and framework == "torchtitan"
            sizes[names[name]] = size if left else whole(name, size)
        elif ending[:-1] in name:  # a slip at the end is found too
            raise ValueError(
                f"{name} is not a size that {framework} knows; allowed: {', '.join(names)}; correct it"
            )
    return sizes


def _fills(sizes, world_size):
    product = 1
    for axis in DENSE:
        product *= sizes[axis]
    if product != whole("world_size", world_size):
        text = " × ".join(f"{axis} {sizes[axis]}" for axis in DENSE)
        raise ValueError(
            f"{text} is {product}; allowed: {world_size}, the number of ranks; change a size, or that number"
        )


def _setup(sizes, world_size, stage, etp):
    mesh = tuple((axis, sizes[axis]) for axis in DENSE)
    each = world_size // sizes["pp"]
    multiple(f"the {each} ranks of a stage", each, "etp × ep", etp * sizes["ep"])
    experts = (
        ("etp", etp),
        ("ep", sizes["ep"]),
        ("expert_dp", each // (etp * sizes["ep"])),
        ("pp", sizes["pp"]),
    )
    return Setup(mesh, experts, stage)
