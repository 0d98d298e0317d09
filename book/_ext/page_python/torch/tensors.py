"""The arithmetic of tensors. No autograd; what torch calls so is called so here."""

import math

from .storage import COMPARISONS, OPERATIONS, bool_, broadcast, count, elements, float32, int64
from .tape import remembered
from .views import View


class Tensor(View):
    """A tensor, as far as a rank in a page needs it."""

    @remembered
    def _with(self, other, op, swap=False):
        each, one = OPERATIONS[op]
        mine, kind = self, self.dtype
        if isinstance(other, Tensor):
            theirs = other
            kind = common(mine, theirs)
            if mine._shape != theirs._shape:
                shape = broadcast(mine._shape, theirs._shape)
                mine, theirs = mine.expand(shape), theirs.expand(shape)
            x, y = (theirs.flat(), mine.flat()) if swap else (mine.flat(), theirs.flat())
            values = each(x, y)
        else:
            if not isinstance(other, (int, float, bool)):
                return NotImplemented
            kind = float32 if isinstance(other, float) and not kind.is_floating_point else kind
            values = each([other] * count(mine._shape), mine.flat()) if swap else one(mine.flat(), other)
        if op in COMPARISONS:
            kind = bool_
        elif op == "truediv" and not kind.is_floating_point:
            kind = float32
        return Tensor(elements(kind, values), kind, mine._shape)

    @remembered
    def changed(self, other, op):
        """In place: `self op= other`."""
        got = self._with(other, op)
        if got is NotImplemented or got._shape != self._shape:
            raise RuntimeError(f"output with shape {list(self._shape)} doesn't match the broadcast shape")
        if got.dtype.is_floating_point and not self.dtype.is_floating_point:
            raise RuntimeError(
                f"result type {got.dtype} can't be cast to the desired output type {self.dtype}"
            )
        return self.write(got.store)

    def __neg__(self):
        return self * -1

    @remembered
    def __matmul__(self, other):
        if len(self._shape) == 1:
            return (self[None] @ other)[0]
        if len(other._shape) == 1:
            return (self @ other[:, None])[:, 0]
        (n, k), (k2, m) = self._shape, other._shape
        if k != k2:
            raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({n}x{k} and {k2}x{m})")
        kind = self.dtype if self.dtype.order >= other.dtype.order else other.dtype
        left, right = list(self.flat()), list(other.T.flat())
        columns = [right[j * k : j * k + k] for j in range(m)]
        values = []
        for i in range(n):
            row = left[i * k : i * k + k]
            for column in columns:
                total = 0
                for a, b in zip(row, column):
                    total += a * b
                values.append(total)
        return Tensor(elements(kind, values), kind, (n, m))

    def copy_(self, other):
        if isinstance(other, Tensor):
            return self.write((other if other._shape == self._shape else other.expand(self._shape)).flat())
        return self.fill_(other)

    def fill_(self, value):
        return self.write([value] * count(self._shape))

    def zero_(self):
        return self.fill_(0)

    @remembered
    def _map(self, f, kind=None):
        kind = kind or (self.dtype if self.dtype.is_floating_point else float32)
        return Tensor(elements(kind, [f(x) for x in self.flat()]), kind, self._shape)

    def exp(self):
        return self._map(math.exp)

    def log(self):
        return self._map(math.log)

    def sqrt(self):
        return self._map(math.sqrt)

    def tanh(self):
        return self._map(math.tanh)

    def relu(self):
        return self._map(lambda x: x if x > 0 else 0 * x, self.dtype)

    def abs(self):
        return self._map(abs, self.dtype)

    __abs__ = abs

    @remembered
    def _reduce(self, f, dim, keepdim, kind):
        if dim is None:
            return Tensor(elements(kind, [f(list(self.flat()))]), kind, ())
        dim %= len(self._shape)
        last = self
        if dim != len(self._shape) - 1:  # bring the dimension to the end
            order = [d for d in range(len(self._shape)) if d != dim] + [dim]
            shape, strides = [self._shape[d] for d in order], [self.strides[d] for d in order]
            last = Tensor(self.store, self.dtype, tuple(shape), tuple(strides), self.offset)
        n, flat = self._shape[dim], list(last.flat())
        values = [f(flat[i : i + n]) for i in range(0, len(flat), n)]
        shape = self._shape[:dim] + ((1,) if keepdim else ()) + self._shape[dim + 1 :]
        return Tensor(elements(kind, values), kind, shape)

    def sum(self, dim=None, keepdim=False):
        return self._reduce(sum, dim, keepdim, self.dtype if self.dtype.is_floating_point else int64)

    def mean(self, dim=None, keepdim=False):
        return self._reduce(lambda x: sum(x) / len(x), dim, keepdim, self.dtype)

    def amax(self, dim=None, keepdim=False):
        return self._reduce(max, dim, keepdim, self.dtype)

    def amin(self, dim=None, keepdim=False):
        return self._reduce(min, dim, keepdim, self.dtype)

    def max(self):
        return self.amax()

    def min(self):
        return self.amin()

    def argmax(self, dim=None):
        return self._reduce(lambda x: x.index(max(x)), dim, False, int64)

    def all(self):
        return self._reduce(all, None, False, bool_)

    def any(self):
        return self._reduce(any, None, False, bool_)

    def unique(self):
        values = sorted(set(self.flat()))
        return Tensor(elements(self.dtype, values), self.dtype, (len(values),))

    def isnan(self):
        return self._map(lambda x: x != x, bool_)

    def norm(self):
        return self._reduce(lambda x: math.sqrt(sum([a * a for a in x])), None, False, self.dtype)

    @remembered
    def softmax(self, dim):
        e = (self - self.amax(dim, True)).exp()
        return e / e.sum(dim, True)

    @remembered
    def logsumexp(self, dim, keepdim=False):
        most = self.amax(dim, True)
        whole = most + (self - most).exp().sum(dim, True).log()
        return whole if keepdim else whole.sum(dim)

    def roll(self, by, dims=0):
        n = self._shape[0]
        rolled, first = self.clone(), by % n
        rolled[:first].copy_(self[n - first :])
        rolled[first:].copy_(self[: n - first])
        return rolled


def common(one, other):
    """The element type of an operation on two tensors; one without dimensions counts as a number does."""
    large, small = (one, other) if one.dtype.order >= other.dtype.order else (other, one)
    is_number = not large._shape and small._shape
    same_sort = large.dtype.is_floating_point == small.dtype.is_floating_point
    return small.dtype if is_number and same_sort and small.dtype is not bool_ else large.dtype


def operators(name):
    """Give Tensor the operators of one operation, on both sides and in place."""
    setattr(Tensor, f"__{name}__", lambda self, other: self._with(other, name))
    setattr(Tensor, f"__r{name}__", lambda self, other: self._with(other, name, True))
    setattr(Tensor, f"__i{name}__", lambda self, other: self.changed(other, name))


def in_place(method, name):
    """Give Tensor a method that changes it."""
    setattr(Tensor, method, lambda self, other: self.changed(other, name))


for _op in OPERATIONS:
    if _op not in ("max", "min"):
        operators(_op)
for _name, _op in (("add_", "add"), ("sub_", "sub"), ("mul_", "mul"), ("div_", "truediv")):
    in_place(_name, _op)
