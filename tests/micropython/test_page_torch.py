"""The torch of the page gives what torch gives: values, shapes, element types, views and printed forms."""

import importlib.util
import operator
import random
import sys

import pytest
import torch
from allranks_book.rank_files import STAND_INS

OPERATORS = [
    operator.add,
    operator.sub,
    operator.mul,
    operator.truediv,
    operator.lt,
    operator.eq,
    operator.ge,
]
SHAPES = [(6,), (4, 6), (2, 3, 4), ()]
KINDS = ["float32", "int64", "float64", "int32"]


@pytest.fixture(scope="module")
def page_torch():
    """The page's torch, under another name."""
    folder = STAND_INS / "torch"
    spec = importlib.util.spec_from_file_location(
        "page_torch", folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules["page_torch"] = module
    spec.loader.exec_module(module)
    yield module
    for name in [name for name in sys.modules if name.startswith("page_torch")]:
        del sys.modules[name]


def both(page_torch, rng, shape, kind):
    """The same random tensor in both."""
    values = [rng.randint(-9, 9) if "int" in kind else rng.randint(-64, 64) / 8 for _ in range(48)]
    n = torch.Size(shape).numel()
    return [
        library.tensor(values[:n], dtype=getattr(library, kind)).reshape(shape)
        for library in (page_torch, torch)
    ]


def agree(ours, theirs, what):
    """Assert that shape, element type and elements are the same, apart from rounding."""
    assert tuple(ours.shape) == tuple(theirs.shape), what
    assert repr(ours.dtype) == repr(theirs.dtype), what
    assert ours.flatten().tolist() == pytest.approx(theirs.flatten().tolist(), rel=1e-5, abs=1e-6), what


@pytest.mark.parametrize("seed", range(60))
def test_arithmetic_gives_the_same(page_torch, seed):
    rng = random.Random(seed)
    shape, kinds = rng.choice(SHAPES), rng.sample(KINDS, 2)
    (a, b), (c, d) = (both(page_torch, rng, shape, kind) for kind in kinds)
    last = both(page_torch, rng, shape[-1:], kinds[1])
    scalar = both(page_torch, rng, (), kinds[1])
    for op in OPERATORS:
        if op is not operator.truediv:
            agree(op(a, c), op(b, d), (op, kinds))
            agree(op(a, last[0]), op(b, last[1]), (op, kinds))
            agree(op(a, scalar[0]), op(b, scalar[1]), (op, kinds, shape))
        for number in (2, -1.5):
            agree(op(a, number), op(b, number), (op, kinds[0], number))
            if op is not operator.truediv:
                agree(op(number, a), op(number, b), (op, kinds[0], number))
    for method in ("relu", "exp", "sum", "max", "min", "abs", "clone", "any"):
        if method not in ("relu", "exp") or shape:
            small = (a / 8, b / 8) if method == "exp" else (a, b)
            agree(getattr(small[0], method)(), getattr(small[1], method)(), (method, kinds[0]))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", KINDS)
def test_distinct_and_undefined_elements_are_the_same(page_torch, shape, kind):
    a, b = both(page_torch, random.Random(2), shape, kind)
    agree(a.unique(), b.unique(), "unique")
    agree(a.isnan(), b.isnan(), "isnan")
    agree(a.new_empty(2, 3).zero_(), b.new_empty(2, 3).zero_(), "new_empty")
    undefined = [library.tensor([1.0, float("nan")]).isnan().tolist() for library in (page_torch, torch)]
    assert undefined == [[False, True]] * 2


@pytest.mark.parametrize("shape", SHAPES[:3])
@pytest.mark.parametrize("kind", KINDS)
def test_views_are_the_same_and_share_their_elements(page_torch, shape, kind):
    a, b = both(page_torch, random.Random(0), shape, kind)
    for cut in (
        lambda t: t[1:],
        lambda t: t[::2],
        lambda t: t[-1],
        lambda t: t[None],
        lambda t: t.reshape(-1),
        lambda t: t.chunk(4)[-1],
        lambda t: t.tensor_split(4)[1],
        lambda t: t.split(1)[0],
        lambda t: t.unbind()[1],
        lambda t: t.flatten()[2:4],
        lambda t: t.transpose(0, len(t.shape) - 1),
    ):
        agree(cut(a), cut(b), cut)
        cut(a).mul_(2)
        cut(b).mul_(2)
        agree(a, b, "what a view has changed")
    agree(a.roll(2, 0), b.roll(2, 0), "roll")
    agree(page_torch.cat([a, a]), torch.cat([b, b]), "cat")
    agree(page_torch.stack([a, a], 1), torch.stack([b, b], 1), "stack")
    for dim in range(len(shape)):
        for keep in (False, True):
            agree(a.sum(dim, keep), b.sum(dim, keep), "sum")
            agree(a.amax(dim, keep), b.amax(dim, keep), "amax")


@pytest.mark.parametrize(
    "made",
    [
        "tensor([1, 20, -3])",
        "tensor([[1, 20], [-3, 4]])",
        "tensor([6.0, 12.0])",
        "tensor([0.5, -12.25])",
        "tensor([True, False])",
        "tensor(3)",
        "arange(8).reshape(2, 2, 2)",
        "zeros(2, 3)",
        "full((2,), 7)",
        "ones(2, dtype=torch.float64)",
        "arange(1, 9, 3)",
        "eye(2)",
        "tensor([1, 2]).shape",
        "tensor([3, 4]).dtype",
    ],
)
def test_it_prints_the_same(page_torch, made):
    expected = repr(eval(f"torch.{made}", {"torch": torch}))
    assert repr(eval(f"torch.{made}", {"torch": page_torch})) == expected


def test_matrices_give_the_same(page_torch):
    rng = random.Random(1)
    (a, b), (c, d) = both(page_torch, rng, (4, 6), "float32"), both(page_torch, rng, (6, 8), "float32")
    agree(a @ c, b @ d, "product")
    agree(a.T @ a, b.T @ b, "transposed")
    agree(a @ c[:, 0], b @ d[:, 0], "with a vector")
    agree(a.softmax(1), b.softmax(1), "softmax")


@pytest.mark.parametrize("seed", [0, 1, 2026])
def test_random_numbers_are_torchs_own(page_torch, seed):
    for library in (page_torch, torch):
        library.manual_seed(seed)
    for shape in ((3,), (2, 2), (16,), (5, 8), (7,), (4, 4, 3), (1,), (20, 12), (64, 11)):
        agree(page_torch.randn(*shape), torch.randn(*shape), ("randn", shape))
        agree(page_torch.rand(*shape), torch.rand(*shape), ("rand", shape))


def test_without_a_seed_there_are_no_random_numbers(page_torch):
    page_torch.random.generator = None
    with pytest.raises(RuntimeError, match=r"torch.manual_seed"):
        page_torch.randn(2)


def test_sums_of_exponentials_do_not_overflow(page_torch):
    rng = random.Random(3)
    (a, b), (c, d) = both(page_torch, rng, (4, 6), "float32"), both(page_torch, rng, (4, 6), "float32")
    agree(page_torch.logaddexp(200 * a, 200 * c), torch.logaddexp(200 * b, 200 * d), "logaddexp")
    for dim in (0, 1, -1):
        for keep in (False, True):
            agree((200 * a).logsumexp(dim, keep), (200 * b).logsumexp(dim, keep), "logsumexp")
    agree(a.reshape(2, 2, 6).mT, b.reshape(2, 2, 6).mT, "mT")


def test_functions_of_a_network_give_the_same(page_torch):
    ours = importlib.import_module("page_torch.nn.functional")
    theirs, rng = torch.nn.functional, random.Random(4)
    (x, y), (w, v), (u, t) = (both(page_torch, rng, shape, "float32") for shape in ((4, 6), (8, 6), (8,)))
    agree(ours.relu(x), theirs.relu(y), "relu")
    agree(ours.linear(x, w, u), theirs.linear(y, v, t), "linear")
    agree(ours.softmax(x, 1), theirs.softmax(y, dim=1), "softmax")
    agree(ours.layer_norm(x, (6,)), theirs.layer_norm(y, (6,)), "layer_norm")
    agree(ours.mse_loss(x, x + 1), theirs.mse_loss(y, y + 1), "mse_loss")
    with pytest.raises(AttributeError, match="open the notebook for the real torch"):
        eval("ours.gelu", {"ours": ours})


@pytest.mark.parametrize(
    "wrong",
    [
        "t.reshape(7)",
        "t[4]",
        "t + torch.ones(3)",
        "t.item()",
        "torch.ones(2, 3) @ torch.ones(2, 3)",
        "torch.arange(2).div_(2)",
    ],
)
def test_it_refuses_the_same(page_torch, wrong):
    with pytest.raises(Exception) as theirs:
        eval(wrong, {"torch": torch, "t": torch.zeros(4)})
    with pytest.raises(Exception) as ours:
        eval(wrong, {"torch": page_torch, "t": page_torch.zeros(4)})
    assert type(ours.value) is type(theirs.value)


@pytest.mark.parametrize(
    "lacking", ["torch.optim", "torch.zeros(1).backward", "torch.distributed.monitored_barrier"]
)
def test_it_says_what_it_lacks(page_torch, lacking):
    with pytest.raises(AttributeError, match=r"^the page.*; open the notebook for the real"):
        eval(lacking, {"torch": page_torch})
