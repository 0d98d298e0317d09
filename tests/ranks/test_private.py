"""Each private name of another package that this one uses is in `allranks/private.py`, and still works.

When one of these tests fails with a new release of torch or of Python, its name says what does not work any
more.
"""

import ast
import concurrent.futures
import io
import pickle
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import cloudpickle
import pytest
import torch
import torch.distributed as dist
from packaging.requirements import Requirement
from packaging.version import Version

from allranks import launch, private

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(set((ROOT / "allranks").rglob("*.py")) - {ROOT / "allranks" / "private.py"})
PACKAGES = {
    "torch",
    "multiprocessing",
    "cloudpickle",
    "concurrent",
    "asyncio",
    "IPython",
    "ipykernel",
    "numpy",
}


def is_private(name):
    return name.startswith("_") and not name.endswith("__")


def private_names(source):
    """The private names of other packages in a module: those it imports, and the attributes it takes."""
    roots = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                roots[alias.asname or alias.name.partition(".")[0]] = alias.name if alias.asname else None
                if alias.name.partition(".")[0] in PACKAGES and any(map(is_private, alias.name.split("."))):
                    yield alias.name
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                roots[alias.asname or alias.name] = name
                if name.partition(".")[0] in PACKAGES and any(map(is_private, name.split("."))):
                    yield name
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            root = node.value
            while isinstance(root, ast.Attribute):
                root = root.value
            if isinstance(root, ast.Name) and root.id in roots:
                name = roots[root.id] or root.id
                if name.partition(".")[0] in PACKAGES:
                    yield f"{ast.unparse(node)}"


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_private_names_are_in_one_module(file):
    assert list(private_names(file.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    "source, names",
    [
        ("import torch\ntorch._C._get_accelerator()", ["torch._C._get_accelerator", "torch._C"]),
        ("from torch.utils import _pytree", ["torch.utils._pytree"]),
        ("import torch._dynamo", ["torch._dynamo"]),
        ("import torch.distributed as dist\ndist.distributed_c10d._world", ["dist.distributed_c10d._world"]),
        ("import torch\nself._x, torch.__version__, _y", []),
    ],
)
def test_a_private_name_is_found(source, names):
    assert list(private_names(source)) == names


def test_torch_has_an_upper_bound_and_the_installed_one_is_below():
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    wanted = [Requirement(line.split("#")[0]) for line in lines if line.startswith("torch ")]
    (built,) = (
        Requirement(line.strip(' ",'))
        for line in (ROOT / "pyproject.toml").read_text().splitlines()
        if '"torch>' in line
    )
    assert wanted == [built]
    assert "<" in str(built.specifier)
    assert Version(torch.__version__).public in built.specifier


# ---- what stops working when one moves ----


def refused_build():
    private.deepspeed()
    from deepspeed.ops.op_builder.cpu import CPUAdamBuilder

    with pytest.raises(RuntimeError) as refused:
        CPUAdamBuilder().load()
    return str(refused.value), "torch._inductor.compile_fx" in sys.modules


def test_deepspeed_builds_by_one_method_or_a_lab_would_compile():
    pytest.importorskip("deepspeed", reason="the peer DeepSpeed is not installed")
    ((said, has_compiler),) = launch(refused_build, world_size=1, backend="gloo")
    assert said.startswith("DeepSpeed would compile cpu_adam now")
    assert not has_compiler


def step():
    dist.new_group([0])
    dist.all_reduce(torch.ones(3))
    return private.flight_recorder(), private.groups(), dist.distributed_c10d._get_default_group().group_name


def test_the_flight_recorder_says_what_ranks_have_entered_or_no_mismatch_is_named():
    entries = pickle.loads(launch(step, world_size=2)[1][0])["entries"]
    needed = {
        "collective_seq_id",
        "frames",
        "input_dtypes",
        "input_sizes",
        "is_p2p",
        "output_sizes",
        "pg_id",
        "record_id",
    }
    assert needed <= set(entries[0])
    assert (entries[0]["profiling_name"], entries[0]["process_group"][1]) == ("gloo:all_reduce", "default_pg")


def test_groups_are_counted_or_a_rank_that_made_one_alone_is_not_found():
    def made():
        before = private.groups_made()
        dist.new_group([0])
        return before, private.groups_made()

    assert launch(made, world_size=2) == [(1, 2)] * 2


def test_lines_are_named_without_importing_the_compiler():
    program = "import torch, sys; from allranks import private; private.flight_recorder(); " + (
        "print('torch._inductor' in sys.modules, '_inductor' in vars(torch))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_groups_have_names_and_members_or_those_of_one_name_are_compared():
    (_, first, name), (_, second, _) = launch(step, world_size=2)
    assert sorted(first.values()) == [[0], [0, 1]] and first[name] == [0, 1]
    assert list(second.values()) == [[0, 1]]


def test_a_group_is_found_by_its_name_or_trace_does_not_know_how_many_ranks_take_part():
    def find():
        return private.group_named(dist.group.WORLD.group_name).size()

    assert launch(find, world_size=2) == [2, 2]


def test_the_deadline_of_collectives_can_be_changed_or_a_later_launch_under_torchrun_keeps_the_first_ones(
    tmp_path,
):
    def wait(over):
        private.set_timeout(timedelta(milliseconds=200))
        if dist.get_rank() == 0:
            try:
                dist.all_reduce(torch.ones(1))
            except RuntimeError as error:
                over.touch()
                return str(error)
        while not over.exists():
            time.sleep(0.01)

    assert "200ms" in launch(wait, tmp_path / "over", world_size=2)[0]


def test_the_cpu_can_be_the_accelerator_or_fully_shard_takes_a_gpu_that_is_hidden():
    def find():
        torch._C._get_accelerator = lambda *_: torch.device("cuda")  # torch from PyPI
        private.use_the_cpu()
        from torch.distributed.fsdp._fully_shard import _fsdp_init

        return _fsdp_init._init_default_mesh().device_type

    assert launch(find, world_size=1) == ["cpu"]


def test_print_options_can_be_read_or_ranks_print_with_the_default_ones():
    assert set(private.print_options()) == {"precision", "threshold", "edgeitems", "linewidth", "sci_mode"}


def test_a_dispatch_mode_sees_operators_or_trace_counts_nothing():
    seen = []

    class Mode(private.dispatch_mode()):
        def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
            seen.append((str(operator), private.is_higher_order(operator)))
            return operator(*args, **(kwargs or {}))

    with Mode():
        torch.ones(2) + 1
    assert ("aten.add.Tensor", False) in seen


def test_nothing_sees_what_nccls_rules_do_or_they_are_counted_and_poisoned_themselves():
    seen = []

    class Mode(private.dispatch_mode()):
        def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
            seen.append(operator)
            return operator(*args, **(kwargs or {}))

    with Mode(), private.unseen():
        torch.ones(2) + 1
    assert seen == []


def test_the_kernel_of_the_cpu_can_be_called_or_nccls_rules_have_nothing_underneath():
    x = torch.ones(2)
    assert torch.ops.aten.add.Tensor.redispatch(private.cpu_kernels(), x, x).tolist() == [2, 2]


def test_a_tree_has_leaves_or_nccls_rules_lend_no_lists():
    assert private.leaves([1, (2, {"a": 3}), None]) == [1, 2, 3, None]


def test_the_compiler_can_be_loaded_ahead_or_each_rank_with_ddp_takes_seconds():
    __import__(private.compiler)
    torch.nn.parallel.DistributedDataParallel  # noqa: B018
    assert private.compiler in sys.modules


def test_cloudpickle_makes_classes_and_functions_as_it_did_or_results_overwrite_classes():
    def maker():
        class Local:
            pass

        return Local

    local = maker()
    data = cloudpickle.dumps(local)
    for name in ("_make_skeleton_class", "_class_setstate"):
        assert name.encode() in data
    assert b"_make_function" in cloudpickle.dumps(lambda: local)
    assert local in private.known_classes.values()
    number = next(number for number, known in private.known_classes.items() if known is local)
    assert number.encode() in data


def test_cloudpickle_keeps_the_names_of_globals_or_classes_inside_functions_miss_theirs():
    def f():
        return ROOT

    assert private.global_names(f.__code__) is private.global_names(f.__code__)
    assert list(private.global_names(f.__code__)) == ["ROOT"]

    class Local:
        pass

    *_, settings, _, _ = cloudpickle.Pickler(io.BytesIO()).reducer_override(Local)[1]
    assert settings == {"__module__": __name__}  # to which `launch.pickling` adds the slots


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_attention_gives_the_log_of_its_sums_or_parts_of_a_sequence_cannot_be_merged(device):
    forward, backward = private.attention_with_sums(device)
    names = [[argument.name for argument in each.default._schema.arguments] for each in (forward, backward)]
    assert names[0][:5] == ["query", "key", "value", "dropout_p", "is_causal"]
    assert forward.default._schema.returns[1].name == "logsumexp"
    ragged = [] if device == "cpu" else ["cum_seq_q", "cum_seq_k", "max_q", "max_k"]
    dropped = [] if device == "cpu" else ["philox_seed", "philox_offset"]
    given = [
        "grad_out",
        "query",
        "key",
        "value",
        "out",
        "logsumexp",
        *ragged,
        "dropout_p",
        "is_causal",
        *dropped,
    ]
    assert names[1][: len(given)] == given


def test_an_executors_work_and_who_awaits_it_are_found_or_a_cancelled_launch_goes_on():
    import asyncio

    found = {}

    def work():
        found["future"] = private.work_of_this_thread()
        while not private.is_abandoned(found["future"]):
            time.sleep(0.01)
        found["noticed"] = True

    async def main():
        task = asyncio.create_task(asyncio.to_thread(work))
        while "future" not in found:
            await asyncio.sleep(0.01)
        assert not private.is_abandoned(found["future"])
        task.cancel()

    asyncio.run(asyncio.wait_for(main(), 300))
    assert found["noticed"]
    assert isinstance(found["future"], concurrent.futures.Future)
    assert private.work_of_this_thread() is None
    assert threading.active_count() >= 1


def in_a_fake_world():
    dist.destroy_process_group()
    private.fake_world(5, 64)
    with private.fake_tensors():
        x = torch.ones(10**12)
        dist.all_reduce(x)
        halves = [private.storage_of(t) for t in x.chunk(2)]
        return dist.get_rank(), dist.get_world_size(), x.nbytes, len({*halves, private.storage_of(x + 1)})


def test_one_process_is_one_of_many_without_memory_or_large_worlds_are_not_counted():
    assert launch(in_a_fake_world, world_size=1) == [(5, 64, 4 * 10**12, 2)]
