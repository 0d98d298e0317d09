"""Stop a program that runs on and on: a callback that the interpreter calls at every jump backwards."""

import host
import micropython

GRACE = 300  # ms for a program that handles the interrupt; then it is stopped again
state = [0.0, 0]  # when to stop, and the number of the program


def start(milliseconds):
    """Watch what runs from now on."""
    state[0] = host.now() + milliseconds
    state[1] += 1
    micropython.schedule(tick, state[1])


def tick(number):
    """Look at the clock, as long as the same program runs."""
    if number == state[1]:
        micropython.schedule(tick, number)
        if host.now() > state[0]:
            state[0] = host.now() + GRACE
            host.stop()


def end():
    """Watch no longer."""
    state[1] += 1
