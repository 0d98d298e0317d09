"""How does an explorer appear in Jupyter? As ipywidgets, with the same controls in the same order.

What is stored in the notebook is the picture and its words; which explorer it is, and at which settings, is
kept in the metadata of the picture, from where the page makes it live again without a kernel.
"""

import ipywidgets as widgets

from .. import draw, explorer
from .controls import Choice, Integer, Scale, Toggle, settings

LABEL = {"description_width": "11em"}
WIDTH = "26em"
COLUMNS = f"repeat(auto-fill, minmax({WIDTH}, 1fr))"


class Explorer:
    """An explorer that a notebook cell displays; `settings` and `shown` follow the controls."""

    def __init__(self, name, given):
        self.name = name
        self.controls = explorer(name).CONTROLS
        self.settings = settings(self.controls, given)
        self.shown = draw(name, self.settings)
        self.widgets = {control.name: self._widget(control) for control in self.controls}
        self._picture, self._words = widgets.HTML(), widgets.HTML()
        self._show()

    def _repr_mimebundle_(self, **kwargs):
        """The picture and its words, and in a live kernel the widget that draws it anew."""
        live = self._box()._repr_mimebundle_(**kwargs) or {}
        data = {**live, "text/plain": self.shown["text"], "image/svg+xml": self.shown["svg"]}
        return data, {"image/svg+xml": {"explorer": self.name, "settings": self.settings}}

    def _box(self):
        reset = widgets.Button(description="Reset", tooltip="Back to the initial settings")
        start = dict(self.settings)
        reset.on_click(lambda _: self._set(start))
        rows = [
            _with_play(widget) if isinstance(widget, _Steps) else widget for widget in self.widgets.values()
        ]
        controls = widgets.GridBox([*rows, reset], layout={"grid_template_columns": COLUMNS})
        return widgets.VBox([controls, self._picture, self._words])

    def _widget(self, control):
        words = control.label
        value = self.settings[control.name]
        if isinstance(control, (Choice, Scale)):
            kind = widgets.Dropdown if isinstance(control, Choice) else widgets.SelectionSlider
            widget = kind(options=[(shown, option) for option, shown in control.options], value=value)
        elif isinstance(control, Integer):
            widget = widgets.IntSlider(value=value, min=control.low, max=control.high)
        elif isinstance(control, Toggle):
            widget = widgets.Checkbox(value=value, indent=True)
        else:
            widget = _Steps(value=value, max=max(value, self.shown.get("steps", 1) - 1))
        widget.description, widget.style, widget.layout.width = words, LABEL, WIDTH
        widget.observe(lambda change: self._set({control.name: change["new"]}), names="value")
        return widget

    def _set(self, changed):
        """Draw at the changed settings; one that is refused is explained, and the picture stays."""
        self.settings = {**self.settings, **changed}
        for name, value in changed.items():
            self.widgets[name].value = value
        try:
            self.shown = draw(self.name, self.settings)
        except ValueError as refusal:
            self._words.value = f"<p role='alert'><b>Not possible:</b> {refusal}.</p>"
        else:
            self._show()

    def _show(self):
        self._picture.value = self.shown["svg"]
        self._words.value = f"<p>{self.shown['text']}</p>"
        for name, widget in self.widgets.items():
            widget.disabled = name in self.shown.get("idle", ())
            if isinstance(widget, _Steps):
                widget.max = self.shown.get("steps", 1) - 1


class _Steps(widgets.IntSlider):
    """The slider of a step that can be played."""


def _with_play(slider):
    play = widgets.Play(min=0, max=slider.max, value=slider.value, interval=700)
    widgets.link((play, "value"), (slider, "value"))
    slider.observe(lambda change: setattr(play, "max", change["new"]), names="max")
    return widgets.HBox([slider, play])
