"""What does a world ask for? A keeper and its ranks, by a directory, a port, and a pipe to each of them.

Whoever asked owns what `ask` returns; if asking fails, nothing of it is left.
"""

import contextlib
import pickle
import shutil
import socket
from collections import namedtuple
from multiprocessing import Pipe

from allranks.launch import carried, packing, server

Asked = namedtuple("Asked", "directory ends keeper pipes")
Asked.__doc__ = """What a world has of its own: its `directory`; the `ends` of all connections, which it
closes, and among them the pipe to its `keeper` and the `pipes` to its ranks."""


def ask(plan, environment, standby):
    """Have a keeper made, and ranks by it; do not wait for them."""
    with contextlib.ExitStack() as undo:
        held = undo.enter_context(socket.socket())
        directory = packing.make_directory()
        undo.callback(shutil.rmtree, directory, ignore_errors=True)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        environment = carried.environment(environment, directory, plan.world_size, port)
        with open(f"{directory}/world", "wb") as file:
            pickle.dump((plan, environment, standby), file)
        here, there = zip(*[Pipe() for _ in range(1 + plan.world_size)], strict=True)
        for end in here:
            undo.callback(end.close)
        try:
            server.request(directory, there)
        finally:
            for end in there:
                end.close()
        undo.pop_all()
        return Asked(directory, [held, *here], here[0], here[1:])
