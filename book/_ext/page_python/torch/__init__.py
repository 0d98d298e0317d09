"""The torch of ranks in a page: tensors without autograd, and `torch.distributed` on simulated ranks.

What it lacks is said so, by name. A kernel never sees it: it is shipped to pages only.
"""

from . import distributed, random
from .making import (
    allclose,
    arange,
    cat,
    empty,
    empty_like,
    equal,
    eye,
    full,
    full_like,
    logaddexp,
    maximum,
    minimum,
    ones,
    ones_like,
    stack,
    tensor,
    zeros,
    zeros_like,
)
from .random import manual_seed, rand, randn
from .storage import Size, bool_, dtype, float32, float64, int32, int64, uint8
from .tensors import Tensor

# Some of torch's names are Python's own.
float, double, int, long, bool = float32, float64, int32, int64, bool_
exp, log, sqrt, tanh, relu, abs = Tensor.exp, Tensor.log, Tensor.sqrt, Tensor.tanh, Tensor.relu, Tensor.abs
sum, mean, all, any = Tensor.sum, Tensor.mean, Tensor.all, Tensor.any
amax, amin, argmax, softmax = Tensor.amax, Tensor.amin, Tensor.argmax, Tensor.softmax
matmul, chunk, split, tensor_split = Tensor.__matmul__, Tensor.chunk, Tensor.split, Tensor.tensor_split


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    raise AttributeError(f"the page's torch has no torch.{name}; open the notebook for the real one")
