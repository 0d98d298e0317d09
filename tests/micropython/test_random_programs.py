"""Random programs end alike on simulated and on real ranks: with the same results, or with the same error."""

import inspect
import json

import pytest
import torch
import torch.distributed as dist
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from page_python import InCPython, program

from allranks import launch

TIMEOUT = 1  # s that ranks on one machine may need for a handful of numbers


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """What runs a program on simulated ranks."""
    running = InCPython(tmp_path_factory.mktemp("page"))
    yield running
    running.close()


def play(programs):
    """Do what this rank's program lists; return the numbers that arrived."""
    rank, arrived = dist.get_rank(), []
    for at, (kind, peer) in enumerate(programs[rank]):
        number = torch.tensor([10.0 * at + rank])
        if kind == "send":
            dist.send(number, peer)
        elif kind == "recv":
            dist.recv(number, peer)
        else:
            dist.all_reduce(number)
        arrived.append(number.item())
    return arrived


@st.composite
def programs(draw):
    """Lists of (kind, peer), one a rank: messages and sums in one order, or two steps of a rank swapped."""
    size = draw(st.integers(2, 3))
    ranks, lists = range(size), [[] for _ in range(size)]
    for _ in range(draw(st.integers(1, 5))):
        source, target = draw(st.permutations(ranks))[:2]
        if draw(st.integers(0, 3)):
            lists[source].append(("send", target))
            lists[target].append(("recv", source))
        else:
            for each in lists:
                each.append(("all_reduce", None))
    swapped = draw(st.sampled_from(lists))
    if draw(st.booleans()) and len(swapped) > 1:
        at = draw(st.integers(0, len(swapped) - 2))
        swapped[at], swapped[at + 1] = swapped[at + 1], swapped[at]
    return lists


def on_real_ranks(lists):
    """(results, exception) of real processes."""
    try:
        return launch(play, lists, world_size=len(lists), timeout=TIMEOUT, backend="gloo"), None
    except launch.LaunchError as error:
        return None, f"{type(error).__name__}: {error}"


def in_the_page(page, lists):
    """(results, exception) of simulated ranks."""
    call = f"print(launch(play, {lists!r}, world_size={len(lists)}, timeout={TIMEOUT}))"
    told = page.ask(**program(f"{inspect.getsource(play)}\n\n{call}"))
    return json.loads(told["printed"]) if told["printed"] else None, told["exception"]


@pytest.mark.hypothesis
def test_random_programs_end_alike(page, monkeypatch):
    monkeypatch.delenv("ALLRANKS_RULES", raising=False)  # the page follows those of gloo
    ends = set()

    @settings(
        max_examples=settings.default.max_examples // 12,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.reuse, Phase.generate],  # a shorter failure is not worth its seconds
    )
    @given(programs())
    def compare(lists):
        expected = on_real_ranks(lists)
        assert in_the_page(page, lists) == expected
        ends.add(expected[1] is None)

    compare()
    assert ends == {True, False}, "both a program that ends and one that is stuck are among the examples"
