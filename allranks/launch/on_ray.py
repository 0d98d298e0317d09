"""How do the ranks of one launch spread over the machines of a Ray cluster? Ray Train places them.

Ray's workers form the process group (`ray.train.torch.TorchTrainer`). This module hands them the function,
collects what they return, and says of a failure what `launch` says of one: which rank, and why. The package
has to be installed on every machine; no rendezvous, retry or placement is ours.
"""

import contextlib
import io
import logging
import operator
import os
import sys
import tempfile
import threading
import traceback

from allranks.launch import blame, packing, recorder, stacks
from allranks.launch.blame import Outcome
from allranks.launch.rank import seed

SILENT = "ended without a report: its process or its machine died"


class Mailbox:
    """A Ray actor: what each rank reports before it ends, and what Ray has set aside for them."""

    def __init__(self):
        self.reports, self.groups = {}, []

    def hold(self, group):
        self.groups.append(group)

    def held(self):
        return self.groups

    def put(self, rank, state, detail, frames=()):
        self.reports.setdefault(rank, (state, detail, list(frames)))

    def all(self):
        return self.reports


def run(fn, args, kwargs, *, world_size, timeout, backend):
    """Run the function on `world_size` workers of the Ray cluster; results and errors as of `launch`."""
    ray = _imported()
    call = io.BytesIO()
    packing.save_call(fn, args, kwargs, call)
    if not ray.is_initialized():
        ray.init(logging_level=logging.WARNING)
    backend = _possible(ray.cluster_resources(), world_size, backend)
    mailbox = ray.remote(num_cpus=0)(Mailbox).remote()
    try:
        error = _train(call.getvalue(), mailbox, world_size, timeout, backend)
        reports = ray.get(mailbox.all.remote())
    finally:
        _release(mailbox)
        ray.kill(mailbox)
    if error or len(reports) < world_size:
        raise _explained(reports, world_size, timeout, error) from None
    return [packing.load(io.BytesIO(reports[rank][1])) for rank in range(world_size)]


def _imported():
    try:
        import ray
        import ray.train.torch
    except ImportError as error:
        raise ModuleNotFoundError(
            "cluster='ray' needs Ray, which is not installed here: pip install 'ray[train]', on every "
            "machine of the cluster. For ranks on this machine, leave cluster out."
        ) from error
    return ray


def _possible(resources, world_size, backend):
    """The backend, 'nccl' or 'gloo'; or an error that says what the cluster has."""
    try:
        operator.index(world_size)
    except TypeError:
        raise TypeError(f"world_size={world_size!r} is not a whole number of ranks.") from None
    cpus, gpus = int(resources.get("CPU", 0)), int(resources.get("GPU", 0))
    if backend not in (None, "gloo", "nccl"):
        raise ValueError(f"backend={backend!r} is not 'nccl' or 'gloo', the two that Ray's workers can use.")
    kind, there = ("GPUs", gpus) if backend == "nccl" else ("CPUs", cpus)
    if not 1 <= world_size <= there:
        raise ValueError(
            f"world_size={world_size}: this Ray cluster has {there} {kind}, one for each rank, so 1 to "
            f"{there} ranks can start. Ask for fewer, or add machines (ray start --address=…)."
        )
    return backend or ("nccl" if gpus >= world_size else "gloo")


def _release(mailbox):
    """Give back the CPUs of ranks that ended: Ray Train 2.60 keeps them if one died as it started."""
    import ray

    for group in ray.get(mailbox.held.remote()):
        with contextlib.suppress(Exception):  # Ray has done it
            ray.util.remove_placement_group(group)


def _train(call, mailbox, world_size, timeout, backend):
    """Let Ray Train run the ranks to their end; return its error, or None."""
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    with tempfile.TemporaryDirectory(prefix="allranks-ray-") as storage:
        trainer = TorchTrainer(
            _on_worker,
            train_loop_config={"call": call, "mailbox": mailbox, "timeout": timeout},
            scaling_config=ScalingConfig(num_workers=world_size, use_gpu=backend == "nccl"),
            torch_config=TorchConfig(backend=backend),
            run_config=RunConfig(
                storage_path=storage,
                name="launch",
                failure_config=FailureConfig(controller_failure_limit=0),  # not to wait for CPUs for ever
            ),
        )
        try:
            trainer.fit()
        except Exception as error:
            return error


def _on_worker(config):
    """Be one rank: call the function, and report what it returned or raised, or that time ran out."""
    import ray
    import torch
    import torch.distributed as dist

    rank, main = dist.get_rank(), threading.get_ident()

    def report(*what):
        ray.get(config["mailbox"].put.remote(rank, *what))

    def out_of_time():
        report("running", None, _frames(main))
        os._exit(1)

    ray.get(config["mailbox"].hold.remote(ray.util.get_current_placement_group()))
    watch = threading.Timer(config["timeout"], out_of_time)
    watch.daemon = True
    watch.start()
    seed(rank, torch.manual_seed)
    try:
        fn, args, kwargs = packing.load(io.BytesIO(config["call"]))
        result = io.BytesIO()
        packing.save(fn(*args, **kwargs), result)
        report("returned", result.getvalue())
    except BaseException as error:
        report("raised", stacks.Failure.of(error))
        raise
    finally:
        watch.cancel()


def _frames(thread):
    return [
        stacks.Frame(frame.filename, frame.lineno, frame.name)
        for frame in traceback.extract_stack(sys._current_frames()[thread])
    ]


def _explained(reports, world_size, timeout, error):
    """The exception that `launch` raises, from what ranks reported before Ray ended them all."""
    unknown = ("unknown", None, [])
    states = [reports.get(rank, unknown) for rank in range(world_size)]
    frames, histories = [each[2] for each in states], [recorder.History()] * world_size
    if any(state == "running" for state, _, _ in states):
        outcomes = [Outcome("running" if s in ("running", "unknown") else s, d) for s, d, _ in states]
        return blame.timed_out(blame.View(outcomes, frames, histories), timeout)
    outcomes = [Outcome("stopped", SILENT) if s == "unknown" else Outcome(s, d) for s, d, _ in states]
    if any(s == "raised" and not d.echo for s, d, _ in states):  # Ray ended the others
        outcomes = [o if o.state != "stopped" else Outcome("gone") for o in outcomes]
    if all(o.state == "stopped" for o in outcomes):
        return blame.RankFailed(f"no rank reported; Ray Train says: {error}", list(range(world_size)))
    return blame.explain(blame.View(outcomes, frames, histories))
