"""`launch(…, cluster="ray")` on a Ray cluster of two nodes, here both on one machine."""

import os
import signal
import sys
import time
import warnings
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
from kernel import leftovers

from allranks import launch
from allranks.launch import RankFailed, RanksTimedOut

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="Ray is a requirement on Linux only"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # Ray's use of its own names
]


def add_node(nodes, tries=10, **options):
    """Add a node; one that has not come up after 30 s Ray itself gives up: then another."""
    for left in reversed(range(tries)):
        try:
            return nodes.add_node(**options)
        except Exception as error:
            if "timed out during startup" not in str(error) or not left:
                raise
            print(f"one more try: {error}")


@pytest.fixture(scope="module")
def environment():
    """Ray's settings; what Ray sets itself (PYTHONBREAKPOINT, for one) goes with them."""
    lighter = str(Path(__file__).parent / "lighter")
    settings = {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "600",
        "RAY_gcs_server_port_wait_time_s": "300",
        "RAY_worker_niceness": "0",  # with Ray's 15, ranks starve beside the other tests
        "PYTHONPATH": os.pathsep.join(filter(None, [lighter, os.environ.get("PYTHONPATH")])),
    }
    with patch.dict(os.environ, settings):
        yield


@pytest.fixture(scope="module")
def cluster(environment):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's own, when it is imported
        import ray
        from ray.cluster_utils import Cluster
    nodes = Cluster()
    for options in ({"include_dashboard": False}, {}):
        add_node(nodes, num_cpus=1, **options)
    ray.init(address=nodes.address, log_to_driver=False, logging_level="ERROR")
    yield nodes
    ray.shutdown()
    nodes.shutdown()
    for pid, command in leftovers.processes(os.environ[leftovers.TOKEN]).items():
        if command.startswith("ray::"):  # Ray 2.60 waits for a lock in the exit of a controller, now and then
            os.kill(pid, signal.SIGKILL)


def on_ray(fn, *args, timeout=600):
    return launch(fn, *args, world_size=2, timeout=timeout, cluster="ray")


def average(x):
    import ray

    t = torch.full((3,), float(dist.get_rank()) + x)
    dist.all_reduce(t)
    return t / dist.get_world_size(), ray.get_runtime_context().get_node_id()


def test_ranks_run_on_both_nodes_and_results_come_back_by_rank(cluster):
    results = on_ray(average, 1.0)
    assert [t.tolist() for t, _ in results] == [[1.5] * 3] * 2
    assert len({node for _, node in results}) == 2


def test_the_rank_that_raises_is_named_with_its_line(cluster):
    def step():
        if dist.get_rank() == 1:
            raise ValueError("no data on this rank")
        dist.barrier()

    with pytest.raises(RankFailed, match=r"^rank 1 raised ValueError: no data on this rank") as caught:
        on_ray(step)
    assert caught.value.ranks == [1]
    assert "test_launch_ray.py, line" in caught.value.__notes__[0]


def test_the_rank_that_is_killed_is_named(cluster):
    def step():
        if dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        dist.barrier()

    import ray

    with pytest.raises(RankFailed, match=r"^rank 1 ended without a report: its process or its machine died"):
        on_ray(step)
    deadline = time.monotonic() + 300
    while ray.available_resources().get("CPU") != 2:
        assert time.monotonic() < deadline, "Ray still keeps CPUs of ranks that have ended"
        time.sleep(0.2)


def test_a_deadlock_ends_at_the_deadline(cluster):
    def step():
        if dist.get_rank() == 0:
            dist.barrier()

    with pytest.raises(RanksTimedOut, match=r"^rank 0 was still running after 8 s") as caught:
        on_ray(step, timeout=8)
    assert "waiting in barrier" in caught.value.__notes__[0]


def test_more_ranks_than_the_cluster_has_are_refused(cluster):
    with pytest.raises(ValueError, match="world_size=3: this Ray cluster has 2 CPUs, one for each rank"):
        launch(average, 1.0, world_size=3, cluster="ray")


@pytest.mark.stamped(None)
def test_without_ray_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ModuleNotFoundError, match=r"needs Ray, .* pip install 'ray\[train\]'"):
        launch(average, 1.0, cluster="ray")


@pytest.mark.stamped(None)
def test_another_cluster_is_refused():
    with pytest.raises(ValueError, match="cluster='dask' is not 'ray'"):
        launch(average, 1.0, cluster="dask")
