"""Functions that make tensors, or compare them."""

import math

from .storage import bool_, count, elements, float32, int64, sizes_of
from .tensors import Tensor

LIST = (list, tuple)


def number(value):
    """A number from a number or a tensor of one element."""
    return value.item() if isinstance(value, Tensor) else value


def listed(data):
    """(shape, flat list) of nested lists of numbers or tensors."""
    if isinstance(data, Tensor):
        return data._shape, list(data.flat())
    if not isinstance(data, LIST):
        return (), [data]
    parts = [listed(each) for each in data]
    if any([shape != parts[0][0] for shape, _ in parts]):
        raise ValueError("expected sequences of equal length in each dimension")
    inner = parts[0][0] if parts else ()
    return (len(parts),) + inner, [x for _, flat in parts for x in flat]


def kind_of(values):
    """The element type that torch would choose."""
    if any([isinstance(x, float) for x in values]):
        return float32
    return bool_ if values and all([x is True or x is False for x in values]) else int64


def tensor(data, dtype=None, device=None):
    """A tensor of numbers in nested lists."""
    if isinstance(data, Tensor):
        return data.clone().to(dtype)
    shape, flat = listed(data)
    kind = dtype or (float32 if not flat else kind_of(flat))
    return Tensor(elements(kind, flat), kind, shape)


def full(size, fill_value, dtype=None, device=None):
    """A tensor of one number."""
    value = number(fill_value)
    kind = dtype or kind_of([value])
    size = tuple(size) if isinstance(size, LIST) else (size,)
    return Tensor(elements(kind, [value] * count(size)), kind, size)


def zeros(*size, dtype=None, device=None):
    """A tensor of zeros."""
    return full(sizes_of(size), 0, dtype or float32)


def ones(*size, dtype=None, device=None):
    """A tensor of ones."""
    return full(sizes_of(size), 1, dtype or float32)


def zeros_like(t, dtype=None):
    """Zeros of the same shape."""
    return full(t._shape, 0, dtype or t.dtype)


def ones_like(t, dtype=None):
    """Ones of the same shape."""
    return full(t._shape, 1, dtype or t.dtype)


def full_like(t, value, dtype=None):
    """One number in the same shape."""
    return full(t._shape, value, dtype or t.dtype)


empty, empty_like = zeros, zeros_like


def arange(*ends, dtype=None, device=None):
    """The numbers from a first one up to a last one, which is not among them."""
    ends = [number(end) for end in ends]
    first, last, step = (0, ends[0], 1) if len(ends) == 1 else (tuple(ends) + (1,))[:3]
    values = [first + i * step for i in range(max(0, math.ceil((last - first) / step)))]
    kind = dtype or (float32 if any([isinstance(x, float) for x in (first, last, step)]) else int64)
    return Tensor(elements(kind, values), kind, (len(values),))


def eye(n, dtype=None):
    """The identity matrix."""
    return tensor([[1.0 if i == j else 0.0 for j in range(n)] for i in range(n)], dtype)


def cat(tensors, dim=0):
    """Tensors behind each other in one dimension."""
    tensors = list(tensors)
    shape, kind = tensors[0]._shape, max([t.dtype for t in tensors], key=lambda kind: kind.order)
    dim %= len(shape)
    whole = full(shape[:dim] + (sum([t._shape[dim] for t in tensors]),) + shape[dim + 1 :], 0, kind)
    at = 0
    for t in tensors:
        if t._shape[:dim] + t._shape[dim + 1 :] != shape[:dim] + shape[dim + 1 :]:
            raise RuntimeError("Sizes of tensors must match except in dimension " + str(dim))
        whole.narrow(dim, at, t._shape[dim]).copy_(t)
        at += t._shape[dim]
    return whole


def stack(tensors, dim=0):
    """Tensors beside each other in a new dimension."""
    return cat([t.reshape(t._shape[:dim] + (1,) + t._shape[dim:]) for t in tensors], dim)


def equal(one, other):
    """True if shape and elements are the same."""
    return one._shape == other._shape and list(one.flat()) == list(other.flat())


def allclose(one, other, rtol=1e-5, atol=1e-8):
    """True if elements are nearly the same."""
    pairs = zip(one.flat(), other.expand(one._shape).flat())
    return all([a == b or abs(a - b) <= atol + rtol * abs(b) for a, b in pairs])


def maximum(one, other):
    """The larger elements."""
    return one._with(other, "max")


def minimum(one, other):
    """The smaller elements."""
    return one._with(other, "min")


def logaddexp(one, other):
    """log(eᵃ + eᵇ), without overflow."""
    most, least = maximum(one, other), minimum(one, other)
    return most + ((least - most).exp() + 1).log()
