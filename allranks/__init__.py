"""All Ranks: distributed training and inference you can run.

`launch` runs a function on real processes, `progress` shows one bar for all of them.
Importing this package does not import torch; inside a notebook it warms up the process
that the ranks will be forked from, so that the first `launch` does not have to wait.
"""

import sys

from allranks.launch import launch, progress, server

__all__ = ["launch", "progress"]
__version__ = "0.1.0"

if "ipykernel" in sys.modules:
    server.warm_up()
