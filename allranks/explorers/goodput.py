"""How much of the time trains? Goodput against nodes or the interval, beside what five runs reported.

Above, what the time of a run goes into. Below, the goodput: a line at these settings, a disc for what a run
reported, a square for what the model gives at that run's own rate and nodes. A gap between the two is a run
that does not fit, and the words say which. `allranks.failures` computes it.
"""

from .. import failures
from .frame.controls import Choice, Scale, powers_of_two
from .frame.svg import WIDE, block, mark, marks_over, picture, rectangle, text
from .frame.words import figures, lasting, many, percent
from .goodput_chart import HIGH, chart, columns

TITLE = "Goodput: what failures and checkpoints cost"

NODES = powers_of_two(1, 16_384, lambda each: f"{each:,}")
RATES = (  # failures in a thousand node-days, or whose they are
    ("0.5", "0.5"),
    ("1", "1"),
    ("RSC-2", "RSC-2"),
    ("Llama 3 405B", "Llama 3"),
    ("RSC-1", "RSC-1"),
    ("10", "10"),
    ("OPT-175B", "OPT"),
    ("30", "30"),
    ("100", "100"),
)


def times(*options):
    """The options of a `Scale` of seconds, in few letters: "30 s", "4 min", "8 h"."""
    return tuple((each, lasting(each).replace("minutes", "min").replace("hours", "h")) for each in options)


CONTROLS = (
    Scale("rate", "failure rate", RATES, "Llama 3 405B"),
    Scale("nodes", "nodes of 8 GPUs", NODES, 2048),
    Scale("write", "to write a checkpoint", times(1, 2, 5, 10, 30, 60, 120, 300, 600, 1800), 30),
    Scale("detect", "to notice a failure", times(1, 10, 30, 60, 120, 300, 600, 1800), 60),
    Scale("restart", "to restart", times(15, 30, 60, 120, 240, 600, 1800, 3600, 14_400, 28_800), 240),
    Choice(
        "save",
        "saved at",
        (("best", "the best interval"), ("young", "Young's √(2cM)"), ("own", "my own")),
        "best",
    ),
    Scale(
        "interval",
        "my own interval",
        times(60, 120, 300, 600, 1800, 3600, 7200, 14_400, 43_200, 86_400),
        1800,
    ),
    Choice("against", "lower chart against", (("nodes", "nodes"), ("interval", "the interval")), "nodes"),
)
LOOKS = (  # a part of the time, its words, its colour
    ("trains", "training", "forward"),
    ("writes", "writing checkpoints", "comm"),
    ("repeats", "redoing lost steps", "backward-input"),
    ("detects", "noticing failures", "rank-5"),
    ("restarts", "restarting", "backward-weight"),
)
TIGHT = 0.02  # below a reported bound
LOOSE = 0.08  # beside a share that is known roughly


def draw(width, **given):
    """What the time goes into, and the goodput against nodes or the interval beside published runs."""
    own = parts_at(given)
    marks = [text(0, 13, f"goodput: {percent(own.trains)}", bold=True)]
    marks += bar(width, 24, own)
    key, top = legend(width, 70, own)
    runs = compared(given)
    against = given["against"]
    if against == "nodes":
        low, high = NODES[0][0], NODES[-1][0]
        values = sorted({int(2 ** (half / 2) + 0.5) for half in range(29)})
        curve = [(nodes, parts_at(given, nodes=nodes).trains) for nodes in values]
        now = given["nodes"], own.trains
    else:
        low, high = 60, 86_400
        values = [low * (high / low) ** (turn / 48) for turn in range(49)]
        curve = [(value, parts_at(given, save="own", interval=value).trains) for value in values]
        now = min(max(interval_of(given), low), high), own.trains
    drawn = chart(width, top + 14, against, (low, high), curve, now, runs)
    table, bottom = rows(top + 14 + HIGH + 62, against, runs)
    touch = parts_of_time(width, 70, given, own)
    if against == "nodes":
        shares = [(nodes, words, parts_at(given, nodes=nodes).trains) for nodes, words in NODES]
    else:
        options = next(control.options for control in CONTROLS if control.name == "interval")
        shares = [(at, words, parts_at(given, save="own", interval=at).trains) for at, words in options]
    touch += columns(width, top + 14, against, (low, high), shares)
    touch += published(width, top + 14 + HIGH + 62, runs)
    idle = [] if given["save"] == "own" else ["interval"]
    return {
        "svg": picture(width, bottom, marks, key, drawn, table),
        "text": words(given, own, runs),
        "marks": marks_over(width, bottom, touch),
        "result": (
            percent(own.trains),
            f"of the time is spent training; a failure comes every {lasting(mean_of(given))}",
        ),
        "insight": insight(given, own),
        "idle": idle,
    }


