"""Published training runs as dots: what the planner says about a step against what was measured."""

import numpy as np
import plotly.graph_objects as go

SYMBOLS = {"v100": "cross", "a100": "circle", "h100": "square", "b200": "diamond", "b300": "diamond"}
BLACKWELL = ("b200", "b300", "gb200", "gb300")
CLASSES = {"up to 64 devices": 64, "65 to 512 devices": 512, "more than 512 devices": 10**9}
MENU = {
    "all runs": lambda generation, size: True,
    "V100, A100": lambda generation, size: generation in ("v100", "a100"),
    "H100": lambda generation, size: generation == "h100",
    "Blackwell": lambda generation, size: generation in BLACKWELL,
} | {name: (lambda generation, size, name=name: size == name) for name in CLASSES}


def published_runs(predictions):
    """A figure with a dot for each of `predictions`, seconds of a step predicted against measured.

    Sources are in the legend, hardware and devices in a menu; a dot names its run, its layout, the largest
    parts of its step and its source.
    """
    figure = go.Figure()
    ends = [min(each.measured for each in predictions), max(each.measured for each in predictions)]
    figure.add_scatter(x=ends, y=ends, mode="lines", name="exact", hoverinfo="skip", line={"width": 1})
    groups = {}
    for each in predictions:
        size = next(name for name, most in CLASSES.items() if each.run.gpus <= most)
        groups.setdefault((each.run.source, each.run.generation, size), []).append(each)
    sources, named = list(dict.fromkeys(source for source, *_ in groups)), set()
    for (source, generation, _), members in groups.items():
        figure.add_scatter(
            x=np.array([each.measured for each in members], dtype="float32"),
            y=np.array([each.seconds for each in members], dtype="float32"),
            customdata=[_words(each) for each in members],
            mode="markers",
            name=source,
            legendgroup=source,
            showlegend=source not in named,
            marker={
                "color": _colour(sources.index(source), len(sources)),
                "symbol": SYMBOLS.get(generation, "diamond-open"),
                "size": 7,
            },
            hovertemplate="%{customdata}<br>measured %{x:.4g} s, predicted %{y:.4g} s<extra></extra>",
        )
        named.add(source)
    buttons = [
        {
            "label": label,
            "method": "restyle",
            "args": [{"visible": [True, *(chosen(*kind[1:]) for kind in groups)]}],
        }
        for label, chosen in MENU.items()
    ]
    figure.update_layout(
        height=640,
        xaxis={"type": "log", "title": {"text": "measured (s a step)", "standoff": 6}},
        yaxis={"type": "log", "title": {"text": "predicted (s a step)"}},
        hovermode="closest",
        legend={"orientation": "h", "y": -0.25, "yanchor": "top"},
        updatemenus=[{"buttons": buttons, "x": 0, "xanchor": "left", "y": 1.1}],
    )
    figure.layout.template = go.layout.Template(data={"scatter": [{"type": "scatter"}]})
    return figure


def _colour(place, count):
    return f"hsl({360 * place // count},60%,{45 + 8 * (place % 2)}%)"


def _words(each):
    run, layout, parts = each.run, each.plan.layout, each.plan.parts
    sizes = f"tp{layout.tp} cp{layout.cp} pp{layout.pp}×{layout.chunks} dp{layout.dp} z{layout.zero_stage}"
    shares = ", ".join(f"{name} {getattr(parts, name) / each.seconds:.0%}" for name in parts.largest()[:2])
    return (
        f"{run.model}, {run.gpus} {run.hardware}, {run.dtype}"
        f"<br>{sizes} {layout.microbatches}×{layout.microbatch}<br>{shares}<br>{run.id}: {run.where[:24]}"
    )
