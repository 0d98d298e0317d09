"""What did vLLM do with the digits model, and with which requests? `benchmarks/engine.py` recorded it."""

import functools
import json
from importlib import resources

import torch

from allranks.model import DIGITS, GREYS, PIXELS

from .cache import Cache
from .checkpoint import load
from .generation import generate
from .request import Request

PAGE = 32  # vLLM's smallest on CPUs: a digit and its first 31 pixels fill one
MISSING = (64, 8, 16, 24, 8, 48, 16, 8, 40, 32)  # pixels that the digits 0 to 9 lack in the load "mixed"


LOADS = ("whole", "mixed", "halves")


def loads():
    """New requests of each load, all of whose tokens are the likeliest: {name: [Request, …]}.

    "whole": ten digits at once. "mixed": drawn in part, one every third step. "halves": 33 known tokens each.
    """
    rows = pictures()
    missing = ([PIXELS] * DIGITS, MISSING, [PIXELS - PAGE] * DIGITS)
    return {
        name: [
            Request(row[: 1 + PIXELS - new], new, arrival=3 * i if name == "mixed" else 0)
            for i, (row, new) in enumerate(zip(rows, news, strict=True))
        ]
        for name, news in zip(LOADS, missing, strict=True)
    }


@functools.cache
def pictures():
    """The likeliest tokens of the digits 0 to 9, a list of 65 for each."""
    model, digits = load(), torch.arange(DIGITS)[:, None] + GREYS
    return generate(model, digits, cache=Cache(model.shape, DIGITS, PIXELS))[0].tolist()


def vllm():
    """What vLLM did, step by step: a dictionary with its version, runs, and clients of a server."""
    return json.loads((resources.files(__package__) / "vllm.json").read_text(encoding="utf-8"))
