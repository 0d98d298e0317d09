"""What can an operation reach on one device? Its point under the roof, and what it lacks to the ridge.

Both axes are logarithmic: FLOPs for each byte that crosses the memory's bus, and FLOPs a second. Below, the
time that arithmetic and memory take alone. `allranks.roofline` and `allranks.inference` count.
"""

from ..hardware import ACCELERATORS, peak, ridge
from ..inference.roofline import step
from ..roofline import Operation, addition, product, reached
from ..transformer import PRESETS
from .frame.controls import Choice, Scale, powers_of_two
from .frame.lettering import legible
from .frame.svg import marks_over, picture, text
from .frame.words import figures, percent, scaled, seconds
from .roofline_chart import DEVICES, OPERATIONS, Axes, a_byte, bars, gap, grid, places, points, roofs

TITLE = "The roofline of one device"

DTYPES = {"fp4": 0.5, "fp8": 1, "bf16": 2, "fp16": 2, "tf32": 4, "fp32": 4}
MODELS = (
    ("gpt3-175b", "GPT-3 175B"),
    ("llama3-405b", "Llama 3 405B"),
    ("llama3-70b", "Llama 3 70B"),
    ("llama3-8b", "Llama 3 8B"),
    ("gpt2", "GPT-2"),
    ("own", "own numbers"),
)
SIZES = powers_of_two(64, 65_536, lambda each: f"{each:,}")
CONTROLS = (
    Choice("operation", "operation", OPERATIONS, "product"),
    Scale("tokens", "tokens or sequences", powers_of_two(1, 8192, lambda each: f"{each:,}"), 2048),
    Choice("device", "device", DEVICES, "h100"),
    Choice("dtype", "numbers in", tuple((name, name) for name in DTYPES), "bf16"),
    Choice("model", "sizes of", MODELS, "gpt3-175b"),
    Scale("inner", "own product: rows k", SIZES, 4096),
    Scale("columns", "own product: columns n", SIZES, 16_384),
    Scale("past", "tokens in the cache", powers_of_two(128, 2**17, lambda each: f"{each:,}"), 1024),
)


def draw(width, *, operation, tokens, device, dtype, model, inner, columns, past):
    """The roof of the device, all operations under it, and what bounds the chosen one."""
    if dtype not in ACCELERATORS[device].peak:
        known = ", ".join(sorted(ACCELERATORS[device].peak))
        raise ValueError(f"dtype must be one of {known} on {dict(DEVICES)[device]}, not {dtype}")
    sizes = (tokens, DTYPES[dtype], model, inner, columns, past)
    shown = [(name, counted(name, *sizes)) for name, _ in OPERATIONS]
    one = dict(shown)[operation]
    now = reached(one, device, dtype)
    axes = Axes(width, 24)
    marks = grid(axes)
    marks += roofs(axes, device, dtype)
    marks += points(axes, shown, operation, device, dtype)
    marks += gap(axes, one, now, device, dtype)
    times, bottom = bars(width, axes.bottom + 58, now)
    over = places(axes, shown, operation, device, dtype)
    idle = [] if model == "own" and operation == "product" else ["inner", "columns"]
    if operation != "decode":
        idle.append("past")
    if operation in ("decode", "prefill", "scores", "addition") and model == "own":
        idle.append("model")
    named = dict(DEVICES)[device]
    head = f"{dict(OPERATIONS)[operation]}, {dtype}, {named}"
    return {
        "svg": legible(picture(width, bottom, text(0, 14, head, bold=True), marks, times), width),
        "text": said(one, now, operation, tokens, device, dtype),
        "marks": marks_over(width, bottom, over),
        "result": result(now),
        "insight": insight(one, now, operation, device),
        "idle": idle,
    }


def counted(name, tokens, element, model, inner, columns, past):
    """The `Operation` of this name; own numbers are for a product, the others then are Llama 3 8B's."""
    shape = PRESETS["llama3-8b" if model == "own" else model]
    if name == "product":
        if model == "own":
            return product(tokens, inner, columns, element)
        return product(tokens, shape.hidden, shape.feed_forward, element)
    if name == "scores":
        return product(tokens, shape.head_width, tokens, element, shape.heads)
    if name == "addition":
        return addition(tokens * shape.hidden, element)
    new = (1, past, tokens) if name == "decode" else (tokens, 0, 1)
    made = step(shape, *new, element=element)
    return Operation(made.flops, made.nbytes)


def result(now):
    """The share of the peak that can be reached, and what bounds it."""
    if now.missing:
        return percent(now.share, decimals(now.share)), "of the peak at most: memory is too slow"
    return percent(1, 0), "of the peak at most: arithmetic takes longer than memory"


def decimals(share):
    """As many as show something: two below one per cent."""
    return 2 if share < 0.01 else 1


MORE = {
    "product": "more tokens would share each weight that is read",
    "scores": "do not write the scores: compute attention in tiles",
    "addition": "no size helps, only fusing it with its neighbours",
    "decode": "more sequences would share the weights, but each reads a cache of its own",
    "prefill": "a longer prompt would share each weight that is read",
}


def insight(one, now, operation, device):
    """What bounds the operation, and what would change that."""
    if operation in ("decode", "prefill") and one.nbytes > ACCELERATORS[device].memory:
        held = scaled(ACCELERATORS[device].memory, "B")
        return f"Weights and cache do not fit into {held}: fewer sequences, a smaller model or more devices."
    if not now.missing:
        return "Each byte is used often enough: only a faster device or a narrower format would help."
    ratio = now.memory / now.arithmetic
    return f"Memory takes {figures(ratio)} times as long as arithmetic: {MORE[operation]}."


def said(one, now, operation, tokens, device, dtype):
    """The numbers of the picture in words."""
    what = "sequence" if operation == "decode" else "token"
    words = f"{dict(OPERATIONS)[operation]}, {tokens:,} {what}{'s' * (tokens > 1)}, in {dtype} on "
    words = words[0].upper() + words[1:]
    words += f"{dict(DEVICES)[device]}: {scaled(one.flops, 'FLOP')} and {scaled(one.nbytes, 'B')}, "
    words += f"{a_byte(one.intensity)}. "
    words += f"The ridge is at {figures(ridge(device, dtype))}"
    words += f"; {figures(now.missing)} are missing. " if now.missing else ". "
    words += f"Arithmetic takes {seconds(now.arithmetic)}, memory {seconds(now.memory)}; "
    share = percent(now.share, decimals(now.share)) if now.missing else percent(1, 0)
    return words + f"at most {share} of {scaled(peak(device, dtype), 'FLOP/s')} can be reached."
