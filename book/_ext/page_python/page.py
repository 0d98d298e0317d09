"""What the page asks: run this program, or show its first messages. JSON both ways."""

import builtins
import json

import torch
import torch.distributed as dist
from torch import random, tape

import allranks
from allranks.explorers import space_time
from allranks.explorers.frame.svg import NARROW, WIDE
from allranks.ranks.replay import Replay

last = None  # the replay of the program that was run last


plain_zip = zip


def strict_zip(*iterables, strict=False):
    """`zip`; MicroPython's knows no `strict`, which this book's own code uses."""
    if strict:
        iterables = [list(each) for each in iterables]
        if len({len(each) for each in iterables}) > 1:
            raise ValueError("the arguments of zip, strict, have different lengths")
    return plain_zip(*iterables)


builtins.zip = strict_zip


class Library:
    """The torch of this page, for `allranks.ranks.replay`."""

    def __init__(self):
        self.tape = tape.Tape
        self.errors = {"RankFailed": allranks.RankFailed, "RanksTimedOut": allranks.RanksTimedOut}

    def names(self):
        """The names that every program of a page has, so that it need not import them."""
        from allranks import check, collectives
        from allranks.trace import trace

        return {
            "torch": torch,
            "dist": dist,
            "launch": allranks.launch,
            "check": check,
            "collectives": collectives,
            "trace": trace,
        }

    def begin(self, rank, world_size, script):
        """Prepare a run."""
        dist.me = None if rank is None else (rank, world_size)
        del dist.calls[:]
        random.generator = None
        tape.tape = script.tape
        tape.tape.at, tape.tape.busy = 0, False


def answer(question):
    """Answer {"source", "alpha", "beta", "narrow"}, or {"world", "step", "narrow"} about the last program."""
    asked = json.loads(question)
    width = NARROW if asked["narrow"] else WIDE
    return json.dumps(run(asked, width) if "source" in asked else step(asked["world"], asked["step"], width))


def run(asked, width):
    """Run a program: what it printed, why it ended, and the picture of its last launch."""
    global last
    last = Replay(asked["source"], Library(), asked["alpha"], asked["beta"])
    allranks.running, dist.ask = last, last.ask
    last.run()
    failure = last.failure
    told = {"printed": "".join(last.printed), "worlds": len(last.worlds), "lines": []}
    told["failure"] = failure and failure.told
    told["exception"] = failure and f"{failure.kind}: {failure.words}".rstrip(": ")
    if last.worlds:
        told.update(step(len(last.worlds) - 1, None, width))
        world = last.worlds[-1]
        failure = world.failure or failure
        told["failure"] = failure and failure.told
    if failure and failure.place and not told["lines"]:
        told["lines"] = [[failure.place[-1][0], failure.words]]
    return told


def step(number, shown, width):
    """The picture of a launch, or of its first events, and the words for it."""
    world = last.worlds[number]
    told = {"svg": space_time.draw(world, width, shown), "steps": len(world.events), "ranks": [], "lines": []}
    if shown is None:
        told["text"], told["ranks"], told["lines"] = (
            space_time.said(world),
            space_time.by_rank(world),
            ends(world),
        )
    elif shown == 0:
        told["text"] = "Nothing was sent yet."
    else:
        event = space_time.in_order(world)[shown - 1]
        told["text"] = f"{shown} of {len(world.events)}: {space_time.about(event)}."
        told["lines"] = lines_of(event, number)
    return told


def ends(world):
    """[line, words] for each place where ranks wait for ever, or raised."""
    marks = []
    for rank in range(world.size):
        if world.state[rank] == "waits" and world.waits[rank].place:
            marks.append([world.waits[rank].place[-1][0], f"rank {rank} waits in {world.waits[rank].words}"])
        elif world.state[rank] == "raised" and world.results[rank].place:
            marks.append(
                [world.results[rank].place[-1][0], f"rank {rank} raised {world.results[rank].words}"]
            )
    return marks


def lines_of(event, number):
    """[line, words] for the two sides of a message, or for the ranks of a collective."""
    marks = []
    for i, (rank, call) in enumerate(zip(event.ranks, event.calls)):
        place = last.place(number, rank, call)
        if place:
            does = ("sends", "receives")[i] if event.kind == "message" else f"is in {event.kind}"
            marks.append([place[-1][0], f"rank {rank} {does}"])
    return marks
