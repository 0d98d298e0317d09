"""How is a program checked that has never heard of this book? torchrun starts it through this module:

torchrun --nproc-per-node 4 -m allranks.nccl program.py [its arguments]
"""

import atexit
import runpy
import sys

import torch.distributed as dist

from allranks import nccl, private


def main(arguments):
    """Run a program whose `init_process_group` makes gloo's groups, under NCCL's rules."""
    if not arguments:
        raise SystemExit("usage: torchrun --nproc-per-node N -m allranks.nccl PROGRAM.py [ARGUMENTS]")
    original = dist.init_process_group

    def init_process_group(backend=None, *given, device_id=None, **named):
        original("gloo", *given, **named)
        nccl.enforce(private.default_store(), dist.get_rank(), dist.get_world_size(), device_id)
        atexit.register(nccl.leave, stay=True)

    dist.init_process_group = dist.distributed_c10d.init_process_group = init_process_group
    sys.argv = arguments
    runpy.run_path(arguments[0], run_name="__main__")


main(sys.argv[1:])
