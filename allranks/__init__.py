"""All Ranks: distributed training and inference you can run.

`launch` runs a function on real processes, `progress` shows one bar for all of them.
Importing this package does not import torch; inside a notebook it warms up the process
that the ranks will be forked from, so that the first `launch` does not have to wait.

Three layers, each of which imports nothing from those below it in this table:

    arithmetic    standard library alone; also runs in the pages, under MicroPython
                  inputs articles transformer hardware collectives topology interleaving memory schedules
                  simulate plan
                  precision attention experts streams lowering batches compression
                  local_updates parameter_server deepspeed_config framework_config muon inference failures
                  profiles recovery ranks dispatchers roofline strategies averaging
    torch         what ranks run, and what counts what they do
                  private launch trace callers model parallel recipes serving nccl host_syncs units hang
                  fake kept gzipped pieces alive sleeping torch_pipelines split_pipelines slow_link held ports
    presentation  what readers see
                  plots explorers check claims published measured grading merging __main__
"""

from allranks.launch import launch, notebook, progress, server

__all__ = ["launch", "progress"]
__version__ = "0.1.0"

if notebook.is_kernel():
    server.warm_up()
