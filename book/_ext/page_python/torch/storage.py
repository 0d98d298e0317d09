"""What tensors are made of: element types, shapes, and one array of elements. Pure Python."""

from array import array


class dtype:
    """An element type. `order` says which of two an operation on both gives."""

    def __init__(self, name, code, itemsize, order):
        self.name, self.code, self.itemsize, self.order = name, code, itemsize, order
        self.is_floating_point = order > 9

    def __repr__(self):
        return "torch." + self.name


bool_ = dtype("bool", "B", 1, 0)
uint8, int32, int64 = dtype("uint8", "B", 1, 1), dtype("int32", "i", 4, 2), dtype("int64", "q", 8, 3)
float32, float64 = dtype("float32", "f", 4, 10), dtype("float64", "d", 8, 11)

COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
OPERATIONS = {}  # name: (of two lists, of a list and a number); a loop each, as a call an element is slow
for _name, _how in (
    ("add", "a + b"), ("sub", "a - b"), ("mul", "a * b"), ("truediv", "a / b"), ("floordiv", "a // b"),
    ("mod", "a % b"), ("pow", "a ** b"), ("eq", "a == b"), ("ne", "a != b"), ("lt", "a < b"),
    ("le", "a <= b"), ("gt", "a > b"), ("ge", "a >= b"), ("max", "a if a > b else b"),
    ("min", "a if a < b else b"), ("and", "a & b"), ("or", "a | b"), ("xor", "a ^ b"),
):  # fmt: skip
    _made = {}
    exec(
        f"def both(x, y): return [{_how} for a, b in zip(x, y)]\ndef one(x, b): return [{_how} for a in x]",
        _made,
    )
    OPERATIONS[_name] = _made["both"], _made["one"]


class Size(tuple):
    """A shape, as torch shows it."""

    def numel(self):
        """Elements of a tensor of this shape."""
        return count(self)

    def __repr__(self):
        return "torch.Size(" + repr(list(self)) + ")"


def count(shape):
    """Elements of a tensor of this shape."""
    n = 1
    for each in shape:
        n *= each
    return n


def rows(shape):
    """The strides of a contiguous tensor."""
    strides, n = [], 1
    for each in reversed(shape):
        strides.append(n)
        n *= each
    return tuple(reversed(strides))


def sizes_of(given):
    """The shape in `zeros(2, 3)` and in `zeros((2, 3))`."""
    return tuple(given[0]) if len(given) == 1 and isinstance(given[0], (tuple, list)) else tuple(given)


def elements(kind, values):
    """An array of `values` as elements of this type."""
    if kind.is_floating_point:
        return array(kind.code, values)
    if kind is bool_:
        return array(kind.code, [1 if x else 0 for x in values])
    if isinstance(values, array) and values and isinstance(values[0], int):
        return array(kind.code, values)
    return array(kind.code, [int(x) for x in values])


def bounds(k, n):
    """(first, behind the last, step) of a slice of n elements."""
    first = 0 if k.start is None else int(k.start)
    last = n if k.stop is None else int(k.stop)
    step = 1 if k.step is None else int(k.step)
    if step < 1:
        raise ValueError("step must be greater than zero")
    first, last = (max(0, x + n) if x < 0 else min(x, n) for x in (first, last))
    return first, max(first, last), step


def broadcast(one, other):
    """The shape of an operation on tensors of two shapes."""
    n = max(len(one), len(other))
    one, other = (1,) * (n - len(one)) + tuple(one), (1,) * (n - len(other)) + tuple(other)
    for dim, (a, b) in enumerate(zip(one, other)):
        if a != b and 1 not in (a, b):
            sizes = f"The size of tensor a ({a}) must match the size of tensor b ({b})"
            raise RuntimeError(f"{sizes} at non-singleton dimension {dim}")
    return tuple([a if b == 1 else b for a, b in zip(one, other)])