def insight(given, own):
    """What costs most beside training, and what would make it less, in a sentence."""
    part, says, _ = max(LOOKS[1:], key=lambda look: getattr(own, look[0]))
    share = percent(getattr(own, part))
    interval, best = interval_of(given), failures.best(given["write"], mean_of(given))
    if part == "writes" and interval < best * 0.7:
        return f"Saved too often: {says} takes {share} of the time; the best interval is {lasting(best)}."
    if part == "repeats" and interval > best * 1.4:
        return f"Saved too seldom: {says} takes {share} of the time; the best interval is {lasting(best)}."
    return f"Most of the rest, {share}, goes into {says}: {LESS[part]}."


LESS = {
    "writes": "a faster checkpoint shortens this, and lets you save more often",
    "repeats": "a faster checkpoint would allow a shorter interval",
    "detects": "no checkpoint helps, only a faster alarm",
    "restarts": "no checkpoint helps, only a faster start or fewer failures",
}


def parts_of_time(width, top, given, own):
    """Places: the parts, in the key; a click tries what makes one smaller."""
    options = dict((control.name, control.options) for control in CONTROLS)
    marks, wide = [], width / (3 if width == WIDE else 2)
    for turn, (part, says, _) in enumerate(LOOKS):
        name = {"writes": "write", "repeats": "write", "detects": "detect", "restarts": "restart"}.get(part)
        words, sets = f"{says}, {percent(getattr(own, part))} of the time", ""
        if name:
            values = [value for value, _ in options[name]]
            place = max(0, values.index(given[name]) - 1)
            sets = f"{name}={values[place]}"
            words += f": try {options[name][place][1]} {dict((c.name, c.label) for c in CONTROLS)[name]}"
        x, y = turn % (3 if width == WIDE else 2) * wide, top + turn // (3 if width == WIDE else 2) * 20
        marks.append(mark(x, y - 14, wide - 4, 19, sets, words, part))
    return marks


def published(width, top, runs):
    """Places: the lines of the runs; a click takes the failure rate of one that printed it."""
    rates, marks = [value for value, _ in RATES], []
    for turn, (name, run, _, _) in enumerate(runs):
        sets, words = "", f"{name}: {run.machines:,} nodes, {reported(run)}"
        if name in rates:
            sets, words = f"rate={name}", f"{words}; take its failure rate"
        marks.append(mark(0, top + 19 * turn + 5, width, 18, sets, words))
    return marks


def mean_of(given):
    """Seconds between two failures of the run."""
    return failures.between(given["nodes"], rate_of(given))


def rate_of(given):
    """Failures in a thousand node-days: of the run that is named, or the number that is."""
    return failures.RATES[given["rate"]] if given["rate"] in failures.RATES else float(given["rate"])


def interval_of(given, mean=None):
    """Seconds between two checkpoints by the chosen rule, where a failure comes every `mean` seconds."""
    if given["save"] == "own":
        return given["interval"]
    rule = failures.best if given["save"] == "best" else failures.best_interval
    return rule(given["write"], mean or mean_of(given))


def parts_of(given, interval, mean):
    """The `Parts` of a run with the times of the settings."""
    return failures.parts(interval, given["write"], mean, given["restart"], given["detect"])


def parts_at(given, **changed):
    """The `Parts` at the settings, or at changed ones."""
    given = dict(given)
    given.update(changed)
    return parts_of(given, interval_of(given), mean_of(given))


def compared(given):
    """For each run: name, what it reported, the model's share with its rate and nodes, whether they fit."""
    runs = []
    for name, run in sorted(failures.REPORTED.items(), key=lambda item: item[1].machines):
        model = None
        if run.rate is not None and run.kind != "projected":
            mean = failures.between(run.machines, run.rate)
            model = parts_of(given, run.interval or interval_of(given, mean), mean).trains
        runs.append((name, run, model, fits(run, model)))
    return runs


