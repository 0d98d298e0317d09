"""What do the checks say? A process that calls them, and tells its supervisor through one pipe.

No line of the submission runs here: the checks get `answers.Answer`, which runs on ranks. What comes back
from ranks is read as plain data, and nobody else has the pipe open.
"""

import importlib
import inspect
import io
import json
import os
import pickle
import random
import sys
from multiprocessing.reduction import ForkingPickler

import torch

import allranks
from allranks.check import labs, verdict
from allranks.grading import preloaded
from allranks.grading.answers import Answer
from allranks.launch import keeper, pickling

LONGEST = 600  # letters of a reason
DATA = {
    "builtins": "bool bytearray bytes complex dict float frozenset int list range set slice str tuple",
    "collections": "Counter OrderedDict defaultdict",
    "pathlib": "Path PosixPath PurePosixPath",
    "numpy": "dtype ndarray",
    "numpy._core.multiarray": "_reconstruct scalar",
    "torch": "Size Tensor device",
    "torch._utils": "_rebuild_parameter _rebuild_tensor_v2",
    "torch.nn.parameter": "Parameter",
    "torch.serialization": "_get_layout",
    "allranks.launch.stacks": "Failure Frame",
    "allranks.transformer.sizes": "Transformer",
}


def main(descriptor, lab):
    """Grade what stdin describes, from task `first` on; a line of JSON goes to `descriptor` for each step."""
    descriptor = int(descriptor)
    preloaded.fork_server(lab, descriptor, sys.stdin.fileno())  # of a process that knows nothing yet
    keeper.prctl(preloaded.PR_SET_DUMPABLE, 0)  # other processes of the same user do not look into this one
    os.set_inheritable(descriptor, False)
    request = json.load(sys.stdin)
    labs.SECONDS = min(labs.SECONDS, request["seconds"] / 2)
    os.environ[labs.DRAW] = str(request["draw"])
    random.seed(request["draw"])

    def tell(**message):
        os.write(descriptor, json.dumps(message).encode() + b"\n")

    tasks = tasks_of(request)
    read_plain_data_only()
    python = ".".join(map(str, sys.version_info[:3]))
    versions = {"allranks": allranks.__version__, "torch": torch.__version__, "python": python}
    tell(tasks=[title for title, *_ in tasks], versions=versions)
    for number, (_, check, names) in enumerate(tasks):
        if number >= request["first"]:
            tell(begun=number)
            tell(number=number, line=line_about(check, names, request["cells"]))
    tell(done=True)
    os._exit(0)


def tasks_of(request):
    """(title, check, names) of each task of the lab, as its milestone lists them."""
    lab = importlib.import_module(f"allranks.check.{request['lab']}")
    count = len(inspect.signature(lab.milestone).parameters)
    together = request["calls"].get("milestone", [])
    tasks = []
    for title, check, *places in labs.tasks_of(lab.milestone, *range(count)):
        own = request["calls"].get(check.__name__, [])
        names = [together[place] for place in places] if len(together) == count else own
        tasks.append((title, check, names if len(names) == len(places) and all(names) else None))
    return tasks


def line_about(check, names, cells):
    """The line of a check about the functions `names`: ✓ or ✗ and a sentence."""
    if names is None:
        return f"✗ No cell calls the milestone, or this task's {check.__name__}, with the lab's functions."
    line = verdict(check.__wrapped__, *(Answer(cells, name) for name in names))
    return "".join(letter if letter.isprintable() else " " for letter in line)[:LONGEST]


def read_plain_data_only():
    """Refuse to read from ranks what could run code here: all but tensors, numbers, texts and containers."""

    def find_class(reader, module, name):
        found = pickle.Unpickler.find_class(reader, module, name) if module in DATA else None
        if name not in DATA.get(module, "").split() and not isinstance(found, torch.dtype):
            raise pickle.UnpicklingError(f"a result may hold tensors and plain data, not {module}.{name}")
        return found

    Reader = type("Reader", (pickle.Unpickler,), {"find_class": find_class})
    pickling.Unpickler.find_class = find_class
    pickling.load = lambda file, **options: Reader(file, **options).load()
    ForkingPickler.loads = staticmethod(lambda data, **options: Reader(io.BytesIO(data), **options).load())
