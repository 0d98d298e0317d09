"""A measurement of the student's own: bytes and seconds of a step by precision, a plot, three sentences."""

from allranks.check import exercise, plotted
from allranks.check.labs import on_ranks
from allranks.check.measured import by_form

X, SECONDS, KEPT = "precision", "step (s)", "activations (B)"
PRECISIONS = ("fp32", "bf16", "fp16")
TASK = (
    "Say by which factor a step in 16 bits is faster or slower than one in fp32, which part of the bytes is "
    "saved, and what you would choose on this machine."
)


@exercise
def measured(table, plot, reflection):
    """`table()` of rows for three precisions, `plot(rows)`, and `reflection()`, judged by form."""
    columns = {"x": X, "y": (SECONDS, KEPT), "xs": PRECISIONS, "ratio_to": "fp32"}
    said = by_form(table, plot, reflection, **columns, counted=True, task=TASK)
    rows = {row[X]: row for row in on_ranks(lambda: plotted.plain(table()), world_size=1)[0]}
    for name, row in rows.items():
        assert len(set(row[SECONDS])) > 1, (
            f"In {name} all repeats of {SECONDS!r} are equal; measured times differ. Do not round them."
        )
        assert len(set(row[KEPT])) == 1 and row[KEPT][0] == int(row[KEPT][0]), (
            f"In {name}, {KEPT!r} is {row[KEPT]}; the same step keeps the same bytes each time."
        )
    for name in PRECISIONS[1:]:
        share = rows[name][KEPT][0] / rows["fp32"][KEPT][0]
        assert 0.5 <= share < 1, (
            f"In {name} a step keeps {share:.0%} of fp32's {KEPT!r}; half is the least possible, and all "
            "of them means no saving. Is forward in autocast, and are the rows those of one model and "
            "batch?"
        )
    return said
