"""What the launchers are asked to run. As a file: `torchrun tasks.py all_reduce`."""

import ctypes
import os
import signal
import sys
import time

import torch
import torch.distributed as dist

WORLD_SIZE = 4


def all_reduce():
    dist.all_reduce(torch.ones(1000))


def ddp():
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
    model(torch.randn(8, 64)).sum().backward()


def hold():
    all_reduce()
    time.sleep(3)


def raises():
    if dist.get_rank() == 1:
        raise ValueError("shape mismatch")
    all_reduce()


def exits():
    if dist.get_rank() == 1:
        os._exit(3)
    all_reduce()


def is_killed():
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    all_reduce()


def segfaults():
    if dist.get_rank() == 1:
        ctypes.string_at(0)
    all_reduce()


def returns_early():
    if dist.get_rank() != 1:
        all_reduce()


def deadlocks():
    dist.recv(torch.empty(1), src=(dist.get_rank() + 1) % WORLD_SIZE)


def in_group(name, rank=None, port=None, keep=False):
    """Run a task where the launcher has only set the environment, or not even that.

    `keep` the process group for the next task, if the processes stay.
    """
    if rank is not None:
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(WORLD_SIZE), MASTER_ADDR="127.0.0.1")
        os.environ["MASTER_PORT"] = str(port)
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    globals()[name]()
    if not keep:
        dist.destroy_process_group()


def spawned(rank, name, port):
    in_group(name, rank, port)


if __name__ == "__main__":
    in_group(sys.argv[1])
