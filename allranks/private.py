"""Which private names of other packages does this one use? These, and only here.

A private name may move with any release. `tests/ranks/test_private.py` says for each what breaks when it
does, and finds any that another module uses; `requirements.txt` bounds torch from above for the same reason.
torch is imported when a function is called: `import allranks` must not import it.
"""

import atexit
import contextlib
import logging
import sys

import cloudpickle.cloudpickle as _by_value

# How cloudpickle makes a function or a class again, and fills the class (see `launch.pickling`).
make_function = _by_value._make_function
make_skeleton = _by_value._make_skeleton_class
makers_of_classes = (make_skeleton, _by_value._make_skeleton_enum)
set_class_state = _by_value._class_setstate
global_names = _by_value._extract_code_globals  # of a function's code: a dict, which it keeps and reads again
known_classes = _by_value._DYNAMIC_CLASS_TRACKER_BY_ID  # what has been sent or received by value, by its id

# What DistributedDataParallel imports with its first model: the fork server does it.
compiler = "torch._dynamo"


def flight_recorder():
    """Everything that this process's groups have entered, with the lines: pickled plain data, as bytes.

    Nothing public lists it. To name lines torch asks whether it has `_inductor.codecache`, and the question
    alone would import the whole compiler, two seconds; None in its place says no.
    """
    import torch

    absent = "_inductor" not in vars(torch)
    if absent:
        torch._inductor = None
    try:
        return torch._C._distributed_c10d._dump_fr_trace()
    finally:
        if absent and vars(torch).get("_inductor", absent) is None:
            del torch._inductor


def groups():
    """The groups that this process is a member of: `{name: [rank, …]}`. The flight recorder leaves it out."""
    from torch.distributed import distributed_c10d

    world = distributed_c10d._world
    ranks = world.pg_group_ranks
    return {name: [*ranks[group]] for group, name in world.pg_names.items() if group in ranks}


def groups_made():
    """How many groups this process has been asked to make, the default one included; torch names them by it.

    All ranks have to make all groups, so all of them have the same number, unless one is on its way.
    """
    from torch.distributed import distributed_c10d

    return distributed_c10d._world.group_count


def default_store():
    """The store that the default group was made with, by torchrun's rendezvous for instance."""
    from torch.distributed import distributed_c10d

    return distributed_c10d._get_default_store()


def group_named(name):
    """The group that a functional collective names in its last argument."""
    from torch.distributed import distributed_c10d

    return distributed_c10d._resolve_process_group(name)


def set_timeout(timeout):
    """Change how long a collective of the default group may take; `init_process_group` sets it once."""
    from torch.distributed import distributed_c10d

    distributed_c10d._set_pg_timeout(timeout)


def use_the_cpu():
    """Let `fully_shard` take the CPU: it asks what torch was built for, not what this process may use."""
    import torch

    if torch._C._get_accelerator().type != "cpu":
        torch._C._get_accelerator = lambda *_: torch.device("cpu")


def matmul_precision():
    """What `torch.set_float32_matmul_precision` was called with; None where `fp32_precision` is in use."""
    import torch

    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:  # torch refuses to answer once its new settings differ from each other
        return None


def print_options():
    """What `torch.set_printoptions` was called with, as its keywords; it has no counterpart that reads."""
    from torch import _tensor_str

    return dict(vars(_tensor_str.PRINT_OPTS))


def dispatch_mode():
    """The class whose subclasses see every operator of torch's dispatcher."""
    from torch.utils._python_dispatch import TorchDispatchMode

    return TorchDispatchMode


@contextlib.contextmanager
def unseen():
    """A block in which no dispatch mode and no subclass of Tensor sees what is done."""
    import torch
    from torch.utils import _python_dispatch

    with _python_dispatch._disable_current_modes(), torch._C.DisableTorchFunction():
        yield


def fake_world(rank, world_size):
    """Make this process rank `rank` of a world of fake groups: each collective is done at once, by nobody."""
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world_size)


