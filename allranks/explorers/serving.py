"""When does each request get its tokens, under load? Waiting, prompts, tokens and pages on one clock.

Above, a row for each request: a thin line while it waits, a tall block while its prompt is computed, a stroke
for each token, a dashed line after a preemption. The longest pause between two tokens is framed. In the
middle, the pages in use. Below, all three policies on the same requests. `allranks.inference` simulates them.
"""

from ..inference import (
    engine,
    gaps,
    lengths,
    mean,
    most_pages,
    percentile,
    poisson,
    preemptions,
    recomputed_tokens,
    requests,
    serve,
    tpot,
    ttft,
)
from ..transformer import PRESETS
from .frame.controls import Choice, Integer, Scale, powers_of_two
from .frame.svg import WIDE, bars, line, mark, marks_over, number, path, picture, rectangle, text
from .frame.words import fixed, percent, seconds

TITLE = "Serving: requests, batches and pages"

POLICIES = (("static", "static batches"), ("continuous", "continuous"), ("chunked", "chunked prefill"))
LABELS = {"static": "static batches", "continuous": "continuous, prefill first", "chunked": "chunked prefill"}
LOADS = tuple((each, str(each)) for each in (1, 2, 4, 8, 12, 16, 20, 24, 32, 48))
POOLS = tuple((each, f"{each:,}") for each in (144, 192, 256, 320, 384, 512, 768, 1024))
CONTROLS = (
    Scale("load", "requests a second", LOADS, 20),
    Choice("policy", "policy", POLICIES, "continuous"),
    Scale("budget", "tokens a step (chunk)", powers_of_two(64, 4096, lambda each: f"{each:,}"), 512),
    Scale("pages", "pages of 16 tokens", POOLS, 512),
    Integer("seed", "random seed", 1, 20, 1),
)
COUNT, PROMPT, OUTPUT, PAGE = 16, (128, 2048), (8, 48), 16
MODEL, DEVICE, EFFICIENCY = "llama3-8b", "h100", 0.6
LEFT, TOP, ROW, HIGH = 26, 26, 15, 54


def draw(width, *, load, policy, budget, pages, seed):
    """The timeline of the chosen policy, its pages, and the latencies of all three."""
    listed = requests(
        poisson(load, COUNT, seed), lengths(*PROMPT, COUNT, seed), lengths(*OUTPUT, COUNT, seed)
    )
    server = engine(PRESETS[MODEL], DEVICE, efficiency=EFFICIENCY)
    runs = {name: serve(listed, server, name, budget, pages=pages, page=PAGE) for name, _ in POLICIES}
    run = runs[policy]
    end = run.iterations[-1].end
    scale = (width - LEFT - 2) / end
    marks = timeline(run, scale) + pauses(run, scale)
    bottom = TOP + ROW * COUNT
    marks += clock(width, end, scale, bottom)
    drawn, bottom = legend(width, bottom + 42)
    marks += drawn
    touch = one_by_one(run, width) + sizes(width, bottom + 20, pages)
    drawn, bottom = pool(width, bottom + 20, run, scale)
    marks += drawn
    touch += policies(width, bottom + 42, runs)
    drawn, bottom = table(width, bottom + 28, runs, policy)
    return {
        "svg": picture(width, bottom, marks, drawn),
        "text": words(load, policy, budget, runs),
        "marks": marks_over(width, bottom, touch),
        "result": (seconds(latencies(run)[0]), "until half of the requests have their first token"),
        "insight": insight(policy, runs),
        "idle": ["budget"] if policy == "static" else [],
    }


def latencies(run):
    """Median and longest TTFT, mean TPOT and the longest gap of a run, in seconds."""
    firsts = [ttft(each) for each in run.served]
    longest = max(max(gaps(each)) for each in run.served)
    return percentile(firsts, 0.5), max(firsts), mean([tpot(each) for each in run.served]), longest


def insight(policy, runs):
    """What the policy costs and saves beside another, in a sentence."""
    lost = sum(preemptions(each) for each in runs[policy].served)
    if lost:
        again = recomputed_tokens(runs[policy])
        times = "once" if lost == 1 else f"{lost} times"
        return f"The pages run out {times}: {again:,} tokens are thrown away and recomputed."
    other = "chunked" if policy == "continuous" else "continuous"
    (mine, _, _, pause), (theirs, _, _, their_pause) = latencies(runs[policy]), latencies(runs[other])
    if policy == "static":
        words = "A batch is closed while it runs; if requests could join, half of the first tokens would come"
        return f"{words} by {seconds(theirs)}."
    first = f"half of the first tokens come by {seconds(mine)}, not {seconds(theirs)}"
    other = "chunked prefill" if policy == "continuous" else "whole prompts"
    return f"The longest pause is {seconds(pause)}, against {seconds(their_pause)} with {other}; {first}."


