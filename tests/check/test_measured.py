"""A report of a measurement is judged by its form: what is invented, unlabelled or empty is refused."""

import copy
import random

import pytest
from together import verdicts
from verdicts import verdict

from allranks.check import exercise, measured, plotted

XS = (1, 2, 4)
ROWS = [
    {"ranks": 1, "tokens/s": [812.31, 809.92, 820.33, 801.74, 811.05], "at (s)": 10.513},
    {"ranks": 2, "tokens/s": [1533.6, 1519.8, 1540.1, 1498.7, 1525.2], "at (s)": 14.204},
    {"ranks": 4, "tokens/s": [2301.9, 2289.4, 2333.3, 2198.6, 2310.7], "at (s)": 21.877},
]
SENTENCES = (
    "Two ranks reach 1,525 tokens/s, which is 1.88 times as many as one rank.",
    "With four ranks the speed-up is only 2.84, because two cores are shared by them.",
    "The slowest repeat of the last row, 2198.6 tokens/s, came while another program was running.",
)


@exercise
def scaling(table, plot, reflection):
    """The form of a task, as labs use it."""
    task = "Explain in one sentence why 4 ranks are not 4.0 times as fast as one."
    return measured.by_form(table, plot, reflection, x="ranks", y="tokens/s", xs=XS, ratio_to=1, task=task)


def table_of(rows):
    return lambda: rows


def changed(*edits):
    """The table with `edits`: (row, column, value)."""
    rows = copy.deepcopy(ROWS)
    for row, column, value in edits:
        rows[row][column] = value
    return rows


