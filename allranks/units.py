"""When are the weights of an FSDP unit whole on a rank? Read from torch's labels for its profiler.

A unit is what one call of `fully_shard` takes; its weights are whole from its all-gather to its resharding.
"""

from allranks import private

REST = "rest"  # the outermost unit, which has no name
GATHERED, RESHARDED = "all_gather", ("post_forward", "post_backward_reshard")


class labels(private.dispatch_mode()):
    """A context that collects FSDP's labels in order, as `"all_gather (layers.0)"`, in its list `log`."""

    def __init__(self):
        super().__init__()
        self.log = []

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        if operator.name().startswith("profiler::_record_function_enter"):
            self.log.append(args[0].removeprefix("FSDP::"))
        return operator(*args, **(kwargs or {}))


def whole_from_to(log):
    """Return [unit, from, to] for each time that a unit is whole; moments are positions in `log`."""
    bars = []
    for moment, label in enumerate(log):
        what, _, unit = label.removesuffix(")").partition(" (")
        unit = unit or REST
        if what == GATHERED:
            bars.append([unit, moment, moment])
        elif what in RESHARDED:
            last = [bar for bar in bars if bar[0] == unit][-1]
            last[2] = moment
    return bars


def most_at_once(bars):
    """Return how many named units are whole at the same moment, at most."""
    named = [bar for bar in bars if bar[0] != REST]
    return max(sum(a <= moment < b for _, a, b in named) for _, moment, _ in named)
