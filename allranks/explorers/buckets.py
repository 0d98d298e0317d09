"""How much of the gradients' all-reduce does the backward pass hide? Buckets that leave as they fill.

On one clock: the gradients, last layer first; the buckets that they fill; the network, which takes one bucket
after another. Below, what stays exposed with other bucket sizes. Buckets are those of torch's DDP.
"""

from ..collectives import bucketed_backward
from ..memory import ddp_buckets
from .frame.controls import Choice, Integer, Scale, Steps, Toggle, decades, powers_of_two
from .frame.handles import handle, handles_over
from .frame.svg import WIDE, block, hatches, line, mark, marks_over, number, path, picture, rectangle, text
from .frame.words import figures, many, percent, scaled, seconds

TITLE = "Gradient buckets and overlap"

MIB = 2**20
EACH, ALL = 1, 2**50
CAPS = (
    ((EACH, "each gradient alone"),)
    + tuple((mib * MIB, f"{mib} MiB") for mib in (1, 2, 5, 10, 25, 50, 100, 200, 400))
    + ((ALL, "one bucket"),)
)
SHORT = {EACH: "each", ALL: "all"}
ALGORITHMS = (("ring", "ring"), ("double_tree", "double tree"), ("halving_doubling", "halving–doubling"))


def mebibytes(nbytes):
    """A size in MiB."""
    return f"{figures(nbytes / MIB)} MiB"


