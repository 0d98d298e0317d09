"""Which function of a library asked for each collective? The Python stack says it, in torch's dispatcher.

The first frame outside the plumbing (torch's wrappers, a library's own module of collectives) is the line
that a reader of the source wants to find. torch's DDP asks from C++: there the stack ends in autograd.
"""

import sys

from allranks.trace import trace

PLUMBING = (
    "torch._",
    "torch.overrides",
    "torch.utils",
    "torch.distributed.distributed_c10d",
    "torch.distributed.c10d_logger",
    "deepspeed.comm",
    "deepspeed.utils",
    "typing_extensions",
    "contextlib",
    "functools",
    "allranks.trace",
    "allranks.callers",
    "allranks.host_syncs",
    "allranks.nccl",
)
SAY_NOTHING = ("__call__", "wrapper", "<listcomp>")


class callers(trace):
    """Count as `trace` does, and keep in `asked` who called for each entry of `log`: "module.function".

    with callers() as counted:
        loss.backward()
    counted.asked   # ['torch.autograd.graph._engine_run_backward']: DDP, from C++
    """

    def __init__(self):
        super().__init__()
        self.asked = []

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        before = len(self.log)
        result = super().__torch_dispatch__(operator, types, args, kwargs)
        if len(self.log) > before:
            self.asked.append(_caller(sys._getframe(1)))
        return result


def _caller(frame):
    while frame.f_back and (_module(frame).startswith(PLUMBING) or frame.f_code.co_name in SAY_NOTHING):
        frame = frame.f_back
    return f"{_module(frame)}.{frame.f_code.co_name}"


def _module(frame):
    return frame.f_globals.get("__name__", "")
