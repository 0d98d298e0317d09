"""What does training over a slow link cost when ranks meet every H steps? The share of time that computes.

Each rank computes a forward pass, a third of the step, and a backward pass, two thirds, one of equal layers
after the other. A layer leaves over one link, first come, first served, when the backward pass has passed it,
and a step begins when all that is due has come (Douillard et al. 2025, section 3.1, for their Table 4).
"""

from .inputs import one_of, quantity, whole

GRID = [10 ** (-1 + 4 * k / 49) for k in range(50)]  # Gbit/s at which that table was computed
TARGETS = (0.5, 0.8, 0.9, 0.95, 0.99)

# That table: layers and seconds a step of each model, what each way sets, and the Gbit/s that it prints.
PARAMETERS = (1e9, 10e9, 100e9)  # in its order, which MicroPython's dicts do not keep
NAMES = ("data parallel", "DiLoCo", "fragments", "and overlap", "and 4 bits")
MODELS = {1e9: (24, 0.1), 10e9: (48, 0.8), 100e9: (108, 4.9)}
WAYS = {
    "data parallel": {},
    "DiLoCo": {"every": 100},
    "fragments": {"every": 100, "size": 3},
    "and overlap": {"every": 100, "size": 3, "delay": 1},
    "and 4 bits": {"every": 100, "size": 3, "delay": 1, "bits": 4},
}
PRINTED = {
    (1e9, "data parallel"): (86.8, 152.6, 184.2, 222.3, 569.0),
    (1e9, "DiLoCo"): (1.4, 6.2, 13.3, 23.3, 86.8),
    (1e9, "fragments"): (1.4, 5.2, 9.1, 16.0, 28.1),
    (1e9, "and overlap"): (1.4, 4.3, 6.2, 9.1, 11.0),
    (1e9, "and 4 bits"): (0.4, 0.9, 1.7, 2.0, 3.0),
    (10e9, "data parallel"): (104.8, 222.3, 222.3, 268.3, 471.5),
    (10e9, "DiLoCo"): (1.7, 7.5, 16.0, 33.9, 104.8),
    (10e9, "fragments"): (1.7, 5.2, 9.1, 13.3, 19.3),
    (10e9, "and overlap"): (1.7, 3.6, 5.2, 6.2, 7.5),
    (10e9, "and 4 bits"): (0.4, 0.9, 1.4, 1.4, 1.7),
    (100e9, "data parallel"): (184.2, 323.8, 390.7, 390.7, 471.5),
    (100e9, "DiLoCo"): (3.0, 11.0, 23.3, 49.4, 184.2),
    (100e9, "fragments"): (2.4, 6.2, 9.1, 11.0, 19.3),
    (100e9, "and overlap"): (1.7, 3.6, 4.3, 5.2, 5.2),
    (100e9, "and 4 bits"): (0.5, 0.9, 1.1, 1.1, 1.4),
}


def fragments_of(layers, size):
    """Return fragments of `size` layers, strided: fragment k of n holds layers k, k + n, k + 2n …"""
    whole("layers", layers), whole("size", size, 1, layers)
    if layers % size:
        raise ValueError(f"size must divide the {layers} layers, not be {size}")
    count = layers // size
    return [list(range(k, layers, count)) for k in range(count)]


def sending_steps(every, fragments):
    """Return after which of `every` steps each fragment is sent: evenly spread, the last one at the end.

    Where there are more fragments than steps, some leave together.
    """
    whole("every", every), whole("fragments", fragments)
    return [max(0, (k + 1) * every // fragments - 1) for k in range(fragments)]


def seconds(sent, layers, step, message, delay, rounds):
    """Return what `rounds` times `len(sent)` steps take, until the last message has come.

    sent: for each step, the layers that leave after it. step: seconds of computing in it. message: seconds
    of a layer on the link. delay: steps that go on while messages travel, τ.
    """
    now, free, due = 0.0, 0.0, {}
    for number in range(rounds * len(sent)):
        now = max(now, due.pop(number, 0.0)) + step
        leaving = sent[number % len(sent)]
        for layer in sorted(leaving, reverse=True):
            free = max(free, now - 2 / 3 * step * layer / layers) + message
        if leaving:
            due[number + 1 + delay] = free
    return max([now] + list(due.values()))


def utilization(layer_bits, layers, step, link, every=1, size=None, delay=0, rounds=4):
    """Return the share of time in which a rank computes, over `rounds` times `every` steps.

    layer_bits: that a layer sends. step: seconds of computing in a step. link: bits a second. every: steps
    between two messages of a layer, H. size: layers of a fragment; all of them by default. delay: steps that
    go on while a fragment travels, τ.
    """
    for name, value in (("layer_bits", layer_bits), ("step", step), ("link", link)):
        quantity(name, value, positive=True)
    whole("delay", delay, 0), whole("rounds", rounds)
    fragments = fragments_of(layers, layers if size is None else size)
    sent = [[] for _ in range(whole("every", every))]
    for fragment, after in zip(fragments, sending_steps(every, len(fragments))):
        sent[after] += fragment
    return rounds * every * step / seconds(sent, layers, step, layer_bits / link, delay, rounds)


def table_utilization(parameters, gbits, bits=16, **way):
    """Return the `utilization` of one of MODELS, by its parameters, at `gbits` Gbit/s; way: as there."""
    layers, step = MODELS[one_of("parameters", parameters, PARAMETERS)]
    return utilization(parameters * bits / layers, layers, step, gbits * 1e9, **way)


def table_place(parameters, target, **way):
    """Return the index of the last bandwidth of GRID at which `table_utilization` is below `target`.

    None if there is none. Utilization grows with bandwidth, so halving the grid finds it.
    """
    low, high = -1, len(GRID)
    while high - low > 1:
        middle = (low + high) // 2
        if table_utilization(parameters, GRID[middle], **way) < target:
            low = middle
        else:
            high = middle
    return low if low >= 0 else None


def printed_place(gbits):
    """Return the index of the bandwidth of GRID nearest to `gbits`, which that table prints rounded."""
    quantity("gbits", gbits, positive=True)
    return min(range(len(GRID)), key=lambda k: abs(GRID[k] / gbits - 1))


def last_below(target, utilizations):
    """Return the index of the last utilization below `target`, which that table prints; None if none is."""
    below = [index for index, value in enumerate(utilizations) if value < target]
    return below[-1] if below else None


def bits_per_step(parameters, bits=16, every=1):
    """Return the bits that a rank's parameters make a step, on average, however they are cut."""
    quantity("parameters", parameters), quantity("bits", bits)
    return parameters * bits / whole("every", every)
