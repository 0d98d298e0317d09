"""Where does a pipeline wait? Schedules as Gantt charts, one above the other on one clock.

Forwards are plain, input gradients striped across, weight gradients striped along; a backward that is not
split shows both. What is not filled is the bubble. Times and peaks are those of `allranks.simulate`.
"""

from ..schedules import SCHEDULES
from ..simulate import simulate
from .frame.controls import Choice, Integer, Scale, Steps
from .frame.handles import handle, handles_over
from .frame.svg import WIDE, bars, hatches, legend, line, mark, marks_over, number, picture, rectangle, text
from .frame.words import figures, fixed, many, percent

TITLE = "Pipeline schedules on a clock"

WORDS = {
    "gpipe": "GPipe",
    "looped_bfs": "looped GPipe",
    "one_f_one_b": "1F1B",
    "interleaved": "interleaved 1F1B",
    "pipedream": "PipeDream (async)",
    "zb_h1": "ZB-H1",
    "zb_h2": "ZB-H2",
    "zb_v": "ZB-V",
    "zero_bubble": "zero bubble, searched",
    "dualpipe": "DualPipe",
    "dualpipe_v": "DualPipeV",
}
WITH_CHUNKS = ("interleaved", "looped_bfs")
SPLIT = ("zb_h1", "zb_h2", "zb_v", "zero_bubble", "dualpipe", "dualpipe_v")  # the backward, into two
TIMES = tuple((each / 4, f"{each / 4:g}") for each in (1, 2, 3, 4, 5, 6, 8, 12))
LATENCIES = tuple((each, f"{each:g}") for each in (0, 0.05, 0.1, 0.2, 0.3, 0.5, 1))
NAMES = tuple((name, WORDS.get(name, name)) for name in SCHEDULES)

CONTROLS = (
    Choice("schedule", "schedule", NAMES, "one_f_one_b"),
    Choice("beside", "compared with", (("", "nothing"),) + NAMES, "gpipe"),
    Integer("stages", "ranks p", 1, 16, 4),
    Integer("microbatches", "micro-batches m", 1, 64, 8),
    Integer("chunks", "chunks a rank v", 1, 4, 2),
    Scale("forward", "forward takes", TIMES, 1.0),
    Scale("input_grad", "input gradient takes", TIMES, 1.0),
    Scale("weight_grad", "weight gradient takes", TIMES, 1.0),
    Scale("transfer", "transfer takes", LATENCIES, 0),
    Integer("memory_limit", "memory limit", 1, 32, 8),
    Steps("moment", "moment (0 shows all)", 0),
)
MOST_MOMENTS, MOST_MARKS = 240, 24
LEFT, RIGHT = 54, 62
WORK = ("forward", "input_grad", "weight_grad")


def draw(width, *, schedule, beside, stages, microbatches, chunks, memory_limit, moment, **durations):
    """The chart of `schedule`, and of `beside` below it."""
    timelines = []
    for name in (schedule, beside) if beside else (schedule,):
        made = make(name, stages, microbatches, chunks, memory_limit, durations)
        timelines.append((name, simulate(made, **durations)))
    end = max(timeline.makespan for _, timeline in timelines)
    briefest = min(durations["forward"], durations["input_grad"], durations["weight_grad"])
    steps = min(MOST_MOMENTS, int(end / briefest + 0.999))
    until = end * min(moment, steps) / steps if moment else None
    share = durations["input_grad"] / (durations["input_grad"] + durations["weight_grad"])
    top, marks, words = 0, [hatches(f"pipeline-{width}")], []
    for name, timeline in timelines:
        drawn, top = chart(name, timeline, top, width, end, until, share)
        marks += drawn
        words.append(said(name, timeline, until))
    entries = (
        ("forward", "forward", False),
        ("backward-input", "input gradient", True),
        ("backward-weight", "weight gradient", True),
        ("idle", "bubble", False),
    )
    touch = moments(top, width, end, steps, moment) + names_of(timelines, width)
    drawn, height = legend(LEFT, top + 18, width - LEFT, entries, f"pipeline-{width}")
    idle = [] if {schedule, beside} & set(WITH_CHUNKS) else ["chunks"]
    if "zero_bubble" not in (schedule, beside):
        idle.append("memory_limit")
    return {
        "svg": picture(width, top + 10 + height, marks, drawn),
        "text": " ".join(words),
        "marks": marks_over(width, top + 10 + height, touch),
        "handles": handles_over(
            width,
            top + 10 + height,
            bubble_edge(width, timelines[0][1], end, sum(durations[each] for each in WORK)),
            clock_hand(width, top - 26, end, steps, moment),
        ),
        "result": (percent(timelines[0][1].bubble_of_total), "of the step is bubble"),
        "insight": insight(timelines, durations),
        "steps": steps + 1,
        "idle": idle,
    }


