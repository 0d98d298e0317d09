"""Tensors as strided views on one array of elements: shapes, slices, copies."""

from .storage import (
    Size,
    bool_,
    bounds,
    count,
    dtype,
    elements,
    float32,
    float64,
    int32,
    int64,
    rows,
    sizes_of,
)


class View:
    """Where elements lie: shape, strides, slices and copies. `Tensor` adds the arithmetic."""

    __hash__ = None

    def __init__(self, store, dtype, shape, strides=None, offset=0):
        self.store, self.dtype, self._shape, self.offset = store, dtype, shape, offset
        self.strides = rows(shape) if strides is None else strides

    # ---- what it is ----
    shape = property(lambda self: Size(self._shape))
    ndim = property(lambda self: len(self._shape))
    nbytes = property(lambda self: count(self._shape) * self.dtype.itemsize)
    T = property(lambda self: self.transpose(0, 1) if len(self._shape) > 1 else self)
    mT = property(lambda self: self.transpose(len(self._shape) - 2, len(self._shape) - 1))
    device = "cpu"
    requires_grad = False

    def size(self, dim=None):
        return Size(self._shape) if dim is None else self._shape[dim]

    def dim(self):
        return len(self._shape)

    def numel(self):
        return count(self._shape)

    def element_size(self):
        return self.dtype.itemsize

    def is_contiguous(self):
        return self.strides == rows(self._shape)

    def places(self):
        """Where its elements lie in the store, in order."""
        places = [self.offset]
        for n, stride in zip(self._shape, self.strides):
            places = [at + i * stride for at in places for i in range(n)]
        return places

    def flat(self):
        """Its elements in order: an array, or a list."""
        n = count(self._shape)
        if self.strides == rows(self._shape):
            return self.store[self.offset : self.offset + n]
        store = self.store
        return [store[at] for at in self.places()]

    def write(self, values):
        """Put `values`, which may be of another type, in the places of its elements."""
        values = elements(self.dtype, values)
        if len(values) != count(self._shape):
            raise RuntimeError(f"{len(values)} elements do not fit in a tensor of {count(self._shape)}")
        return self.put(values)

    def put(self, values):
        """Put an array of its own type in the places of its elements."""
        if self.strides == rows(self._shape):
            self.store[self.offset : self.offset + len(values)] = values
        else:
            for at, value in zip(self.places(), values):
                self.store[at] = value
        return self

    def tolist(self):
        nest = [bool(x) for x in self.flat()] if self.dtype is bool_ else list(self.flat())
        for n in reversed(self._shape[1:]):
            nest = [nest[i : i + n] for i in range(0, len(nest), n)]
        return nest if self._shape else nest[0]

    def item(self):
        if count(self._shape) != 1:
            raise RuntimeError(f"a Tensor with {count(self._shape)} elements cannot be converted to Scalar")
        value = self.flat()[0]
        return value != 0 if self.dtype is bool_ else value

    def __int__(self):
        return int(self.item())

    def __bool__(self):
        return bool(self.item())

    __index__ = __int__

    def __len__(self):
        return self._shape[0]

    def __iter__(self):
        return iter([self[i] for i in range(self._shape[0])])

    def __format__(self, spec):
        return format(self.item(), spec) if not self._shape else repr(self)

    def __repr__(self):
        kind, values = self.dtype, self.flat()
        if kind.is_floating_point:
            whole = all([x == x and abs(x) < 1e9 and x == int(x) for x in values])
            said = [f"{x:.0f}." if whole else f"{x:.4f}" for x in values]
        else:
            said = [str(x) for x in values] if kind is not bool_ else [str(x != 0) for x in values]
        width = max([len(each) for each in said] + [0])
        said = [" " * (width - len(each)) + each for each in said] if self._shape else said
        more = "" if kind in (float32, int64, bool_) else f", dtype={kind!r}"
        return f"tensor({nested(said, self._shape, 8)}{more})"

    # ---- views ----
    def __getitem__(self, key):
        shape, strides, offset, dim = [], [], self.offset, 0
        for k in key if isinstance(key, tuple) else (key,):
            if k is None:
                shape.append(1), strides.append(0)
                continue
            n, stride = self._shape[dim], self.strides[dim]
            dim += 1
            if isinstance(k, slice):
                first, last, step = bounds(k, n)
                shape.append(max(0, (last - first + step - 1) // step)), strides.append(stride * step)
                offset += first * stride
            else:
                k = int(k)
                if not -n <= k < n:
                    raise IndexError(f"index {k} is out of bounds for dimension {dim - 1} with size {n}")
                offset += k % n * stride
        shape, strides = tuple(shape) + self._shape[dim:], tuple(strides) + self.strides[dim:]
        return type(self)(self.store, self.dtype, shape, strides, offset)

    def __setitem__(self, key, value):
        self[key].copy_(value)

    def reshape(self, *sizes):
        shape = sizes_of(sizes)
        if -1 in shape:
            rest = count(self._shape) // -count(shape)
            shape = tuple(rest if n == -1 else n for n in shape)
        if count(shape) != count(self._shape):
            raise RuntimeError(f"shape {list(shape)} is invalid for input of size {count(self._shape)}")
        source = self.contiguous()
        return type(self)(source.store, self.dtype, shape, None, source.offset)

    view = reshape

    def flatten(self):
        return self.reshape(-1)

    def transpose(self, a, b):
        shape, strides = list(self._shape), list(self.strides)
        shape[a], shape[b], strides[a], strides[b] = shape[b], shape[a], strides[b], strides[a]
        return type(self)(self.store, self.dtype, tuple(shape), tuple(strides), self.offset)

    def t(self):
        return self.T

    def narrow(self, dim, start, length):
        shape = self._shape[:dim] + (length,) + self._shape[dim + 1 :]
        return type(self)(
            self.store, self.dtype, shape, self.strides, self.offset + start * self.strides[dim]
        )

    def _cut(self, sizes, dim):
        parts, at = [], 0
        for n in sizes:
            parts.append(self.narrow(dim % len(self._shape), at, n))
            at += n
        return tuple(parts)

    def split(self, size, dim=0):
        n = self._shape[dim]
        sizes = size if isinstance(size, (list, tuple)) else [min(size, n - at) for at in range(0, n, size)]
        return self._cut(sizes, dim)

    def chunk(self, chunks, dim=0):
        return self.split(max(1, -(-self._shape[dim] // chunks)), dim)

    def tensor_split(self, parts, dim=0):
        each, more = divmod(self._shape[dim], parts)
        return self._cut([each + (i < more) for i in range(parts)], dim)

    def unbind(self, dim=0):
        shape, strides = (
            self._shape[:dim] + self._shape[dim + 1 :],
            self.strides[:dim] + self.strides[dim + 1 :],
        )
        first, step = self.offset, self.strides[dim]
        return tuple(
            [
                type(self)(self.store, self.dtype, shape, strides, first + i * step)
                for i in range(self._shape[dim])
            ]
        )

    def expand(self, *sizes):
        shape = sizes_of(sizes)
        extra = len(shape) - len(self._shape)
        strides = [0] * extra
        for n, wanted, stride in zip(self._shape, shape[extra:], self.strides):
            if n != wanted and n != 1:
                raise RuntimeError(f"shape {list(self._shape)} cannot be expanded to {list(shape)}")
            strides.append(stride if n == wanted else 0)
        return type(self)(self.store, self.dtype, shape, tuple(strides), self.offset)

    # ---- copies ----
    def clone(self):
        return type(self)(elements(self.dtype, self.flat()), self.dtype, self._shape)

    def new_empty(self, *sizes):
        shape = sizes_of(sizes)
        return type(self)(elements(self.dtype, [0] * count(shape)), self.dtype, shape)

    def contiguous(self):
        return self if self.is_contiguous() else self.clone()

    def to(self, *what, **more):
        for each in list(what) + list(more.values()):
            if isinstance(each, dtype) and each is not self.dtype:
                return type(self)(elements(each, self.flat()), each, self._shape)
        return self

    def float(self):
        return self.to(float32)

    def double(self):
        return self.to(float64)

    def long(self):
        return self.to(int64)

    def int(self):
        return self.to(int32)

    def detach(self):
        return self

    cpu = detach

    def __getattr__(self, name):
        raise AttributeError(f"the page's tensors have no .{name}; open the notebook for the real torch")


def nested(said, shape, indent):
    """`[[1, 2], [3, 4]]`, in lines as torch breaks them."""
    if not shape:
        return said[0]
    if len(shape) == 1:
        return "[" + ", ".join(said) + "]"
    n = len(said) // shape[0] if shape[0] else 0
    parts = [nested(said[i * n : i * n + n], shape[1:], indent + 1) for i in range(shape[0])]
    return "[" + ("," + "\n" * (len(shape) - 1) + " " * indent).join(parts) + "]"
