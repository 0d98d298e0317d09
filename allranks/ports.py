"""Which port is free, and stays free until a program listens on it, some seconds later?

A port that the system chose is soon given to somebody else who asks for any, as the ranks of others do. Those
chosen here are none that it gives away. Who can, does without: a Unix socket, or a socket that is held.
"""

import contextlib
import random
import socket

PORTS = 20_000, 30_000  # Linux gives away those from 32,768 on, macOS those from 49,152 on


def free_port(host="127.0.0.1"):
    """A port of this machine that nobody listens on now."""
    while True:
        port = random.SystemRandom().randrange(*PORTS)
        with socket.socket() as free, contextlib.suppress(OSError):
            free.bind((host, port))
            return port
