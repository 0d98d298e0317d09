"""torch.distributed on simulated ranks: each call asks the world, which answers now, or stops this run."""

from collections import namedtuple

from .making import cat
from .storage import count, elements
from .tensors import Tensor

ask = None  # ask(kind, what) of whoever runs a rank: `what()` describes the request, if it is a new one
me = None  # (rank, world size)
calls = []  # (kind, bytes, ranks of the group) of each call of this run: what `trace` counts

Group = namedtuple("Group", "number ranks")


class ReduceOp:
    """How a reduction combines."""

    SUM, AVG, MAX, MIN, PRODUCT = "SUM", "AVG", "MAX", "MIN", "PRODUCT"


class group:
    """The default group."""

    WORLD = None


# ---- ranks and groups ----
def ranks_of(group):
    """The ranks of a group, as a tuple."""
    if me is None:
        raise RuntimeError("there is no process group here: only a rank, in launch, can communicate")
    return tuple(range(me[1])) if group is None else group.ranks


def get_rank(group=None):
    """This rank's number in a group, -1 outside of it."""
    ranks = ranks_of(group)
    return ranks.index(me[0]) if me[0] in ranks else -1


def get_world_size(group=None):
    """The number of ranks of a group, -1 outside of it."""
    ranks = ranks_of(group)
    return len(ranks) if me[0] in ranks else -1


def get_process_group_ranks(group=None):
    """The ranks of a group."""
    return list(ranks_of(group))


def is_initialized():
    """True on a rank."""
    return me is not None


def new_group(ranks=None):
    """A group of some ranks, which all ranks have to make."""
    ranks = ranks_of(None) if ranks is None else tuple(sorted(ranks))
    return Group(ask("new_group", lambda: {}), ranks)


def peer_of(rank, group, group_rank):
    """The rank that a message goes to, or comes from."""
    rank = rank if group_rank is None else ranks_of(group)[group_rank]
    if rank is not None and not 0 <= rank < len(ranks_of(None)):
        raise ValueError(f"rank {rank} is not one of the {me[1]} ranks of this world")
    if rank == me[0]:
        raise ValueError(f"rank {rank} cannot send to itself, or receive from itself")
    return rank


def root_of(rank, group, group_rank):
    """The rank that a collective has as its root."""
    return ranks_of(group)[group_rank] if group_rank is not None else 0 if rank is None else rank


# ---- messages ----
def packed(t):
    """(dtype, shape, elements) of a tensor."""
    flat = t.flat()
    return t.dtype.name, tuple(t._shape), elements(t.dtype, flat) if isinstance(flat, list) else flat


def place_for(t):
    """(dtype, shape, None) of the tensor that will be received into."""
    return t.dtype.name, tuple(t._shape), None


def called(kind, t, group=None, copies=1):
    """Note a call; `t` must be a tensor."""
    if not isinstance(t, Tensor):
        raise TypeError(f"{kind} needs a tensor, not {type(t).__name__}")
    calls.append((kind, t.nbytes * copies, len(ranks_of(group))))


class Work:
    """What an asynchronous call returns; `put` takes the answer when it is there."""

    def __init__(self, number, put=None):
        self.number, self.put = number, put

    def wait(self, timeout=None):
        """Wait until it is done."""
        answer = ask("wait", lambda: {"number": self.number})
        if self.put:
            self.put(answer)
            self.put = None
        return True

    def is_completed(self):
        """True if it is done."""
        return ask("is_completed", lambda: {"number": self.number})


def receiver(t):
    """A function that puts the answer to a receive into `t`."""
    return lambda answer: t.put(answer[1])


def send(tensor, dst=None, group=None, tag=0, group_dst=None):
    """Send a tensor to a rank; returns when it has been received."""
    called("send", tensor)
    peer = peer_of(dst, group, group_dst)
    ask("send", lambda: {"peer": peer, "tag": tag, "data": packed(tensor)})


def recv(tensor, src=None, group=None, tag=0, group_src=None):
    """Receive a tensor from a rank, or from any if `src` is None; returns from which."""
    called("recv", tensor)
    peer = peer_of(src, group, group_src)
    source, came = ask("recv", lambda: {"peer": peer, "tag": tag, "data": place_for(tensor)})
    tensor.put(came)
    return source


def isend(tensor, dst=None, group=None, tag=0, group_dst=None):
    """Begin to send."""
    return batch_isend_irecv([P2POp(isend, tensor, dst, group, tag, group_dst)])[0]


def irecv(tensor, src=None, group=None, tag=0, group_src=None):
    """Begin to receive."""
    return batch_isend_irecv([P2POp(irecv, tensor, src, group, tag, group_src)])[0]


class P2POp:
    """One message of `batch_isend_irecv`; `op` is `isend` or `irecv`."""

    def __init__(self, op, tensor, peer=None, group=None, tag=0, group_peer=None):
        self.op, self.tensor, self.tag = op, tensor, tag
        self.peer = peer_of(peer, group, group_peer)


