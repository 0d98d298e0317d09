"""A collective: who has entered it with what, what each rank gets from it, and how long it takes.

Data is (dtype, shape, elements) with the elements in an `array`; sizes are those of nccl-tests.
"""

from array import array
from collections import namedtuple

from .. import collectives

SIZES = {"float32": 4, "float64": 8, "int64": 8, "int32": 4, "uint8": 1, "bool": 1}
CODES = {"float32": "f", "float64": "d", "int64": "q", "int32": "i", "uint8": "B", "bool": "B"}
SCALAR_TYPES = {
    "float32": "Float", "float64": "Double", "int64": "Long", "int32": "Int", "uint8": "Byte", "bool": "Bool"
}  # fmt: skip
FREE_IN_SHAPE = ("barrier", "all_to_all", "all_gather_object")  # ranks may bring tensors of different shapes


class Entry(namedtuple("Entry", "words what call at")):
    """How a rank entered: in words, what it asked, the number of its call, and when."""


class Meeting:
    """One collective of `ranks`: `calls` of those that have come, and afterwards `answers` and `end`."""

    def __init__(self, ranks):
        self.ranks, self.calls, self.answers, self.end, self.nbytes = ranks, {}, None, None, 0

    def enter(self, rank, what, call, now):
        """Note that a rank has come."""
        words = what["name"]
        if words not in FREE_IN_SHAPE:
            dtype, shape, _ = what["data"]
            words += f" with {shape} {SCALAR_TYPES[dtype]}"
        self.calls[rank] = Entry(words, what, call, now)

    def differs(self):
        """True if ranks have entered different collectives, or with different shapes."""
        return len({entry.words for entry in self.calls.values()}) > 1

    def is_complete(self):
        """True if all ranks have come."""
        return len(self.calls) == len(self.ranks)

    def hold(self, α, β):
        """Compute what each rank gets, and when."""
        entries = [self.calls[rank] for rank in self.ranks]
        what, p = entries[0].what, len(self.ranks)
        kind, data = what["name"], [entry.what["data"] for entry in entries]
        if kind == "barrier":
            answers = [None] * p
        elif kind == "all_gather_object":
            answers = [list(data) for _ in self.ranks]
        else:
            dtype = data[0][0]
            columns = [elements for _, _, elements in data]
            grows = p if kind in ("all_gather", "gather") else 1
            self.nbytes = max([len(column) for column in columns]) * SIZES[dtype] * grows
            answers = together(kind, columns, CODES[dtype], [entry.what for entry in entries], self.ranks)
        self.answers = dict(zip(self.ranks, answers))
        self.end = max([entry.at for entry in entries]) + seconds(kind, self.nbytes, p, α, β)


def seconds(kind, nbytes, world_size, α, β):
    """Seconds of a collective: over a ring, on a tree with one root, and for a barrier in ⌈log2 p⌉ rounds."""
    if world_size == 1:
        return 0.0
    if kind in ("all_reduce", "all_gather", "reduce_scatter"):
        cost = collectives.cost(kind, "ring", nbytes, world_size)
    elif kind == "all_to_all":
        cost = collectives.pairwise(nbytes, world_size)
    elif kind in ("broadcast", "reduce"):
        cost = collectives.binomial_broadcast(nbytes, world_size)
    elif kind in ("gather", "scatter"):
        cost = collectives.linear_scatter(nbytes, world_size)
    else:
        cost = collectives.recursive_doubling_all_reduce(0, world_size)
    return cost.seconds(α, β)


def reduced(columns, op, code):
    """The element-wise reduction of `columns`, in the order of the ranks."""
    total = columns[0]
    for column in columns[1:]:
        if op in ("SUM", "AVG"):
            values = [a + b for a, b in zip(total, column)]
        elif op == "PRODUCT":
            values = [a * b for a, b in zip(total, column)]
        else:
            pick = max if op == "MAX" else min
            values = [pick(a, b) for a, b in zip(total, column)]
        total = array(code, values)
    return array(code, [a / len(columns) for a in total]) if op == "AVG" else total


def together(kind, columns, code, asked, ranks):
    """What each of `ranks` gets: an array of elements; `asked` is what each of them asked."""
    p = len(ranks)
    if kind in ("all_reduce", "reduce", "reduce_scatter"):
        total = reduced(columns, asked[0]["op"], code)
        if kind != "reduce_scatter":
            return [total] * p
        n = len(total) // p
        return [total[i * n : i * n + n] for i in range(p)]
    if kind == "broadcast":
        return [columns[ranks.index(asked[0]["root"])]] * p
    if kind == "scatter":
        whole = columns[ranks.index(asked[0]["root"])]
        n = len(whole) // p
        return [whole[i * n : i * n + n] for i in range(p)]
    if kind in ("all_gather", "gather"):
        whole = array(code, [])
        for column in columns:
            whole.extend(column)
        return [whole] * p
    got = [array(code, []) for _ in ranks]
    for column, what in zip(columns, asked):
        first = 0
        for place, n in enumerate(what["sizes"]):
            got[place].extend(column[first : first + n])
            first += n
    return got