def moments(bottom, width, end, steps, moment):
    """Places on the clock of all charts: a click moves the line of the moment there."""
    apart = (steps + MOST_MARKS - 1) // MOST_MARKS
    wide = (width - LEFT - RIGHT) * apart / steps
    made = []
    for at in range(apart, steps + 1, apart):
        what, sets = ("show all", 0) if at == moment else ("show what each rank holds", at)
        words, x = (
            f"after {many(figures(end * at / steps), 'unit')} of time: {what}",
            LEFT + (at // apart - 0.5) * wide,
        )
        made.append(mark(x, 24, wide, bottom - 50, f"moment={sets}", words))
    return made


def bubble_edge(width, timeline, end, work):
    """A grip where the longest wait at the start ends: more micro-batches make it a smaller part of the step.

    work: what one micro-batch takes on a rank.
    """
    firsts = [starts[0] for starts in timeline.starts]
    first, now = max(firsts), timeline.schedule.microbatches
    if not first:
        return ""
    rank, room = firsts.index(first), (width - LEFT - RIGHT) * first
    places = [(m, LEFT + room / (end + (m - now) * work)) for m in range(1, 65) if end + (m - now) * work > 0]
    row = row_of(timeline.schedule.stages)
    middle = 24 + (rank + 0.5) * row - 1
    words = f"{many(now, 'micro-batch')}, {percent(timeline.bubble_of_total)} bubble"
    label = "edge of the bubble: micro-batches"
    return handle(
        width, "microbatches", label, "x", places, now, middle, words, (24, 24 + (rank + 1) * row - 2)
    )


def clock_hand(width, y, end, steps, moment):
    """A grip on the clock, at the moment that is shown; at the end, where all is shown."""
    moment = min(moment, steps)
    room = (width - LEFT - RIGHT) / steps
    places = [(at, LEFT + room * at) for at in range(1, steps + 1)] + [(0, LEFT + room * steps)]
    line = (24, y) if moment else None
    words = f"after {figures(end * moment / steps)}" if moment else "all of the step"
    return handle(width, "moment", "moment on the clock", "x", places, moment, y, words, line)


def names_of(timelines, width):
    """The names of two charts: a click on one leaves it alone."""
    if len(timelines) < 2:
        return []
    high = 24 + timelines[0][1].schedule.stages * row_of(timelines[0][1].schedule.stages) + 26
    return [
        mark(
            0,
            place * high,
            width / 2,
            22,
            f"schedule={name},beside=",
            f"{WORDS.get(name, name)}: show it alone",
        )
        for place, (name, _) in enumerate(timelines)
    ]


def row_of(stages):
    """How high the row of a rank is."""
    return 26 if stages <= 4 else 20 if stages <= 8 else 15


def insight(timelines, durations):
    """What the picture teaches at these settings, in a sentence."""
    (name, ours), *others = timelines
    held = many(figures(max(ours.peak_activations)), "micro-batch")
    for beside, theirs in others:
        if beside == name:
            continue
        gain = (theirs.makespan - ours.makespan) / theirs.makespan
        time = f"{percent(abs(gain))} {'less' if gain > 0 else 'more'} time than"
        time = "as long as" if abs(gain) < 0.0005 else time
        words = f"{WORDS.get(name, name)} takes {time} {WORDS.get(beside, beside)}, and the rank that "
        words += f"stores most holds {held}, not {figures(max(theirs.peak_activations))}."
        return words[0].upper() + words[1:]
    idle = figures(ours.makespan - ours.ideal)
    words = f"Of {figures(ours.makespan, 4)} units of time {figures(ours.ideal, 4)} are work"
    if name in ("gpipe", "one_f_one_b") and not durations["transfer"]:
        return f"{words}. Filling and draining take {idle}, a smaller share with more micro-batches."
    return f"{words} and {idle} are waiting; the rank that stores most holds {held}."


def make(name, stages, microbatches, chunks, memory_limit, durations):
    """The schedule `name` with what it takes."""
    if name in WITH_CHUNKS:
        return SCHEDULES[name](stages, microbatches, chunks)
    if name == "zero_bubble":
        return SCHEDULES[name](stages, microbatches, memory_limit, **durations)
    return SCHEDULES[name](stages, microbatches)


def chart(name, timeline, top, width, end, until, share):
    """The marks of one Gantt chart below `top`, and where the next can begin.

    share: the part of a backward that is input gradient.
    """
    stages = timeline.schedule.stages
    row = row_of(stages)
    scale = (width - LEFT - RIGHT) / end
    marks = [text(0, top + 16, WORDS.get(name, name), bold=True)]
    words, held = "holds at most", timeline.peak_activations
    if until is not None:
        words, held = "holds", [holding(timeline, rank, until) for rank in range(stages)]
    marks.append(text(width, top + 16, words, "end", 12, "ink-soft"))
    top += 24
    paths, numbers = ([], [], []), []
    for rank in range(stages):
        y = top + rank * row
        marks.append(text(LEFT - 8, y + row / 2 + 4, f"rank {rank}", "end", 12, "ink-soft"))
        marks.append(rectangle(LEFT, y, timeline.makespan * scale, row - 2, "idle"))
        lay(timeline, rank, y + row / 2 - 1, scale, until, share, paths, numbers)
        marks.append(text(width - RIGHT + 8, y + row / 2 + 4, figures(held[rank]), size=12))
    hatch = f"pipeline-{width}"
    marks.append(bars(paths[0], row - 2, "forward"))
    marks.append(bars(paths[1], row - 2, "backward-input", hatch))
    marks.append(bars(paths[2], row - 2, "backward-weight", hatch))
    marks += numbers
    bottom = top + stages * row
    marks += clock(bottom, end, scale, width)
    if until is not None:
        x = LEFT + until * scale
        marks.append(line(x, top - 4, x, bottom + 4, "ink", 1.5))
    return marks, bottom + 26


def lay(timeline, rank, y, scale, until, share, paths, numbers):
    """Append the bars of one rank to `paths`, and to `numbers` its micro-batches where they fit.

    y: the middle of the row in pixels. Everything else here is in tenths of a pixel.
    """
    forward, input_grad, weight_grad = paths
    middle, left, scale = f" {number(10 * y)}h", 10 * LEFT, 10 * scale
    for (kind, microbatch, _), start, stop in zip(
        timeline.schedule.orders[rank], timeline.starts[rank], timeline.ends[rank]
    ):
        if until is not None and start >= until:
            break
        x, right = int(left + start * scale), int(left + stop * scale)
        if kind == "BW":
            border = int(x + (right - x) * share)
            weight_grad.append(f"M{border}{middle}{right - border - 8}")
            right = border
        if kind == "W":
            weight_grad.append(f"M{x}{middle}{right - x - 8}")
        else:
            (forward if kind == "F" else input_grad).append(f"M{x}{middle}{right - x - 8}")
            if right - x >= 130:
                numbers.append(text((x + right) / 20, y + 4, microbatch, "middle", 11, "paper", True))


def holding(timeline, rank, moment):
    """How many micro-batches' activations `rank` holds at `moment`."""
    held = 0
    for when, level in timeline.activations(rank):
        if when > moment:
            break
        held = level
    return held


def clock(y, end, scale, width):
    """The time axis below a chart."""
    step = 1
    while end / step > (8 if width == WIDE else 4):
        step = step * 2 if str(step)[0] in "15" else step // 2 * 5
    marks = [line(LEFT, y, LEFT + end * scale, y)]
    for tick in range(0, int(end) + 1, step):
        x = LEFT + tick * scale
        marks.append(line(x, y, x, y + 4))
        marks.append(text(x, y + 16, str(tick), "middle", 11, "ink-soft"))
    return marks


def said(name, timeline, until):
    """The numbers of one chart in words."""
    schedule = timeline.schedule
    held = ", ".join(figures(each) for each in timeline.peak_activations)
    rate = f"; zero-bubble rate {percent(timeline.zero_bubble_rate)}" if name in SPLIT else ""
    sentence = (
        f"{WORDS.get(name, name)} on {many(schedule.stages, 'rank')} with "
        f"{many(schedule.microbatches, 'micro-batch')} "
        f"takes {figures(timeline.makespan, 4)} units of time, "
        f"of which {percent(timeline.bubble_of_total)} is bubble "
        f"({percent(timeline.bubble_of_ideal)} of the ideal {figures(timeline.ideal, 4)}{rate}): "
        f"{fixed(timeline.ideal / timeline.makespan, 2)} of the ideal throughput. "
        f"The ranks hold at most {held} micro-batches."
    )
    if until is not None:
        now = ", ".join(figures(holding(timeline, rank, until)) for rank in range(schedule.stages))
        sentence += f" At {figures(until)} they hold {now}."
    return sentence