def median(values):
    return sorted(values)[len(values) // 2]


def plot(rows):
    from matplotlib import pyplot as plt

    plt.plot([row["ranks"] for row in rows], [median(row["tokens/s"]) for row in rows], "o-")
    plt.xlabel("ranks")
    plt.ylabel("throughput (tokens/s)")
    plt.show()


def points(rows):
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots()
    for row in rows:
        ax.scatter([row["ranks"]] * len(row["tokens/s"]), [t / 1000 for t in row["tokens/s"]])
    ax.set(xlabel="number of ranks", ylabel="ktokens/s", xscale="log")
    return figure


def bars(rows):
    import numpy as np
    from matplotlib import pyplot as plt

    _, ax = plt.subplots()
    values = np.array([np.mean(row["tokens/s"]) for row in rows])
    ax.bar([str(row["ranks"]) for row in rows], values / values[0])
    ax.set_xlabel("ranks")
    ax.set_ylabel("speed-up over one rank")


def lying(rows):
    from matplotlib import pyplot as plt

    _, (_, ax) = plt.subplots(1, 2)
    ax.barh(range(len(rows)), [max(row["tokens/s"]) for row in rows])
    ax.set_yticks(range(len(rows)), [row["ranks"] for row in rows])
    ax.set_ylabel("ranks")
    ax.set_xlabel("tokens/s")
    plt.close()


def drawing(ys, xlabel="ranks", ylabel="tokens/s", xs="[row['ranks'] for row in rows]"):
    source = f"""
def plot(rows):
    from matplotlib import pyplot as plt
    plt.plot({xs}, {ys}, "o-")
    plt.xlabel({xlabel!r})
    plt.ylabel({ylabel!r})
"""
    names = {"__name__": "__main__"}
    exec(source, names)
    return names["plot"]


ONE = "sorted(rows[0]['tokens/s'])[2]"
MEDIANS = "[sorted(row['tokens/s'])[2] for row in rows]"
RIGHT = {
    "lines": (ROWS, plot, SENTENCES),
    "points in thousands": (ROWS, points, list(SENTENCES)),
    "bars of a ratio": (ROWS, bars, SENTENCES),
    "lying bars": (ROWS, lying, SENTENCES),
    "an efficiency": (
        ROWS,
        drawing(f"[m / {ONE} / n for m, n in zip({MEDIANS}, [1, 2, 4])]", ylabel="efficiency"),
        SENTENCES,
    ),
    "short sentences": (
        ROWS,
        plot,
        (
            "Two ranks are 1.88 times as fast.",
            "Four reach 2,302 tokens/s.",
            "Its repeats differ by a factor of 1.06.",
        ),
    ),
    "a fourth row": (
        [*ROWS, {"ranks": 3, "tokens/s": [1900.1, 1922.2, 1917.3, 1911.8, 1931.4], "at (s)": 30.0}],
        plot,
        SENTENCES,
    ),
}
WRONG = {
    "nothing": (None, plot, SENTENCES, "The table is None"),
    "no rows": ([], plot, SENTENCES, "expected a list of rows"),
    "no unit": (
        [{"ranks": row["ranks"], "tokens": row["tokens/s"], "at (s)": row["at (s)"]} for row in ROWS],
        plot,
        SENTENCES,
        "has no 'tokens/s'",
    ),
    "no stamps": (
        [{k: v for k, v in row.items() if k != "at (s)"} for row in ROWS],
        plot,
        SENTENCES,
        "has no 'at (s)'",
    ),
    "a row is missing": (ROWS[:2], plot, SENTENCES, "No row has ranks = 4"),
    "the same row twice": ([*ROWS, {**ROWS[2], "at (s)": 40.0}], plot, SENTENCES, "Two rows have the same"),
    "one value": (changed((1, "tokens/s", 1525.2)), plot, SENTENCES, "expected a list of 5 repeats"),
    "four repeats": (changed((1, "tokens/s", ROWS[1]["tokens/s"][:4])), plot, SENTENCES, "has 4 repeats"),
    "no spread": (changed((1, "tokens/s", [1525.2] * 5)), plot, SENTENCES, "repeats one value"),
    "a negative value": (
        changed((0, "tokens/s", [812.3, -1.0, 811.2, 809.9, 820.1])),
        plot,
        SENTENCES,
        "has -1.0",
    ),
    "not a number": (
        changed((0, "tokens/s", [812.3, float("nan"), 811.2, 809.9, 820.1])),
        plot,
        SENTENCES,
        "has nan",
    ),
    "texts": (changed((0, "tokens/s", ["812"] * 5)), plot, SENTENCES, "has '812'"),
    "equal rows": (
        changed(
            *(
                (
                    k,
                    "tokens/s",
                    [[812.3, 811.1, 830.2, 809.4, 822.9], [811.1, 812.3, 830.2, 809.4, 822.9]][k % 2],
                )
                for k in range(3)
            )
        ),
        plot,
        SENTENCES,
        "same median",
    ),
    "multiples of one row": (
        changed(*((k, "tokens/s", [(k + 1) * t for t in ROWS[0]["tokens/s"]]) for k in range(3))),
        plot,
        SENTENCES,
        "multiples of one",
    ),
    "evenly spaced": (
        changed(*((k, "tokens/s", [812.3 * (k + 1) + n * (1.23 + k) for n in range(5)]) for k in range(3))),
        plot,
        SENTENCES,
        "evenly spaced",
    ),
    "round numbers": (
        changed(
            (0, "tokens/s", [800, 810, 790, 800, 820]),
            (1, "tokens/s", [1500, 1600, 1500, 1500, 1400]),
            (2, "tokens/s", [2200, 2300, 2400, 2500, 2100]),
        ),
        plot,
        SENTENCES,
        "more than two digits",
    ),
    "time goes back": (changed((1, "at (s)", 9.0)), plot, SENTENCES, "order of measuring"),
    "one time for all": (changed((1, "at (s)", 10.513)), plot, SENTENCES, "order of measuring"),
    "nothing drawn": (ROWS, lambda rows: None, SENTENCES, "no axes with data"),
    "other data": (ROWS, drawing("[812, 1600, 2400]"), SENTENCES, "No axes show"),
    "typed data": (ROWS, drawing("[811.05, 1525.2, 2301.9]"), SENTENCES, "draws the old ones"),
    "a row left out": (
        ROWS,
        drawing("[sorted(row['tokens/s'])[2] for row in rows[:2]]", xs="[1, 2]"),
        SENTENCES,
        "No axes show",
    ),
    "over row numbers": (ROWS, drawing(MEDIANS, xs="[0, 1, 2]"), SENTENCES, "No axes show"),
    "no label": (ROWS, drawing(MEDIANS, ylabel=""), SENTENCES, "The y axis has the label ''"),
    "no unit in the label": (ROWS, drawing(MEDIANS, ylabel="throughput"), SENTENCES, "in tokens/s"),
    "no x label": (ROWS, drawing(MEDIANS, xlabel="n"), SENTENCES, "in ranks"),
    "the wrong prefix": (
        ROWS,
        drawing(MEDIANS.replace("[2]", "[2] / 1000"), ylabel="tokens/s"),
        SENTENCES,
        "ktokens/s",
    ),
    "a ratio that is not named": (
        ROWS,
        drawing(f"[m / {ONE} for m in {MEDIANS}]"),
        SENTENCES,
        "shows a ratio",
    ),
    "two sentences": (ROWS, plot, SENTENCES[:2], "expected three sentences"),
    "one text": (ROWS, plot, " ".join(SENTENCES), "expected three sentences"),
    "no full stop": (ROWS, plot, (*SENTENCES[:2], SENTENCES[2][:-1]), "a full stop"),
    "an empty sentence": (ROWS, plot, (*SENTENCES[:2], ""), "Sentence 3 is ''"),
    "a few words": (ROWS, plot, (*SENTENCES[:2], "Then 1,525."), "a whole sentence"),
    "no number": (
        ROWS,
        plot,
        (*SENTENCES[:2], "The more ranks there are, the faster it gets, but not by much."),
        "no number",
    ),
    "a number from elsewhere": (
        ROWS,
        plot,
        (*SENTENCES[:2], "On my machine at home the same program reached 67,431 tokens a second."),
        "Sentence 3 has no number",
    ),
    "a condition as the number": (
        ROWS,
        plot,
        (*SENTENCES[:2], "With 4 ranks it is faster than with 2 ranks, as I had expected."),
        "no number",
    ),
    "one sentence three times": (ROWS, plot, SENTENCES[:1] * 3, "repeats"),
    "one sentence with other numbers": (
        ROWS,
        plot,
        (
            "The median with one rank was 811.05 tokens/s.",
            "The median with two ranks was 1525.2 tokens/s.",
            SENTENCES[2],
        ),
        "repeats",
    ),
    "the task's words": (
        ROWS,
        plot,
        (*SENTENCES[:2], "Explain in one sentence why 4 ranks are not 2.84 times as fast as one."),
        "repeats",
    ),
}


def said_of(reports):
    """What the check says about each report; all share worlds."""
    return verdicts(
        [
            (scaling, [table_of(rows), draws, table_of(sentences)], False)
            for rows, draws, sentences, *_ in reports.values()
        ]
    )


def test_a_report_in_good_form_passes():
    for name, said in zip(RIGHT, said_of(RIGHT), strict=True):
        assert said.startswith(f"✓ {len(RIGHT[name][0])} rows hold"), f"{name}: {said}"


def test_a_report_that_lacks_something_is_refused():
    for name, said in zip(WRONG, said_of(WRONG), strict=True):
        assert said.startswith("✗") and WRONG[name][3] in said, f"{name}: {said}"


def test_seconds_that_take_longer_than_the_clock_says_are_refused(capfd):
    @exercise
    def latency(*answers):
        return measured.by_form(*answers, x="message (B)", y="time (ms)", xs=(8, 64), repeats=3)

    rows = [
        {"message (B)": 8, "time (ms)": [410.2, 409.1, 411.7], "at (s)": 1.0},
        {"message (B)": 64, "time (ms)": [520.2, 519.3, 521.9], "at (s)": 1.5},
    ]
    assert "came only 0.5 s later" in verdict(capfd, latency, table_of(rows), plot, table_of(SENTENCES))


def test_a_label_may_spell_its_unit_out():
    for label, prefix, unit, lacks in (
        ("seconds of a step", "", "s", False),
        ("Milliseconds", "m", "s", False),
        ("milliseconds", "", "s", True),
        ("message in bytes", "", "B", False),
        ("parsecs", "", "s", True),
    ):
        assert bool(plotted._lacks("y", label, prefix, unit)) == lacks, label


def test_counted_bytes_may_repeat(capfd):
    @exercise
    def memory(*answers):
        return measured.by_form(
            *answers, x="strategy", y="peak (B)", xs=("DDP", "FSDP"), repeats=1, counted=True, ratio_to="DDP"
        )

    rows = [
        {"strategy": "DDP", "peak (B)": [4_000_000], "at (s)": 1.0},
        {"strategy": "FSDP", "peak (B)": [1_250_000], "at (s)": 2.0},
    ]
    said = verdict(
        capfd,
        memory,
        table_of(rows),
        drawing(
            "[row['peak (B)'][0] / 2**20 for row in rows]",
            "strategy",
            "peak (MiB)",
            "[row['strategy'] for row in rows]",
        ),
        table_of(
            (
                "Sharding leaves 1.25 MB of the weights on each of the ranks.",
                "DDP holds 3.2 times as much, since nothing of it is cut.",
                "The difference of 2.75 MB is what other ranks hold for me.",
            )
        ),
    )
    assert said.startswith("✓"), said


@pytest.mark.parametrize(
    "number",
    ["811", "811.1", "2.8", "47 %", "88 per cent", "2.3e3", "2,302", "0.94", "2.30 k", "0.81 thousand"],
)
def test_a_number_is_found_as_it_is_rounded(number):
    numbers = set(measured._numbers(ROWS, "ranks", ("tokens/s",)))
    digits, _, unit = number.partition(" ")
    assert measured._follows(digits, unit, numbers)


def test_most_numbers_do_not_follow_from_a_table():
    random.seed(1)
    numbers = set(measured._numbers(ROWS, "ranks", ("tokens/s",)))
    others = [f"{random.uniform(100, 1000):.2f}" for _ in range(300)]
    assert sum(measured._follows(number, " tokens", numbers) for number in others) < 10


def test_rows_may_begin_at_zero(capfd):
    @exercise
    def by_stage(table, plot, reflection):
        return measured.by_form(table, plot, reflection, x="ranks", y="tokens/s", xs=(0, 2, 4), ratio_to=0)

    rows = changed((0, "ranks", 0))
    assert verdict(capfd, by_stage, table_of(rows), plot, lambda: SENTENCES).startswith("✓")
