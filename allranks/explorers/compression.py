"""When do fewer bytes take less time? Four ways to average gradients: dense, top-k, 1-bit and PowerSGD.

Above, the seconds of each: compressing, latencies one after another, bytes. Below, a row for each number of
ranks and a column for each link: how many times faster than the dense all-reduce one of them is. Nothing
overlaps, and what compression does to the loss is not in the picture. `allranks.compression` computes it.
"""

from ..compression import METHODS, cost, elements_of, fastest, fastest_link, power_sgd_elements, seconds
from .frame.controls import Choice, Scale, decades, powers_of_two
from .frame.svg import (
    WIDE,
    block,
    hatches,
    legend,
    line,
    mark,
    marks_over,
    number,
    path,
    picture,
    rectangle,
    text,
)
from .frame.words import counted, figures, fixed, gigabits, scaled
from .frame.words import seconds as time_words

TITLE = "Gradient compression: bytes, time and links"

NAMES = (("top_k", "top-k"), ("one_bit", "1-bit"), ("power_sgd", "PowerSGD"))
NAMED = dict(NAMES + (("dense", "dense"),))
SIZES = (("small", (12, 768)), ("medium", (24, 2048)), ("large", (32, 4096)), ("huge", (80, 8192)))
MODELS = dict(SIZES)
SIZE_WORDS = tuple((name, f"{layers}, {hidden:,}") for name, (layers, hidden) in SIZES)
MEGABIT = 125_000  # bytes
RANKS = powers_of_two(2, 1024)


LINKS = decades(100, 10**6, gigabits)  # in Mbit/s, so that the options are whole numbers
DENSITIES = tuple((each, f"{figures(each / 100)} %") for each in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000))
RATES = decades(1, 1000, lambda gigabytes: f"{gigabytes} GB/s")
CONTROLS = (
    Choice("method", "compared with dense", NAMES, "top_k"),
    Scale("link", "link", LINKS, 10_000),
    Scale("ranks", "ranks p", RANKS, 64),
    Scale("density", "top-k sends", DENSITIES, 10),
    Scale("rank", "rank of PowerSGD", powers_of_two(1, 64), 4),
    Scale("rate", "compression speed", RATES, 10),
    Scale("latency", "latency α", decades(1, 10_000, lambda µs: time_words(µs / 1e6)), 10),
    Choice("model", "blocks, hidden size", SIZE_WORDS, "large"),
    Choice("bits", "gradients in", ((16, "16 bits"), (32, "32 bits")), 16),
)


def draw(width, *, method, link, ranks, latency, rate, **job):
    """Seconds of the four ways on this link, and where `method` is faster than dense."""
    layers, hidden = MODELS[job["model"]]
    shapes = [(3 * hidden, hidden), (hidden, hidden), (4 * hidden, hidden), (hidden, 4 * hidden)] * layers
    elements, value = sum(map(elements_of, shapes)), job["bits"] // 8
    options = {
        "density": job["density"] / 10_000,
        "factors": power_sgd_elements(shapes, job["rank"]),
        "value_bytes": value,
    }

    def parts(each, megabits=link, p=ranks):
        network = latency / 1e6, megabits * MEGABIT, rate * 10**9
        return seconds(each, elements, p, *network, **options)

    costs = {each: cost(each, elements, ranks, **options) for each in METHODS}
    words = {
        "dense": "dense",
        "top_k": f"top-k ({figures(job['density'] / 100)} %)",
        "one_bit": "1-bit",
        "power_sgd": f"PowerSGD (rank {job['rank']})",
    }
    rows = [(words[each], parts(each), costs[each].nbytes, each == method) for each in METHODS]
    marks, top = bars(width, rows)
    ratios = [
        [sum(parts("dense", each, p)) / sum(parts(method, each, p)) for each, _ in LINKS] for p, _ in RANKS
    ]
    touch = ways(width, rows) + places(width, top + 48, ratios)
    where, top = grid(width, top + 34, method, (link, ranks), ratios)
    taken = {each: sum(parts(each)) for each in METHODS}
    best = fastest(elements, ranks, latency / 1e6, link * MEGABIT, rate * 10**9, **options)
    said = (
        f"{counted(elements)} gradients in {job['bits']} bits, {ranks} ranks, {gigabits(link)}: "
        f"the dense all-reduce takes {time_words(taken['dense'])}, "
        + ", ".join(f"{words[each]} {time_words(taken[each])}" for each in METHODS[1:])
        + f". The fastest is {NAMED[best]}. "
    )
    share = costs[method].nbytes / costs["dense"].nbytes
    compressing, latencies, _ = parts(method)
    extra = compressing + latencies - parts("dense")[1]
    name = NAMED[method][0].upper() + NAMED[method][1:]
    said += f"{name} sends {figures(100 * share)} % of the dense bytes and "
    if share < 1:
        pays = fastest_link(elements * value, share, extra, ranks)
        said += f"saves time on links below {gigabits(pays / MEGABIT)}."
    else:
        said += "saves time on no link."
    ratio = taken["dense"] / taken[method]
    return {
        "svg": picture(width, top, marks, where),
        "text": said,
        "marks": marks_over(width, top, touch),
        "result": (
            f"{figures(ratio, 2)} ×",
            f"as fast as dense: {words[method]}, {ranks} ranks, {gigabits(link)}",
        ),
        "insight": insight(words[method], share, ratio, (compressing, latencies), parts("dense")),
        "idle": [],
    }


