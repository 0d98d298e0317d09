"""What did this rank communicate? Every collective by kind, with its bytes, and what its sockets really sent.

All of `torch.distributed` (plain calls, DDP, FSDP2, DTensor) ends in operators of torch's dispatcher, and a
dispatch mode sees each of them. The size of a message is counted as nccl-tests does: the whole tensor that an
all-reduce sums, that a reduce-scatter starts from, that an all-gather ends with.
"""

import os
import socket
import struct
from collections import Counter, namedtuple

import torch
import torch.distributed as dist

from allranks import collectives, private
from allranks.host_syncs import HostSyncs

# Operator: the collective's name, and which argument is the message.
C10D = {
    "allreduce_": ("all_reduce", 0),
    "allreduce_coalesced_": ("all_reduce", 0),
    "broadcast_": ("broadcast", 0),
    "reduce_": ("reduce", 0),
    "allgather_": ("all_gather", 0),
    "_allgather_base_": ("all_gather", 0),
    "allgather_coalesced_": ("all_gather", 0),
    "allgather_into_tensor_coalesced_": ("all_gather", 0),
    "reduce_scatter_": ("reduce_scatter", 1),
    "_reduce_scatter_base_": ("reduce_scatter", 1),
    "reduce_scatter_tensor_coalesced_": ("reduce_scatter", 1),
    "alltoall_": ("all_to_all", 1),
    "alltoall_base_": ("all_to_all", 1),
    "gather_": ("gather", 1),
    "scatter_": ("scatter", 0),
    "send": ("send", 0),
    "recv_": ("recv", 0),
    "recv_any_source_": ("recv", 0),
    "barrier": ("barrier", None),
    "monitored_barrier_": ("barrier", None),
}
FUNCTIONAL = {  # `_c10d_functional` and `_dtensor`: the message is the first argument, the group the last
    "all_reduce": "all_reduce",
    "broadcast": "broadcast",
    "all_gather_into_tensor": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter",
    "all_to_all_single": "all_to_all",
    "shard_dim_alltoall": "all_to_all",
}
SENT = {
    "all_reduce": collectives.ring_all_reduce_bytes,
    "reduce_scatter": collectives.ring_reduce_scatter_bytes,
    "all_gather": collectives.ring_all_gather_bytes,
    "all_to_all": collectives.all_to_all_bytes,
    **dict.fromkeys(("broadcast", "reduce", "gather", "scatter"), collectives.rooted_bytes),
    "send": lambda nbytes, world_size: nbytes,
    "recv": lambda nbytes, world_size: 0,
    "barrier": lambda nbytes, world_size: 0,
}
PRODUCTS = {"mm", "addmm", "bmm", "baddbmm"}

Call = namedtuple("Call", "kind nbytes group_size")
Call.__doc__ = "One collective: its name, the bytes of its message, how many ranks took part."


