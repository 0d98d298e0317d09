"""What would stop the host on a GPU? Every call whose answer the CPU needs before it can go on.

Kernels run behind the host's back, until it asks for a number or for a shape that depends on one: it then
waits for all that it has queued. On a GPU `torch.cuda.set_sync_debug_mode` finds these calls (PyTorch
documentation, CUDA semantics); here they are counted on the CPU, where they cost nothing.
"""

from collections import Counter

import torch
from torch.overrides import TorchFunctionMode

OPERATORS = {  # of ATen: a number for Python, or an output whose shape depends on the data
    "_local_scalar_dense": "item",
    "nonzero": "nonzero",
    "masked_select": "masked_select",
    "_unique2": "unique",
    "unique_dim": "unique",
    "unique_consecutive": "unique",
    "bincount": "bincount",
    "equal": "equal",
}
METHODS = ("tolist", "numpy", "__array__", "cpu")  # to the host, through no operator if the data are there
CHECKED_ON_THE_CPU_ONLY = ("one_hot",)  # its kernel for the CPU looks at the data, that for CUDA does not


class HostSyncs(TorchFunctionMode):
    """Counts by name, in `found`, while it is entered; operators are reported to it by `see`."""

    def __init__(self):
        super().__init__()
        self.found, self.excused = Counter(), 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        name = getattr(function, "__name__", "")
        if name in METHODS:
            self.found[name] += 1
        excused = name in CHECKED_ON_THE_CPU_ONLY
        self.excused += excused
        try:
            return function(*args, **(kwargs or {}))
        finally:
            self.excused -= excused

    def see(self, operator, args):
        """Take note of one operator of torch's dispatcher."""
        name = operator.overloadpacket.__name__
        if operator.namespace != "aten" or self.excused:
            return
        if name in OPERATORS:
            self.found[OPERATORS[name]] += 1
        elif name == "repeat_interleave" and operator._overloadname == "Tensor":
            self.found[name] += 1
        elif name in ("index", "index_put", "index_put_") and any(map(is_mask, args[1])):
            self.found["boolean index"] += 1


def is_mask(index):
    return isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8)