def insight(name, share, ratio, paid, dense):
    """What fewer bytes save, and what that costs, in a sentence. paid: seconds to compress, latencies."""
    name = name[0].upper() + name[1:]
    if share >= 1:
        return f"{name} sends more bytes than dense does: every rank needs what all the others have chosen."
    sends = f"{name} sends {figures(100 * share)} % of the bytes"
    if ratio > 1:
        most = f"{figures(1 / share)} times as fast at most"
        return f"{sends}: {most}, {figures(ratio)} times with compressing and latencies included."
    costs = "compressing" if paid[0] >= paid[1] - dense[1] else "the extra latency"
    return f"{sends}, yet it is slower: {costs} takes longer than the saved bytes would."


def ways(width, rows):
    """Places: the bars; a click compares one of them with dense."""
    marks, high = [], 28 if width == WIDE else 44
    for turn, (each, (words, parts, nbytes, _)) in enumerate(zip(METHODS, rows)):
        sets = "" if each == "dense" else f"method={each}"
        shown = ", ".join(
            f"{time_words(part)} {what}"
            for part, what in zip(parts, ("compressing", "of latencies", "of bytes"))
        )
        marks.append(
            mark(0, 28 + high * turn, width, high - 3, sets, f"{words}, {scaled(nbytes, 'B')}: {shown}")
        )
    return marks


def places(width, top, ratios):
    """Places: the cells of the table; a click takes that link and that number of ranks."""
    left, row = 44, 22
    cell, marks = (width - left) / len(LINKS), []
    for turn, (p, _) in enumerate(RANKS):
        for column, (link, words) in enumerate(LINKS):
            words = f"{p} ranks, {words}: {times(ratios[turn][column])} times as fast as dense"
            sets, x = f"ranks={p},link={link}", left + column * cell
            marks.append(mark(x, top + turn * row, cell - 1, row - 1, sets, words))
    return marks


def bars(width, rows):
    """A bar of seconds for each way, and where they end. rows: (words, its three parts, bytes, chosen)."""
    wide, mark = width == WIDE, f"compression-{width}"
    left, right = (150, 150) if wide else (0, 72)
    most = max(sum(parts) for _, parts, _, _ in rows)
    scale = (width - left - right) / most
    marks, top = [hatches(mark), text(0, 14, "seconds to average the gradients", bold=True)], 30
    for words, parts, nbytes, chosen in rows:
        size = scaled(nbytes, "B")
        if wide:
            marks.append(text(left - 10, top + 15, words, "end", 12, bold=chosen))
        else:
            marks.append(text(0, top + 11, f"{words}: {size}", size=12, bold=chosen))
            top += 16
        x = left
        for part, fill in zip(parts, ("backward-weight", "grid-strong", "comm")):
            if part * scale >= 0.2:
                marks.append(block(x, top, part * scale, 20, fill, None if fill == "grid-strong" else mark))
            x += part * scale
        after = time_words(sum(parts)) + (f" · {size}" if wide else "")
        marks.append(text(x + 6, top + 15, after, size=12, bold=chosen))
        top += 28
    key = (
        ("backward-weight", "compressing", True),
        ("grid-strong", "latencies", False),
        ("comm", "bytes on the link", True),
    )
    drawn, high = legend(left, top + 12, width - left, key, mark)
    return marks + drawn, top + high


def grid(width, top, method, here, ratios):
    """How many times faster than dense `method` is, by ranks and link, and where the table ends."""
    left, row = 44, 22
    cell = (width - left) / len(LINKS)
    title = f"times faster than dense: {NAMED[method]}"
    marks, frame = [text(0, top, title, bold=True)], ""
    top += 14
    for turn, (p, _) in enumerate(RANKS):
        y = top + turn * row
        marks.append(text(left - 8, y + 15, p, "end", 11, "ink", p == here[1]))
        for column, (link, _) in enumerate(LINKS):
            x = left + column * cell
            ratio = ratios[turn][column]
            faster = ratio > 1
            marks.append(rectangle(x, y, cell - 1, row - 1, "forward" if faster else "idle"))
            ink = "paper" if faster else "ink"
            marks.append(text(x + cell / 2, y + 15, times(ratio), "middle", 11, ink, faster))
            if (link, p) == here:
                frame = path(
                    f"M{number(x)} {y}h{number(cell - 1)}v{row - 1}h-{number(cell - 1)}z", "alarm", 3
                )
    marks.append(frame)
    top += len(RANKS) * row
    for column, (link, _) in enumerate(LINKS):
        middle = left + (column + 0.5) * cell
        words = figures(link / 1000) if link < 10**6 else "1k"
        marks.append(text(middle, top + 13, words, "middle", 11, bold=link == here[0]))
    marks.append(line(left, top + 1, width, top + 1))
    marks.append(text(0, top + 13, "ranks", size=11, ink="ink-soft"))
    marks.append(text(width, top + 31, "link (Gbit/s)", "end", 11, "ink-soft"))
    return marks, top + 38


def times(ratio):
    """A ratio in at most four characters."""
    if ratio < 9.95:
        return fixed(ratio, 1)
    return fixed(ratio, 0) if ratio < 999.5 else f"{fixed(ratio / 1000, 0)}k"