class trace(private.dispatch_mode()):
    """Count what this rank communicates in a `with` block, backward passes included.

    What a future's callback sends on another thread (PowerSGD's second and third message) is in `wire` only.

    with trace() as counted:
        dist.all_reduce(torch.ones(1000))
    counted.calls   # Counter({'all_reduce': 1})
    counted.bytes   # Counter({'all_reduce': 4000}): of the messages
    counted.sent    # 6000.0 with 4 ranks: predicted from the calls, by `allranks.collectives`
    counted.sent_by_kind  # Counter({'all_reduce': 6000.0})
    counted.sent_by_group  # Counter({('0', 'all_reduce'): 6000.0}): by the `group_name` of each group too
    counted.wire    # 7728: what all its TCP connections have sent; None without gloo or Linux
    counted.log     # every `Call`, in order
    counted.events  # ['all_reduce']: what was issued, in order: collectives, and each matrix "product"
    counted.host_syncs  # Counter({'item': 1}): what would have stopped the host on a GPU
    """

    def __init__(self):
        super().__init__()
        self.log, self.events = [], []
        self._groups = []  # of each call, the name of its group
        self.wire = None
        self._syncs = HostSyncs()

    def __enter__(self):
        self._counted = hasattr(socket, "TCP_INFO") and _by_gloo()
        self._before = _connections() if self._counted else {}
        self._written = sum(map(_written, self._before.values()))
        self._syncs.__enter__()
        return super().__enter__()

    def __exit__(self, *error):
        super().__exit__(*error)
        self._syncs.__exit__(*error)
        if self._counted:
            connections = _connections() | self._before  # those of before may be closed by now
            self.wire = sum(map(_written, connections.values())) - self._written
            for connection in (*connections.values(), *self._before.values()):
                connection.close()
        self._before = {}  # so that a rank can return what it counted

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        if any(kind.__name__ == "DTensor" for kind in types):
            return NotImplemented  # it becomes operators on local tensors and collectives: those come here
        call = _read(operator, args)
        if call:
            self.log.append(call)
            self.events.append(call.kind)
            self._groups.append(_group(operator, args).group_name)
        elif not private.is_higher_order(operator):
            self._syncs.see(operator, args)
            if operator.overloadpacket.__name__ in PRODUCTS:
                self.events.append("product")
        return operator(*args, **(kwargs or {}))

    @property
    def calls(self):
        return Counter(call.kind for call in self.log)

    @property
    def bytes(self):
        total = Counter()
        for call in self.log:
            total[call.kind] += call.nbytes
        return total

    @property
    def host_syncs(self):
        return Counter(self._syncs.found)

    @property
    def sent_by_kind(self):
        total = Counter()
        for call in self.log:
            total[call.kind] += SENT[call.kind](call.nbytes, call.group_size)
        return total

    @property
    def sent_by_group(self):
        total = Counter()
        for name, call in zip(self._groups, self.log, strict=True):
            total[name, call.kind] += SENT[call.kind](call.nbytes, call.group_size)
        return total

    @property
    def sent(self):
        return sum(SENT[call.kind](call.nbytes, call.group_size) for call in self.log)


def _read(operator, args):
    """Return the `Call` that an operator is, or None if it does not communicate."""
    if private.is_higher_order(operator):
        return None
    name = operator.overloadpacket.__name__
    if operator.namespace == "c10d" and name in C10D:
        kind, message = C10D[name]
        size = _group(operator, args).size()
        return Call(kind, 0 if message is None else _nbytes(args[message]), size)
    name = name.removesuffix("_").removesuffix("_coalesced")
    if operator.namespace in ("_c10d_functional", "_dtensor") and name in FUNCTIONAL:
        kind = FUNCTIONAL[name]
        size = _group(operator, args).size()
        return Call(kind, _nbytes(args[0]) * (size if kind == "all_gather" else 1), size)
    return None


def _group(operator, args):
    """The group of a collective."""
    if operator.namespace != "c10d":
        return private.group_named(args[-1])
    boxed = next(g for g in args if isinstance(g, torch.ScriptObject) and "ProcessGroup" in str(g._type()))
    return dist.ProcessGroup.unbox(boxed)


def _nbytes(message):
    if isinstance(message, torch.Tensor):
        return message.numel() * message.element_size()
    return sum(_nbytes(part) for part in message)


def _by_gloo():
    """Whether gloo carries this rank's tensors; beside NCCL it has only those on the CPU."""
    backend = dist.get_backend()
    return "gloo" in backend and "nccl" not in backend


def _connections():
    """This process's TCP connections, by name, each opened once more: a count outlives its connection."""
    found = {}
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            name = os.readlink(f"/proc/self/fd/{descriptor}")
            if not name.startswith("socket:") or name in found:
                continue
            connection = socket.socket(fileno=os.dup(int(descriptor)))
        except OSError:  # gone since it was listed
            continue
        listens = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        if connection.family in (socket.AF_INET, socket.AF_INET6) and not listens:
            found[name] = connection
        else:
            connection.close()
    return found


def _written(connection):
    """Bytes written into a connection so far: Linux knows how many arrived, and how many are on their way."""
    from fcntl import ioctl  # not on Windows, where this is never called
    from termios import TIOCOUTQ

    def arrived():
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 128)
        return struct.unpack_from("Q", info, 120)[0]

    while True:  # until nothing arrives between the two readings
        before = arrived()
        (on_their_way,) = struct.unpack("i", ioctl(connection, TIOCOUTQ, bytes(4)))
        if arrived() == before:
            return before + on_their_way