def fake_tensors():
    """A block in which tensors have a shape, a dtype and a device, and no memory."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode(allow_non_fake_inputs=True)


def storage_of(tensor):
    """What tells a tensor's storage apart from all others; a fake one has no address."""
    return tensor.untyped_storage()._cdata


def cpu_kernels():
    """What an operator's CPU kernel is called by, once another one has been registered above it."""
    import torch

    return torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)


def leaves(tree):
    """The tensors, and whatever else is no container, in nested lists, tuples and dicts."""
    from torch.utils import _pytree

    return _pytree.tree_leaves(tree)


@contextlib.contextmanager
def unheard_meshes():
    """A block in which torch does not log that a DeviceMesh is read where there are no groups, and a list of
    what it wanted to log: every DTensor comes with a mesh."""
    logger, heard = logging.getLogger("torch.distributed.device_mesh"), []
    logger.addFilter(heard.append)  # it returns None: the message is dropped
    try:
        yield heard
    finally:
        logger.removeFilter(heard.append)


def forget_exit_functions():
    """Let `atexit` forget what it was told in the process that this one was forked from."""
    atexit._clear()


def run_exit_functions():
    """Run what `atexit` was told, as Python does at its end; whatever one raises is printed."""
    atexit._run_exitfuncs()


def attention_with_sums(device):
    """Attention on "cpu" or "cuda" whose second result is the log of each query's sum, and its backward pass.

    `F.scaled_dot_product_attention` calls these operators of ATen, and keeps what merging needs to itself.
    """
    import torch

    name = "_scaled_dot_product_flash_attention" + ("_for_cpu" if device == "cpu" else "")
    return getattr(torch.ops.aten, name), getattr(torch.ops.aten, name + "_backward")


def is_higher_order(operator):
    """True for an operator that takes functions, such as `torch.cond`: it has no overloads."""
    import torch

    return isinstance(operator, torch._ops.HigherOrderOperator)


def work_of_this_thread():
    """The future of what an executor runs in this thread (`asyncio.to_thread`), or None."""
    frame = sys._getframe()
    while frame and not (frame.f_code.co_name == "run" and "concurrent" in frame.f_code.co_filename):
        frame = frame.f_back
    return getattr(frame and frame.f_locals.get("self"), "future", None)


def is_abandoned(work):
    """True if what awaited such a future was cancelled: asyncio tells neither the future nor its thread.

    asyncio's own future is in a variable of the callback that it has added.
    """
    for callback in getattr(work, "_done_callbacks", ()):
        names = getattr(getattr(callback, "__code__", None), "co_freevars", ())
        if "destination" in names:
            return callback.__closure__[names.index("destination")].cell_contents.cancelled()
    return False


def deepspeed():
    """DeepSpeed for ranks on CPUs: it compiles nothing, and what it would have to compile is a RuntimeError.

    Nothing public turns its builds off: it would compile an operator when its first engine starts, and a
    rank that is ended meanwhile leaves a lock that every later build waits for. `torch.compile` decorates its
    Muon; that alone would import torch's whole compiler, a second on every rank.
    """
    import os
    import warnings

    os.environ["DS_ACCELERATOR"] = "cpu"
    warnings.filterwarnings("ignore", r"`torch\.distributed\.", FutureWarning)
    import deepspeed.ops
    from deepspeed.ops.op_builder.builder import OpBuilder

    def load(builder, *_, **__):
        raise RuntimeError(
            f"DeepSpeed would compile {builder.name} now, but this lab compiles nothing: DeepSpeed's Adam "
            'needs it ("torch_adam": true takes torch\'s instead), and so does nvme'
        )

    OpBuilder.load = load
    deepspeed.ops.__compatible_ops__ = {}  # which operators it may compile for its own use: none
    _without_compiler("deepspeed.runtime.zero.muon.original_muon")
    return deepspeed


def _without_compiler(module):
    """Import `module` with a `torch.compile` that returns what it is given."""
    import importlib

    import torch

    kept, torch.compile = torch.compile, lambda function=None, **_: function or (lambda given: given)
    try:
        importlib.import_module(module)
    finally:
        torch.compile = kept
