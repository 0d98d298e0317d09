"""The part of `allranks` that a program in a page may import; `launch` runs simulated ranks."""

running = None  # the replay of the program


class LaunchError(RuntimeError):
    """A world that did not end well; see `allranks.launch` of the book."""

    def __init__(self, failure):
        super().__init__(failure.words)
        self.failure, self.ranks, self.places = failure, failure.ranks, failure.places


class RankFailed(LaunchError):
    """A rank raised an exception, or entered another collective than its peers."""


class RanksTimedOut(LaunchError):
    """Ranks wait for what cannot come."""


def launch(fn, *args, world_size=None, timeout=None, backend=None, rules=None, **kwargs):
    """Run `fn(*args, **kwargs)` on `world_size` ranks, 4 unless said otherwise; return their results."""
    if rules is not None:
        raise ValueError(f"ranks in the page follow gloo's rules, not {rules!r}; open the notebook for those")
    return running.launch(fn, args, kwargs, world_size, timeout)
