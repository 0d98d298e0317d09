"""What happens between torch.distributed and gloo? Each operator of `c10d` is checked, queued, and run.

DDP, FSDP, DTensor, pipelines and functional collectives all end in operators such as `c10d::allreduce_`.
torch's dispatcher lets Python have a say before the CPU's kernel: at the key BackendSelect, below modes such
as `trace`. Backends and groups keep their names.
"""

import threading
from collections import Counter, namedtuple
from functools import partial

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from allranks import private
from allranks.streams import Part

from .loans import Loan, check
from .station import RuleBroken, Station

Operator = namedtuple("Operator", "kind inputs outputs returns_tensors", defaults=(True,))
Operator.__doc__ = "A collective: its name, which of its arguments it reads and writes, what it returns."
COLLECTIVES = {
    "allreduce_": Operator("all_reduce", 0, 0),
    "allreduce_coalesced_": Operator("all_reduce", 0, 0, False),
    "broadcast_": Operator("broadcast", 0, 0),
    "reduce_": Operator("reduce", 0, 0, False),
    "allgather_": Operator("all_gather", 1, 0),
    "_allgather_base_": Operator("all_gather", 1, 0),
    "allgather_coalesced_": Operator("all_gather", 1, 0),
    "allgather_into_tensor_coalesced_": Operator("all_gather", 1, 0, False),
    "reduce_scatter_": Operator("reduce_scatter", 1, 0),
    "_reduce_scatter_base_": Operator("reduce_scatter", 1, 0),
    "reduce_scatter_tensor_coalesced_": Operator("reduce_scatter", 1, 0, False),
    "alltoall_": Operator("all_to_all", 1, 0),
    "alltoall_base_": Operator("all_to_all", 1, 0, False),
    "gather_": Operator("gather", 1, 0, False),
    "scatter_": Operator("scatter", 1, 0),
    "barrier": Operator("barrier", None, None, False),
}
BACKENDS = "gloo", "nccl_rules"  # whose operations are held to the rules
CPU = private.cpu_kernels()

station = None  # this rank's, once `enforce` has been called
library = []  # torch.library.Library: an override lives as long as it
batch = threading.local()  # `pending`: what collects the sends and receives of one batch


class Pending(dist.Work):
    """What was issued. Each of `calls` runs one of its `parts`; the results are poison until `wait`."""

    def __init__(self):
        super().__init__()
        self.parts, self.calls, self.works, self.loans, self.outputs = [], [], [], [], []
        self.done, self.error, self.future, self.lock = threading.Event(), None, None, threading.Lock()

    def add(self, part, call, loan=None):
        self.parts.append(part)
        self.calls.append(call)
        self.loans += [loan] if loan else []
        self.outputs += loan.outputs if loan else []

    def run(self, place, buffered):
        """Run a part; after the last one this is done. NCCL has `buffered` a message: nobody waits for it."""
        try:
            self.works.append(self.calls[place]())
            if buffered:
                station.keep(self.works[-1])
            else:
                self.works[-1].wait()
        except Exception as error:
            self.fail(error)
        self.calls[place] = None
        if not any(self.calls):
            self.finish()

    def fail(self, error):
        self.error = self.error or error
        self.finish()

    def finish(self):
        with self.lock:
            self.done.set()
        if self.future:  # its callbacks may wait for communication, which this thread runs
            threading.Thread(target=self.fulfil, daemon=True).start()

    def wait(self, timeout=None):
        station.wait(self)
        self.hand_over()
        return True

    synchronize = wait

    def hand_over(self):
        with self.lock, private.unseen():
            while self.loans:
                self.loans.pop().end()

    def is_completed(self):
        return self.done.is_set()

    def get_future(self):
        """What DDP and communication hooks wait for. It hands the results over, and says so to callbacks."""
        with self.lock:
            self.future = self.future or torch.futures.Future()
            late = self.done.is_set()
        if late:
            self.fulfil()
        return self.future

    def fulfil(self):
        station.operations.pop(self.number, None)
        try:
            if self.error:
                raise self.error
            self.hand_over()
            self.future.set_result(self.outputs)
        except Exception as error:
            self.future.set_exception(error)


def enforce(store, rank, world_size, device=None):
    """Put this rank under NCCL's rules, for good. `store`: of the process group, which may exist already."""
    global station
    if station:
        return
    station = Station(store, rank, world_size, device)
    library.append(torch.library.Library("c10d", "IMPL"))
    for name, operator in COLLECTIVES.items():
        intercept(name, partial(collective, operator))
    intercept("send", partial(message, "send"))
    intercept("recv_", partial(message, "recv"))
    intercept(
        "recv_any_source_", refuse("NCCL receives from one rank, not from any: name the source of recv")
    )
    intercept("monitored_barrier_", refuse("NCCL has no monitored_barrier: use barrier"))
    together = partial(batch_isend_irecv, dist.batch_isend_irecv)
    distributed_c10d.batch_isend_irecv = dist.batch_isend_irecv = together


def create(options, _):
    """The backend "nccl_rules" of `init_process_group`: gloo, under the rules."""
    enforce(options.store, options.group_rank, options.group_size)
    return dist.ProcessGroupGloo(options.store, options.group_rank, options.group_size, options.timeout)


dist.Backend.register_backend("nccl_rules", create, extended_api=True, devices=["cpu"])


def leave(stay=False):
    """Say that this rank's program has ended; with `stay`, return when those of all ranks have."""
    station.leave()
    if stay:
        station.stay()