def fits(run, model):
    """Whether what a run reported can be the model's share; a run without a model does not contradict it."""
    if model is None:
        return True
    return model >= run.share - TIGHT if run.kind == "at least" else abs(model - run.share) <= LOOSE


def bar(width, top, own):
    """The parts side by side, as wide as their shares."""
    marks, x = [], 0
    for part, says, fill in LOOKS:
        long = getattr(own, part) * width
        marks.append(rectangle(x, top, long, 22, fill, title=f"{says}: {percent(getattr(own, part))}"))
        if long > 60:
            marks.append(text(x + long / 2, top + 15.5, percent(getattr(own, part)), "middle", 12, "paper"))
        x += long
    return marks


def legend(width, top, own):
    """Each part with its colour and share; returns (marks, where they end)."""
    columns = 3 if width == WIDE else 2
    marks = []
    for turn, (part, says, fill) in enumerate(LOOKS):
        x, y = turn % columns * width / columns, top + turn // columns * 20
        marks.append(block(x, y - 11, 14, 12, fill))
        marks.append(text(x + 20, y, f"{says} {percent(getattr(own, part))}", size=12, ink="ink-soft"))
    return marks, top + (len(LOOKS) - 1) // columns * 20 + 8


def rows(top, against, runs):
    """A line for each run: its nodes, what it reported, and the model; returns (marks, where they end)."""
    said = "disc: reported · square: model"
    if against == "nodes":
        said += " at that run's rate"
    else:
        without = [str(turn + 1) for turn, each in enumerate(runs) if each[1].interval is None]
        said += f" · {', '.join(without)} printed no interval"
    marks = [text(0, top, said, size=12, ink="ink-soft")]
    for turn, (name, run, model, fit) in enumerate(runs):
        says = f"{turn + 1}  {name}: {run.machines:,} nodes, {reported(run)}"
        says += (
            f"; model {percent(model, 0)}" if model is not None else "" if run.rate else "; no rate printed"
        )
        top += 19
        marks.append(text(0, top, says, size=12, ink="ink" if fit else "alarm", bold=not fit))
    return marks, top + 8


def reported(run):
    """What a run reported: "at least 90 %"."""
    share = percent(run.share, 0)
    return f"{share} projected" if run.kind == "projected" else f"{run.kind} {share}"


# ---- the words ----


def words(given, own, runs):
    """What the time goes into, when to save, and which run the model does not explain."""
    nodes, mean, interval = given["nodes"], mean_of(given), interval_of(given)
    plural = "s" if nodes > 1 else ""
    best = failures.best(given["write"], mean)
    said = (
        f"{nodes:,} node{plural}, {many(figures(rate_of(given)), 'failure')} in a thousand node-days: "
        f"one every {lasting(mean)}. With a checkpoint every {lasting(interval)}, {percent(own.trains)} of "
        f"the time is spent training. Writing takes {percent(own.writes)}, redoing {percent(own.repeats)}, "
        f"noticing {percent(own.detects)} and restarting {percent(own.restarts)}. "
    )
    if given["save"] != "best":
        most = parts_of(given, best, mean).trains
        said += f"The best interval is {lasting(best)}, with {percent(most)}. "
    return said + misfits(given, [(name, run, model) for name, run, model, fit in runs if not fit])


def misfits(given, apart):
    """Which runs the model does not explain at these settings, and how far it is from the first."""
    if not apart:
        return "All runs with a printed rate fit."
    names = [name for name, _, _ in apart]
    listed = names[0] if len(names) == 1 else ", ".join(names[:-1]) + f" and {names[-1]}"
    said = f"{listed} {'does' if len(names) == 1 else 'do'} not fit"
    name, run, model = apart[0]
    whose = "it" if len(names) == 1 else name
    said += f": {whose} reported {reported(run)}, and the model gives {percent(model, 0)}. "
    if model < run.share:
        return said + "With these times a run cannot reach that."
    mean = failures.between(run.machines, run.rate)
    interval = run.interval or interval_of(given, mean)
    cost = failures.restart_for(run.share, interval, given["write"], mean)
    return said + f"If failures alone took the rest, each restart would take {lasting(cost, 2)}."