def one_by_one(run, width):
    """Places: the requests, each of which says what happened to it."""
    marks = []
    for row, each in enumerate(run.served):
        words = f"request {row + 1}: {each.request.prompt:,} tokens of prompt, first token after "
        words += f"{seconds(ttft(each))}, {len(each.times)} tokens, longest pause {seconds(max(gaps(each)))}"
        lost = preemptions(each)
        words += f", preempted {lost} time{'s' if lost > 1 else ''}" if lost else ""
        marks.append(mark(0, TOP + ROW * row, width, ROW, "", words))
    return marks


def sizes(width, top, pages):
    """Places: upper and lower half of the pool; a click takes more pages, or fewer."""
    values, marks = [value for value, _ in POOLS], []
    for down, by in ((12, 1), (12 + HIGH / 2, -1)):
        to = values.index(pages) + by
        if 0 <= to < len(values):
            words = f"{'more' if by > 0 else 'fewer'} pages: {values[to]:,}"
            marks.append(mark(LEFT, top + down, width - LEFT - 2, HIGH / 2, f"pages={values[to]}", words))
    return marks


def policies(width, top, runs):
    """Places: the rows of the table; a click takes a policy."""
    marks = []
    for row, (name, _) in enumerate(POLICIES):
        half, _, _, longest = latencies(runs[name])
        words = (
            f"{LABELS[name]}: half of the first tokens by {seconds(half)}, longest pause {seconds(longest)}"
        )
        marks.append(mark(0, top + 6 + 21 * row, width, 20, f"policy={name}", words))
    return marks


def words(load, policy, budget, runs):
    """What the picture shows, in numbers, and what follows."""
    run = runs[policy]
    half, last, later, longest = latencies(run)
    lost = sum(preemptions(each) for each in run.served)
    said = (
        f"{COUNT} requests, {load} a second, to {MODEL} on an H100 at {percent(EFFICIENCY, 0)} of its peaks: "
        f"{LABELS[policy]}. Half of them get their first token within {seconds(half)}, all within "
        f"{seconds(last)}. Later tokens take {seconds(later)} on average; the longest pause is "
        f"{seconds(longest)}. At most {most_pages(run):,} of {run.pages:,} pages are in use"
    )
    if lost:
        again = recomputed_tokens(run)
        said += f"; {lost} preemption{'s' if lost > 1 else ''}, {again:,} tokens recomputed. "
    else:
        said += ", without preemption. "
    if policy == "static":
        other = latencies(runs["continuous"])[0]
        said += "A late request waits for a whole batch; with continuous batching half have it within "
        said += f"{seconds(other)}."
    elif policy == "continuous":
        other = latencies(runs["chunked"])[3]
        said += (
            f"Decodes pause while prompts are computed; with chunks the longest pause is {seconds(other)}."
        )
    else:
        other = latencies(runs["continuous"])[3]
        said += f"A step takes at most {budget:,} tokens; with whole prompts the longest pause is "
        said += f"{seconds(other)}."
    return said


def timeline(run, scale):
    """A row for each request: its phases and its tokens."""
    marks, strokes = [text(0, 13, "requests, in order of arrival", bold=True)], []
    for row, each in enumerate(run.served):
        y = TOP + ROW * row
        middle = y + ROW / 2
        marks.append(text(LEFT - 6, y + 11, row + 1, "end", 11, "ink-soft"))
        for (name, start), (_, stop) in zip(each.phases, each.phases[1:]):
            x, long = LEFT + start * scale, (stop - start) * scale
            if name == "prefill":
                marks.append(rectangle(x, y + 1, long, ROW - 2, "forward"))
            elif name == "decode":
                marks.append(rectangle(x, y + 4, long, ROW - 8, "idle"))
            elif long >= 0.05:
                lost = name == "preempted"
                stroke, thick, dash = ("alarm", 2, "3 3") if lost else ("grid-strong", 1.5, None)
                marks.append(line(x, middle, x + long, middle, stroke, thick, dash))
        for second in each.times:
            x = LEFT + second * scale
            strokes.append(f"M{int(10 * x + 0.5)} {int(10 * middle + 0.5)}h14")
    marks.append(bars(strokes, ROW - 5, "backward-weight"))
    return marks


