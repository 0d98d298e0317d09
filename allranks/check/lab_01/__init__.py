"""The tasks of Lab 01: ranks on whatever this machine has."""

from allranks.check.lab_01.communicating import report, same_start, sum_by_node
from allranks.check.lab_01.diagnosing import logs
from allranks.check.lab_01.linking import links
from allranks.check.lab_01.measuring import all_reduce_measured
from allranks.check.lab_01.placing import my_device, my_part
from allranks.check.lab_01.scripts import main
from allranks.check.lab_01.timing import seconds_of
from allranks.check.lab_01.training import milestone

__all__ = [
    "all_reduce_measured",
    "links",
    "logs",
    "main",
    "milestone",
    "my_device",
    "my_part",
    "report",
    "same_start",
    "seconds_of",
    "sum_by_node",
]