def communicators():
    """How many communicators this rank's program makes: (eagerly, lazily).

    With a `device_id` torch makes one for each group, at once. Without, it makes one for a group's first
    collective or batch, and one for each pair of ranks that exchange messages outside of batches.
    """
    return len(private.groups()), len(station.communicators)


def intercept(name, kernel):
    """Ask `kernel(call, arguments)` before `c10d::name`; `call(values)` starts that, and returns its work."""
    operator = getattr(torch.ops.c10d, name).default
    schema = operator._schema.arguments
    place = [argument.name for argument in schema].index("process_group")

    def call(values):
        returned = operator.redispatch(CPU, *values)
        return dist.Work.unbox(returned[-1] if isinstance(returned, tuple) else returned)

    def ask(*given):
        if dist.get_backend(dist.ProcessGroup.unbox(given[place])) not in BACKENDS:  # "fake", for one
            return operator.redispatch(CPU, *given)
        names = [argument.name for argument in schema]
        defaults = [argument.default_value for argument in schema[len(given) :]]
        return kernel(call, dict(zip(names, [*given, *defaults], strict=True)))

    library[0].impl(name, ask, "BackendSelect")


def collective(operator, call, arguments):
    """Queue a collective; return when it is done, or at once if it is asynchronous."""
    values, members = list(arguments.values()), members_of(arguments)
    inputs, outputs = (
        [] if place is None else private.leaves(values[place])
        for place in (operator.inputs, operator.outputs)
    )
    what = elements(outputs if operator.kind == "scatter" else inputs)
    if "root_rank" in arguments:
        what += f", root {members[arguments['root_rank']]}"
    sizes = sizes_of(arguments, len(members)) if operator.kind == "all_to_all" else None
    part = Part(operator.kind, None, what if sizes is None else str(inputs[0].dtype)[6:], 0, sizes)
    check(f"{operator.kind} of {what}", [*inputs, *outputs])
    pending = Pending()
    if arguments["async_op"] and outputs:
        written = outputs if takes_part_as_receiver(operator, arguments, members) else []
        loan = Loan(f"{operator.kind} of {what}", inputs, written)
        pending.add(part, partial(call, loan.copy(values)), loan)
    else:
        pending.add(part, partial(call, values))
    station.issue(pending, name_of(arguments), members)
    if not arguments["async_op"]:
        pending.wait()
    work = pending.boxed() if arguments["async_op"] else pending.works[0].boxed()
    return (values[operator.outputs], work) if operator.returns_tensors else work


def message(kind, call, arguments):
    """Queue a send or a receive, or add it to the batch that is being made."""
    values, members = list(arguments.values()), members_of(arguments)
    (t,), peer = values[0], members[values[2]]
    words = f"{kind} {'to' if kind == 'send' else 'from'} rank {peer} of {elements([t])}"
    check(words, [t])
    if arguments["tag"]:
        raise RuleBroken(f"NCCL has no tags: {words} has the tag {arguments['tag']}")
    loan = Loan(words, *(([t], []) if kind == "send" else ([], [t])))
    pending = getattr(batch, "pending", None)
    alone = pending is None
    pending = Pending() if alone else pending
    pending.add(Part(kind, peer, elements([t]), t.nbytes, None), partial(call, loan.copy(values)), loan)
    if alone:
        station.issue(pending, name_of(arguments), members)
    else:
        pending.group = name_of(arguments), members
    return pending.boxed()


def batch_isend_irecv(original, operations):
    """Queue sends and receives as one group call; return one request, as NCCL does."""
    batch.pending = pending = Pending()
    try:
        original(operations)
    finally:
        batch.pending = None
    station.issue(pending, *pending.group)
    return [pending]


def refuse(sentence):
    """A kernel that raises `RuleBroken`."""

    def kernel(call, arguments):
        raise RuleBroken(sentence)

    return kernel


def takes_part_as_receiver(operator, arguments, members):
    """Whether this rank's output is written to: of a reduce only the root's, of a broadcast all others'."""
    is_root = members[arguments.get("root_rank", 0)] == station.rank
    return {"reduce": is_root, "gather": is_root, "broadcast": not is_root}.get(operator.kind, True)


def group_of(arguments):
    return dist.ProcessGroup.unbox(arguments["process_group"])


def name_of(arguments):
    return group_of(arguments).group_name


def members_of(arguments):
    """The ranks of the group, as numbers in the world."""
    return tuple(dist.get_process_group_ranks(group_of(arguments)))


def elements(tensors):
    """What a message consists of, in words: "4 × float32", "2 of 4 × float32"."""
    counts = Counter(f"{t.numel()} × {str(t.dtype)[6:]}" for t in tensors)
    return ", ".join(what if number == 1 else f"{number} of {what}" for what, number in counts.items())


def sizes_of(arguments, ranks):
    """How many elements an all-to-all sends to each rank, and how many it expects from each."""
    if "output_split_sizes" not in arguments:  # lists of tensors
        outputs, inputs = list(arguments.values())[:2]
        return [t.numel() for t in inputs], [t.numel() for t in outputs]
    found = []
    for name in ("input", "output"):
        t, split = arguments[name], arguments[f"{name}_split_sizes"]
        row = t.numel() // len(t) if len(t) else 0
        found.append([rows * row for rows in split] if split else [t.numel() // ranks] * ranks)
    return found