CONTROLS = (
    Integer("layers", "layers", 1, 64, 24),
    Scale("gradient", "gradient of a layer", powers_of_two(MIB // 16, 256 * MIB, mebibytes), 4 * MIB),
    Scale("bucket", "bucket size", CAPS, 25 * MIB),
    Toggle("small_first", "first bucket 1 MiB", True),
    Scale("backward", "backward pass takes", decades(1, 1000, lambda ms: seconds(ms / 1000)), 50),
    Scale("world_size", "ranks p", powers_of_two(2, 1024), 16),
    Scale("bandwidth", "bandwidth 1/β", decades(10**8, 10**12, lambda rate: scaled(rate, "B/s")), 5 * 10**9),
    Scale("latency", "latency α", decades(1, 1000, lambda µs: seconds(µs / 1e6)), 50),
    Choice("algorithm", "all-reduce", ALGORITHMS, "ring"),
    Steps("moment", "moment (0 shows all)", 0),
)
MOMENTS = 48
LEFT, RIGHT, ROW = 66, 12, 28
BACKWARD, BUCKETS, NETWORK = 26, 66, 126


def draw(width, *, layers, bucket, moment, **job):
    """The clock of one backward pass and, below it, what other bucket sizes leave exposed."""
    sizes = [job["gradient"]] * layers
    buckets, now = overlap(sizes, bucket, job)
    others = [overlap(sizes, cap, job)[1] for cap, _ in CAPS]
    moment = min(moment, MOMENTS)
    until = now.end * moment / MOMENTS if moment else None
    marks = [hatches(f"buckets-{width}")] + clock(width, layers, buckets, now, until)
    marks += columns(width, 226, others, bucket)
    touch = filled_and_sent(width, buckets, now) + sizes_of(width, 226, others)
    return {
        "svg": picture(width, 400, marks),
        "text": said(sizes, buckets, now, others, until, job["world_size"]),
        "marks": marks_over(width, 400, touch),
        "handles": handles_over(
            width, 400, edge_of(width, sizes, bucket, job), clock_hand(width, now, moment)
        ),
        "result": (seconds(now.exposed), f"exposed: {percent(now.exposed / now.end, 0)} of the step's time"),
        "insight": insight(bucket, now, others),
        "steps": MOMENTS + 1,
        "idle": [],
    }


def insight(bucket, now, others):
    """Whether another size would expose less, and why, in a sentence."""
    least = min(range(len(CAPS)), key=lambda turn: (others[turn].exposed, turn))
    best = others[least]
    if now.exposed <= best.exposed * 1.0001:
        if now.communication > 1.5 * now.backward:
            words = "No other size exposes less, but the all-reduces take"
            return f"{words} {figures(now.communication / now.backward)} times as long as the backward pass."
        return "No other size exposes less: smaller buckets pay more latency, larger ones leave later."
    reason = "larger buckets leave later, and less is sent while the backward pass runs"
    if now.communication > best.communication * 1.001:
        reason = f"{len(now.starts)} buckets, {len(now.starts)} times the latency of an all-reduce"
    return (
        f"{figures(now.exposed / best.exposed)} times as much is exposed as with {CAPS[least][1]}: {reason}."
    )


def filled_and_sent(width, buckets, now):
    """Places: the buckets, as they fill and as they travel; a click shows the moment when one is full."""
    scale, each = (width - LEFT - RIGHT) / now.end, now.backward / (buckets[-1][-1] + 1)
    apart, marks = -(-len(buckets) // 20), []
    for turn in range(0, len(buckets), apart):
        full, start, end = now.filled[turn], now.starts[turn], now.ends[turn]
        moment = min(MOMENTS, -int(-full * MOMENTS / now.end // 1))
        words = f"bucket {turn}: full after {seconds(full)}, travels from {seconds(start)} to {seconds(end)}"
        left = LEFT + buckets[turn][0] * each * scale
        for x, y, wide in (
            (left, BUCKETS, LEFT + full * scale - left),
            (LEFT + start * scale, NETWORK, (end - start) * scale),
        ):
            marks.append(mark(x, y, max(wide - 1, 2), ROW, f"moment={moment}", words, f"b{turn}"))
    return marks


def edge_of(width, sizes, bucket, job):
    """A grip on the end of the first bucket that has the size which is set."""
    places = []
    for cap, _ in CAPS:
        buckets, then = overlap(sizes, cap, job)
        turn = min(1 if job["small_first"] else 0, len(buckets) - 1)
        places.append((cap, LEFT + then.filled[turn] * (width - LEFT - RIGHT) / then.end))
    words, middle = dict(CAPS)[bucket], BUCKETS + ROW / 2
    return handle(
        width,
        "bucket",
        "edge of a bucket: its size",
        "x",
        places,
        bucket,
        middle,
        words,
        (BUCKETS, BUCKETS + ROW),
    )


def clock_hand(width, now, moment):
    """A grip on the clock, at the moment that is shown; at its end, where all is shown."""
    room, y = (width - LEFT - RIGHT) / MOMENTS, NETWORK + ROW + 8
    places = [(at, LEFT + room * at) for at in range(1, MOMENTS + 1)] + [(0, LEFT + room * MOMENTS)]
    line = (BACKWARD - 4, y) if moment else None
    words = f"after {seconds(now.end * moment / MOMENTS)}" if moment else "all of the step"
    return handle(width, "moment", "moment on the clock", "x", places, moment, y, words, line)


def sizes_of(width, top, others):
    """Places: the columns of the lower chart; a click takes that bucket size."""
    apart = (width - LEFT - RIGHT) / len(CAPS)
    return [
        mark(
            LEFT + turn * apart,
            top + 12,
            apart - 1,
            152,
            f"bucket={cap}",
            f"{words}: {seconds(others[turn].exposed)} exposed",
        )
        for turn, (cap, words) in enumerate(CAPS)
    ]


def overlap(sizes, cap, job):
    """The buckets of at least `cap` bytes, and the `Overlap` of the backward pass with their all-reduces."""
    buckets = ddp_buckets(sizes, MIB if job["small_first"] else cap, cap)
    links = job["latency"] / 1e6, 1 / job["bandwidth"], job["algorithm"]
    return buckets, bucketed_backward(sizes, job["backward"] / 1000, buckets, job["world_size"], *links)


def clock(width, layers, buckets, now, until):
    """Gradients, buckets and network on one clock; what lies after the moment `until` is pale."""
    scale = (width - LEFT - RIGHT) / now.end
    seen = now.end if until is None else until
    rows = (("backward", BACKWARD), ("buckets", BUCKETS), ("network", NETWORK))
    marks = [text(LEFT - 8, y + ROW / 2 + 4, name, "end", 12, "ink-soft") for name, y in rows]
    marks.append(rectangle(LEFT, BACKWARD, now.end * scale, ROW, "idle"))
    marks.append(rectangle(LEFT, NETWORK, now.end * scale, ROW, "idle"))
    hatch, each = f"buckets-{width}", now.backward / layers
    for index in range(layers):
        if index * each < seen:
            x, wide = LEFT + index * each * scale, (min(seen, (index + 1) * each) - index * each) * scale
            marks.append(block(x, BACKWARD, max(wide - 1, 0.3), ROW, "backward-input", hatch))
            if wide >= 20:
                marks.append(
                    text(x + wide / 2, BACKWARD + 18, layers - 1 - index, "middle", 11, "paper", True)
                )
    thick = 1.5 if len(buckets) <= 16 else 0.75
    for turn, (indices, full, start, end) in enumerate(zip(buckets, now.filled, now.starts, now.ends)):
        left, right = LEFT + indices[0] * each * scale, LEFT + full * scale
        marks.append(rectangle(left + 0.5, BUCKETS, max(right - left - 2, 0.5), ROW, "tint", "grid-strong"))
        if indices[0] * each < seen:
            filled = min(full, seen) * scale + LEFT - left
            marks.append(rectangle(left + 0.5, BUCKETS + ROW - 5, max(filled - 2, 0.5), 5, "backward-input"))
        if right - left >= 16:
            words = f"bucket {turn}" if right - left >= 62 else str(turn)
            marks.append(text((left + right) / 2, BUCKETS + 17, words, "middle", 11))
        if start <= seen:
            x = LEFT + start * scale
            down = f"M{number(right - 1)} {BUCKETS + ROW}L{number(x + 1)} {NETWORK}"
            marks.append(path(down, "comm", thick, dash=None if start <= full else "3 3"))
        if start < seen:
            x, wide = LEFT + start * scale, (min(end, seen) - start) * scale
            marks.append(block(x, NETWORK, max(wide - 1, 0.3), ROW, "comm", hatch))
            if wide >= 18:
                marks.append(text(x + wide / 2, NETWORK + 18, turn, "middle", 12, "paper", True))
    return marks + borders(width, now, scale, until) + axis(width, now.end, scale)


def borders(width, now, scale, until):
    """Where the backward pass ends, how long the network goes on, and the moment that is looked at."""
    x, end, bottom = LEFT + now.backward * scale, LEFT + now.end * scale, NETWORK + ROW + 8
    marks = [
        line(x, BACKWARD - 8, x, bottom, "alarm", 1.5, "4 3"),
        path(f"M{number(x)} {BACKWARD - 6}H{number(end)}", "alarm", 3),
        text(width - RIGHT, BACKWARD - 12, f"exposed {seconds(now.exposed)}", "end", 12, "alarm", True),
    ]
    if until is not None:
        at = LEFT + until * scale
        marks.append(line(at, BACKWARD - 4, at, bottom, "ink", 1.5))
    return marks


def axis(width, end, scale):
    """The time axis."""
    y, step, factor = NETWORK + ROW + 8, 1e-6, 0
    most = 8 if width == WIDE else 4
    while end / step > most:
        step, factor = step * (2.5 if factor == 1 else 2), (factor + 1) % 3
    marks = [line(LEFT, y, width - RIGHT, y)]
    for tick in range(int(end / step + 1e-9) + 1):
        x = LEFT + tick * step * scale
        side = "end" if x > width - 26 else "middle"
        marks.append(line(x, y, x, y + 4))
        marks.append(text(min(x, width), y + 17, seconds(tick * step), side, 11, "ink-soft"))
    return marks


def columns(width, top, others, bucket):
    """What each bucket size leaves exposed; the chosen one stands out."""
    high, bottom = 110, top + 140
    most = max(other.exposed for other in others)
    apart = (width - LEFT - RIGHT) / len(CAPS)
    chosen = [cap for cap, _ in CAPS].index(bucket)
    marks = [
        text(LEFT, top, "exposed time by bucket size in MiB", size=12, bold=True),
        line(LEFT, bottom, width - RIGHT, bottom),
        text(LEFT - 8, bottom + 17, "MiB", "end", 11, "ink-soft"),
    ]
    for turn, (cap, _) in enumerate(CAPS):
        exposed, x = others[turn].exposed, LEFT + (turn + 0.5) * apart
        tall, mine = high * exposed / most, turn == chosen
        if mine:
            marks.append(rectangle(x - apart / 2, top + 12, apart, bottom - top + 12, "tint"))
        fill = "alarm" if mine else "grid-strong"
        marks.append(rectangle(x - apart * 0.3, bottom - tall, apart * 0.6, tall, fill))
        words = SHORT.get(cap) or str(cap // MIB)
        marks.append(text(x, bottom + 17, words, "middle", 11, "ink" if mine else "ink-soft", mine))
        if width == WIDE:
            marks.append(text(x, bottom - tall - 5, seconds(exposed), "middle", 11, "ink", mine))
        elif mine:
            at = min(max(x, LEFT + 22), width - 28)
            marks.append(text(at, top + 25, seconds(exposed), "middle", 11, "ink", True))
    return marks


def said(sizes, buckets, now, others, until, world_size):
    """The numbers in words."""
    nbytes = [sum(sizes[index] for index in each) for each in buckets]
    least = min(range(len(CAPS)), key=lambda turn: (others[turn].exposed, turn))
    amount = f"{len(buckets)} buckets of up to" if len(buckets) > 1 else "one bucket of"
    words = (
        f"A backward pass of {seconds(now.backward)} makes {mebibytes(sum(sizes))} of gradients, which leave "
        f"in {amount} {mebibytes(max(nbytes))}. All-reduces among {world_size} ranks take "
        f"{seconds(now.communication)}: {seconds(now.hidden)} hidden, {seconds(now.exposed)} exposed, "
        f"and everything is done after {seconds(now.end)}. The least exposed time, "
        f"{seconds(others[least].exposed)}, comes with {CAPS[least][1]}; {CAPS[-1][1]} exposes "
        f"{seconds(others[-1].exposed)}."
    )
    if until is not None:
        full = len([each for each in now.filled if each <= until])
        done = len([each for each in now.ends if each <= until])
        verb = "is" if full == 1 else "are"
        words += f" After {seconds(until)}, {many(full, 'bucket')} {verb} full and {done} averaged."
    return words