def batch_isend_irecv(ops):
    """Begin to send and receive several tensors; like torch's, it takes a list and nothing else."""
    if not isinstance(ops, list) or not all(isinstance(each, P2POp) for each in ops):
        raise ValueError("batch_isend_irecv takes a list of P2POp")
    for each in ops:
        called("send" if each.op is isend else "recv", each.tensor)

    def what():
        halves = [(op.peer, op.tag, (packed if op.op is isend else place_for)(op.tensor)) for op in ops]
        return {"ops": halves}

    numbers = ask("batch", what)
    return [Work(n, None if op.op is isend else receiver(op.tensor)) for n, op in zip(numbers, ops)]


# ---- collectives ----
def collective(kind, t, group, async_op, put, **more):
    """Enter a collective with the tensor `t`; put(answer) stores what comes."""
    ranks = ranks_of(group)
    called(kind, t, group, len(ranks) if kind in ("all_gather", "gather") else 1)

    def what():
        return dict(more, name=kind, ranks=ranks, data=packed(t), later=async_op)

    answer = ask("collective", what)
    if async_op:
        return Work(answer, put)
    put(answer)


def into(t):
    """A function that writes an answer into `t`."""
    return lambda answer: t.write(answer)


def into_all(tensors):
    """A function that writes an answer into `tensors`, one behind the other."""

    def put(answer):
        at = 0
        for t in tensors:
            t.write(answer[at : at + t.numel()])
            at += t.numel()

    return put


def nowhere(answer):
    """Drop an answer: another rank is the root."""


def all_reduce(tensor, op=ReduceOp.SUM, group=None, async_op=False):
    """Leave the sum of all ranks' tensors on each of them."""
    return collective("all_reduce", tensor, group, async_op, into(tensor), op=op)


def reduce(tensor, dst=None, op=ReduceOp.SUM, group=None, async_op=False, group_dst=None):
    """Leave the sum on rank `dst`."""
    root = root_of(dst, group, group_dst)
    put = into(tensor) if me[0] == root else nowhere
    return collective("reduce", tensor, group, async_op, put, op=op, root=root)


def broadcast(tensor, src=None, group=None, async_op=False, group_src=None):
    """Give rank `src`'s tensor to all ranks."""
    root = root_of(src, group, group_src)
    return collective("broadcast", tensor, group, async_op, into(tensor), root=root)


def all_gather_single(output, input, group=None, async_op=False):
    """Collect all ranks' tensors in one."""
    return collective("all_gather", input, group, async_op, into(output))


def all_gather(tensor_list, tensor, group=None, async_op=False):
    """Collect all ranks' tensors in a list of tensors."""
    return collective("all_gather", tensor, group, async_op, into_all(tensor_list))


def gather(tensor, gather_list=None, dst=None, group=None, async_op=False, group_dst=None):
    """Collect all ranks' tensors on rank `dst`."""
    root = root_of(dst, group, group_dst)
    return collective("gather", tensor, group, async_op, into_all(gather_list or []), root=root)


def scatter(tensor, scatter_list=None, src=None, group=None, async_op=False, group_src=None):
    """Give each rank its tensor of rank `src`'s list."""
    root = root_of(src, group, group_src)
    whole = cat([tensor.reshape(-1)] * get_world_size(group))
    if me[0] == root:
        whole = cat([t.reshape(-1) for t in scatter_list])
    return collective("scatter", whole, group, async_op, into(tensor), root=root)


def reduce_scatter_single(output, input, op=ReduceOp.SUM, group=None, async_op=False):
    """Leave on each rank its part of the sum."""
    return collective("reduce_scatter", input, group, async_op, into(output), op=op)


def reduce_scatter(output, input_list, op=ReduceOp.SUM, group=None, async_op=False):
    """Leave on each rank its part of the sum; the parts are a list of tensors."""
    return reduce_scatter_single(output, cat([t.reshape(-1) for t in input_list]), op, group, async_op)


def all_to_all_single(
    output, input, output_split_sizes=None, input_split_sizes=None, group=None, async_op=False
):
    """Give part i of this rank's tensor to rank i."""
    p, row = get_world_size(group), count(input._shape[1:])
    sizes = input_split_sizes or [len(input) // p] * p
    return collective("all_to_all", input, group, async_op, into(output), sizes=[n * row for n in sizes])


def all_to_all(output_tensor_list, input_tensor_list, group=None, async_op=False):
    """Give tensor i of this rank's list to rank i."""
    whole = cat([t.reshape(-1) for t in input_tensor_list])
    sizes = [t.numel() for t in input_tensor_list]
    return collective("all_to_all", whole, group, async_op, into_all(output_tensor_list), sizes=sizes)


def barrier(group=None, async_op=False):
    """Wait until all ranks are here."""
    ranks = ranks_of(group)
    calls.append(("barrier", 0, len(ranks)))
    what = {"name": "barrier", "ranks": ranks, "data": None, "later": async_op}
    answer = ask("collective", lambda: what)
    return Work(answer) if async_op else None


def all_gather_object(object_list, obj, group=None):
    """Collect an object of each rank."""
    what = {"name": "all_gather_object", "ranks": ranks_of(group), "data": obj, "later": False}
    object_list[:] = ask("collective", lambda: what)


all_gather_into_tensor, reduce_scatter_tensor = all_gather_single, reduce_scatter_single


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    raise AttributeError(f"the page has no torch.distributed.{name}; open the notebook for the real one")
