"""The tasks of Lab 07: cut a model by matrices and by layers, replicate it, and equal one process."""

from allranks.check.lab_07.eight_ranks import milestone, together
from allranks.check.lab_07.linears import columns, rows
from allranks.check.lab_07.measuring import layouts_measured
from allranks.check.lab_07.meshes import groups
from allranks.check.lab_07.pipelines import pipeline
from allranks.check.lab_07.stages import Stage
from allranks.check.lab_07.whole_layers import layers

__all__ = [
    "Stage",
    "columns",
    "groups",
    "layers",
    "layouts_measured",
    "milestone",
    "pipeline",
    "rows",
    "together",
]
