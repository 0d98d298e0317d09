"""The tasks of Lab 06: serve the digits, from one cached token to a load within two objectives."""

from allranks.check.lab_06.common import forward
from allranks.check.lab_06.decoding import decode
from allranks.check.lab_06.guessing import guesses
from allranks.check.lab_06.judged import Judged, Server
from allranks.check.lab_06.loads import (
    BUDGETS,
    PAGE,
    SERVICES,
    SHAPE,
    WORKSPACE,
    new_load,
    plan,
    server,
)
from allranks.check.lab_06.measuring import latency_measured
from allranks.check.lab_06.pages import bytes_and_requests
from allranks.check.lab_06.scheduling import scheduler
from allranks.check.lab_06.sharing import Pool, Sharing, prefixes
from allranks.check.lab_06.slices import keep, sliced, sliced_forward
from allranks.check.lab_06.together import milestone

__all__ = [
    "BUDGETS",
    "PAGE",
    "SERVICES",
    "SHAPE",
    "WORKSPACE",
    "Judged",
    "Pool",
    "Server",
    "Sharing",
    "bytes_and_requests",
    "decode",
    "forward",
    "guesses",
    "keep",
    "latency_measured",
    "milestone",
    "new_load",
    "plan",
    "prefixes",
    "scheduler",
    "server",
    "sliced",
    "sliced_forward",
]
