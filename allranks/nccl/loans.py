"""What may a program do with tensors that a communication is using? Nothing, until it has waited for it.

NCCL reads and writes device memory while the program goes on. Here it gets copies, and the program's own
tensors tell on it: outputs are poison until `wait`, and neither inputs nor outputs may have been written to.
"""

import torch

from .station import RuleBroken

DTYPES = (  # ncclDataType in torch/csrc/distributed/c10d/NCCLUtils.hpp
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn, torch.float8_e5m2),
    *(torch.int8, torch.uint8, torch.int32, torch.int64, torch.bool),
)


class Loan:
    """Copies of the `inputs` and `outputs` of one operation, which stands in `words` in what this raises."""

    def __init__(self, words, inputs, outputs):
        self.words, self.outputs = words, outputs
        written = {t.untyped_storage().data_ptr() for t in outputs}
        apart = [t for t in inputs if t.untyped_storage().data_ptr() not in written]
        self.copies = {id(t): t.data.clone() for t in [*inputs, *outputs]}  # gloo may write into any of them
        for t in outputs:
            t.data.fill_(poison(t))  # `data`: autograd need not know, as it does not know what NCCL writes
        lent = [(t, "input") for t in apart] + [(t, "output") for t in outputs]
        self.lent = [(t, which, t.data.clone(), writes(t)) for t, which in lent]

    def copy(self, value):
        """The copy of a tensor that was lent; lists of lists of them; everything else as it is."""
        if isinstance(value, list | tuple):
            return [self.copy(one) for one in value]
        return self.copies.get(id(value), value) if isinstance(value, torch.Tensor) else value

    def end(self):
        """Hand the results over; raise `RuleBroken` if the program has not kept its hands off."""
        for t, which, before, version in self.lent:
            if writes(t) != version or not same(t, before):
                raise RuleBroken(f"NCCL uses the {which} of {self.words} until wait(), but it was written to")
        for t in self.outputs:
            t.data.copy_(self.copies[id(t)])


def writes(t):
    """How often autograd has seen a tensor written to; not what `data`, NumPy or NCCL wrote."""
    return 0 if t.is_inference() else t._version


def poison(t):
    """What a tensor holds that must not be read yet: NaN, the largest integer, or False."""
    if t.dtype.is_floating_point:
        return torch.nan
    return False if t.dtype == torch.bool else torch.iinfo(t.dtype).max


def same(one, other):
    """Whether two tensors are equal bit by bit."""
    return torch.equal(one.data.reshape(-1).view(torch.uint8), other.reshape(-1).view(torch.uint8))


def check(words, tensors):
    """Raise `RuleBroken` for tensors that NCCL does not take."""
    for t in tensors:
        if t.dtype not in DTYPES:
            raise RuleBroken(f"NCCL has no {str(t.dtype)[6:]}: {words}")
        channels_last = t.dim() == 4 and t.is_contiguous(memory_format=torch.channels_last)
        if not t.is_contiguous() and not channels_last:
            raise RuleBroken(f"NCCL needs contiguous tensors: {words} has strides {t.stride()}")