def pauses(run, scale):
    """A frame around the longest gap between two tokens."""
    longest = max(max(gaps(each)) for each in run.served)
    for row, each in enumerate(run.served):
        own = gaps(each)
        if max(own) == longest:
            x = LEFT + each.times[own.index(longest)] * scale
            return [rectangle(x, TOP + ROW * row, max(1.5, longest * scale), ROW, None, "alarm")]
    return []


def clock(width, end, scale, bottom):
    """The axis of time, with at most six marks."""
    step = next(each for each in (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20) if end / each <= 6)
    marks = [line(LEFT, bottom + 2, width - 2, bottom + 2)]
    for turn in range(int(end / step) + 1):
        x = LEFT + turn * step * scale
        marks.append(line(x, bottom + 2, x, bottom + 6))
        words = fixed(turn * step, 2 if step < 0.1 else 1 if step < 1 else 0)
        if x < width - 30 and turn:
            marks.append(text(x, bottom + 19, words, "middle", 11, "ink-soft"))
    marks.append(text(width - 2, bottom + 19, "s", "end", 11, "ink-soft"))
    return marks


def legend(width, top):
    """What the marks are, and where the words end."""
    marks, x, y = [], 0, top
    entries = ("waiting", "prefill", "a token", "preempted", "longest pause")
    for turn, words in enumerate(entries):
        needed = 24 + 6.6 * len(words) + 14
        if x and x + needed > width:
            x, y = 0, y + 19
        if turn == 0:
            marks.append(line(x, y - 4, x + 18, y - 4, "grid-strong", 1.5))
        elif turn == 1:
            marks.append(rectangle(x, y - 11, 18, ROW - 2, "forward"))
        elif turn == 2:
            marks += [
                rectangle(x + 2, y - 8, 16, ROW - 8, "idle"),
                rectangle(x + 9, y - 9, 1.4, 10, "backward-weight"),
            ]
        elif turn == 3:
            marks.append(line(x, y - 4, x + 18, y - 4, "alarm", 2, "3 3"))
        else:
            marks.append(rectangle(x + 0.5, y - 12, 17, ROW, None, "alarm"))
        marks.append(text(x + 24, y, words, size=12, ink="ink-soft"))
        x += needed
    return marks, y + 8


def pool(width, top, run, scale):
    """The pages held, over the same time, under the line of the pool, and where the chart ends."""
    base = top + 12 + HIGH
    marks = [text(0, top, "pages in use", bold=True)]
    most = f"pool: {run.pages:,}"
    marks.append(text(width, top, most, "end", 12, "ink-soft"))
    points, last = [f"M{LEFT} {number(base)}"], 0
    for each in run.iterations:
        x, y = LEFT + each.start * scale, base - HIGH * each.pages / run.pages
        if each.start > last:
            points.append(f"V{number(base)}")
        points.append(f"H{number(x)}V{number(y)}")
        last = each.end
    points.append(f"H{number(LEFT + last * scale)}V{number(base)}")
    marks.append(path("".join(points), None, fill="comm"))
    marks.append(line(LEFT, base - HIGH, width - 2, base - HIGH, "ink", 1, "3 3"))
    marks.append(line(LEFT, base, width - 2, base))
    return marks, base


def table(width, top, runs, policy):
    """The latencies under every policy, the chosen one in bold, and where the table ends."""
    left = 150 if width == WIDE else 78
    cell = (width - left) / 4
    marks = []
    for column, (one, two) in enumerate(
        (("first token", "half"), ("first token", "all"), ("later", "mean"), ("longest", "pause"))
    ):
        x = left + (column + 0.9) * cell
        marks.append(text(x, top, one, "end", 11, "ink-soft"))
        marks.append(text(x, top + 14, two, "end", 11, "ink-soft"))
    y = top + 14
    for name, _ in POLICIES:
        y += 21
        chosen = name == policy
        if chosen:
            marks.append(rectangle(0, y - 14, width, 20, "tint"))
        marks.append(text(4, y, LABELS[name] if width == WIDE else name, size=12, bold=chosen))
        for column, value in enumerate(latencies(runs[name])):
            x = left + (column + 0.9) * cell
            marks.append(text(x, y, seconds(value), "end", 12, bold=chosen))
    return marks, y + 12
