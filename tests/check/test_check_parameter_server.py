"""The checks of the chapter on parameter servers say ✓ to right answers and ✗, with a hint, to wrong ones."""

import pytest
import torch
import torch.distributed as dist
from verdicts import verdict

from allranks.check import parameter_server as checks


def server(divisor):
    def serve(weights, rate, turns):
        gradient, given = torch.empty_like(weights), {}
        for version, worker in enumerate(turns):
            dist.recv(gradient, worker)
            weights -= rate / divisor(version - given.get(worker, 0)) * gradient
            given[worker] = version + 1
            dist.send(weights, worker)

    return serve


@pytest.mark.parametrize(
    "answer, said",
    [
        (server(lambda stale: max(1, stale)), "✓ The server reduces"),
        (server(lambda stale: 1), "at the full rate"),
        (server(lambda stale: stale + 1), "still counts in full"),
        (server(lambda stale: stale or float("inf")), "not stale keeps the full rate"),
        (server(lambda stale: 2), "in one process"),
        (server(lambda stale: 1 / 0), "✗"),
    ],
)
def test_aware(capsys, answer, said):
    assert said in verdict(capsys, checks.aware, answer)


@pytest.mark.parametrize(
    "answer, said",
    [
        ((4, 1.97, 1.585), "✓ 4, 1.97 and 1.58"),
        ((4.0, 2 * 63 / 64, 2 * 64 * 63 / (64**2 + 16 * 64 - 32)), "✓"),
        ((64, 1.97, 1.585), "spare machines only"),
        ((4, 2, 1.585), "every worker: 2"),
        ((4, 1.97, 2), "both: 2"),
        ((4, 1.97), "three numbers"),
        (None, "None"),
    ],
)
def test_busiest(capsys, answer, said):
    assert said in verdict(capsys, checks.busiest, answer)
