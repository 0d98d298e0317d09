"""Traces are read as torch writes them, clocks are bounded by collectives, and the straggler is named."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks import profiles
from allranks.profiles import Collective, Recorded, Span

INTERVALS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8)).map(lambda p: (p[0], p[0] + p[1])))


def moments(intervals):
    """The whole seconds that are inside."""
    return {second for start, end in intervals for second in range(start, end)}


@given(INTERVALS, INTERVALS)
def test_union_and_difference_are_those_of_sets(one, other):
    assert moments(profiles.union(one)) == moments(one)
    assert moments(profiles.difference(one, other)) == moments(one) - moments(other)
    assert profiles.total(one) == len(moments(one))
    for found in (profiles.union(one), profiles.difference(one, other)):
        assert all(start < end for start, end in found)
    merged = profiles.union(one)
    assert all(before[1] < after[0] for before, after in pairwise(merged))


# ---- reading ----


def event(name, category, start, length, thread=1, process=100, **args):
    return {"ph": "X", "name": name, "cat": category, "ts": start, "dur": length,
            "pid": process, "tid": thread, "args": args}  # fmt: skip


def trace(*events, rank=0, world_size=2, base=0):
    about = {"rank": rank, "world_size": world_size}
    return {"traceEvents": list(events), "distributedInfo": about, "baseTimeNanoseconds": base}


def test_on_a_cpu_operators_compute_and_gloo_communicates():
    found = profiles.read(
        trace(
            event("forward", "user_annotation", 1e6, 5e6),
            event("aten::linear", "cpu_op", 2e6, 2e6),
            event("aten::addmm", "cpu_op", 2.5e6, 1e6),
            event("autograd::engine::evaluate_function: AccumulateGrad", "cpu_op", 5e6, 3e6),
            event("aten::add", "cpu_op", 5e6, 1e6),
            event("c10d::allreduce_", "cpu_op", 7e6, 1e6),
            event("gloo:all_reduce", "user_annotation", 7e6, 4e6, thread=2),
            event("aten::copy_", "cpu_op", 8e6, 1e6, thread=2),
            base=5,
        )
    )
    assert (found.rank, found.world_size, found.origin) == (0, 2, 10**9 + 5)
    assert found.phases == [Span("forward", 0, 5)]
    assert found.computing == [(1, 3), (4, 5)]
    assert found.collectives == [Collective("all_reduce", "", 6, 10)]


def test_on_a_gpu_kernels_compute_unless_they_are_of_nccl():
    names = {"Process Group Name": "0", "Process Group Ranks": "[0, 1]", "Collective name": "_allgather_base"}
    found = profiles.read(
        trace(
            event("aten::mm", "cpu_op", 0, 9e6),
            event("nccl:all_gather", "user_annotation", 0, 1e6),
            event("gemm", "kernel", 1e6, 1e6, thread=7, process=0),
            event("Memcpy HtoD", "gpu_memcpy", 2e6, 1e6, thread=7, process=0),
            event("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgs)", "kernel", 2e6, 3e6, 20, 0, **names),
            event("ncclKernel_AllReduce_RING_LL_Sum_float", "kernel", 6e6, 1e6, 20, 0),
        )
    )
    assert found.computing == [(1, 3)]
    assert found.phases == []
    assert found.collectives == [
        Collective("all_gather", "0 [0, 1]", 2, 5), Collective("all_reduce", "", 6, 7)
    ]  # fmt: skip


@pytest.mark.parametrize(
    "name, kind",
    [
        ("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL", "reduce_scatter"),
        ("ncclDevKernel_SendRecv", "send_recv"),
        ("ncclDevKernel_Broadcast_RING_LL", "broadcast"),
        ("ncclDevKernel_Generic", "other"),
        ("gloo:all_to_all", "all_to_all"),
        ("gloo:recvAnySource", "send_recv"),
        ("gloo:reduce", "reduce"),
        ("gloo:scatter", "scatter"),
        ("gloo:gather", "gather"),
    ],
)
def test_a_collective_is_known_by_its_name(name, kind):
    category = "user_annotation" if name.startswith("gloo") else "kernel"
    (found,) = profiles.read(trace(event(name, category, 0, 1))).collectives
    assert found.kind == kind


@pytest.mark.parametrize(
    "content, said",
    [
        ([], "not a trace of torch.profiler"),
        ({"traceEvents": []}, "not a trace of torch.profiler"),
        ({"traceEvents": [event("aten::mm", "cpu_op", 0, 1)]}, "names no rank"),
        (trace({"ph": "M", "name": "process_name"}, rank=3), "rank 3 has no event"),
    ],
)
def test_what_is_no_trace_of_a_rank_is_refused(content, said):
    with pytest.raises(ValueError, match=said):
        profiles.read(content)


def test_phases_are_the_outermost_ones_and_a_step_of_the_profiler_is_none():
    names = [("ProfilerStep#3", 0, 10), ("forward", 0, 4), ("DistributedDataParallel.forward", 1, 3)]
    names += [("Optimizer.step#AdamW.step", 5, 2)]
    events = [event(name, "user_annotation", start, length) for name, start, length in names]
    found = profiles.read(trace(*events)).phases
    assert [phase.name for phase in found] == ["forward", "Optimizer.step"]


# ---- clocks ----


def ranks(*lists, kind="all_reduce", origins=None, computing=()):
    """A `Recorded` for each list of (start, end) of collectives."""
    return [
        Recorded(rank, len(lists), origins[rank] if origins else 0, [], list(computing),
                 [Collective(kind, "", start, end) for start, end in spans])
        for rank, spans in enumerate(lists)
    ]  # fmt: skip


@st.composite
def on_their_clocks(draw):
    """(traces of ranks whose clocks are wrong, the seconds that each clock is behind the first)."""
    count, time = draw(st.integers(2, 5)), 0.0
    parts = st.floats(0, 2)
    behind = [0.0] + [draw(st.floats(-1000, 1000)) for _ in range(count - 1)]
    lists = [[] for _ in range(count)]
    for _ in range(draw(st.integers(1, 4))):
        starts = [time + draw(parts) for _ in range(count)]
        time = max(starts)
        for rank, start in enumerate(starts):
            lists[rank].append((start - behind[rank], time + draw(parts) - behind[rank]))
        time += 3
    return ranks(*lists), behind


@given(on_their_clocks())
def test_the_true_shift_of_a_clock_lies_within_the_bounds_that_collectives_set(made):
    recorded, behind = made
    for (least, most), true in zip(profiles.shift_bounds(recorded), behind):
        assert least - 1e-9 <= true <= most + 1e-9
    assert profiles.before_it_began(profiles.aligned(recorded)) is None


def test_bounds_are_the_tightest_of_all_collectives():
    recorded = ranks([(0, 5), (10, 12)], [(1, 5), (9, 13)])
    # δ ≤ end_0 − start_1 and δ ≥ start_0 − end_1 of every collective.
    assert profiles.shift_bounds(recorded) == [(0, 0), (max(0 - 5, 10 - 13), min(5 - 1, 12 - 9))]


def test_clocks_are_compared_through_other_ranks():
    groups = [[("a", 0, 1)], [("a", 0, 1), ("b", 5, 6)], [("b", 105, 106)]]
    recorded = [
        Recorded(rank, 3, 0, [], [], [Collective("barrier", group, *span) for group, *span in made])
        for rank, made in enumerate(groups)
    ]
    least, most = profiles.shift_bounds(recorded)[2]
    assert (least, most) == (-102, -98)
    alone = recorded[:2] + [recorded[2]._replace(collectives=[])]
    assert profiles.shift_bounds(alone)[2] == (None, None)
    with pytest.raises(ValueError, match="rank 2 shares no collective with rank 0"):
        profiles.aligned(alone)


def test_ranks_of_one_machine_share_a_clock():
    spans = [(0, 4)], [(1, 5)], [(103, 104)], [(101, 105)]
    recorded = ranks(*spans)
    assert profiles.shift_bounds(recorded, ["a", "a", "b", "b"]) == [(0, 0)] * 2 + [(-103, -99)] * 2
    assert profiles.shift_bounds(recorded) == [(0, 0), (-5, 3), (-104, -99), (-105, -97)]  # less is known
    named = [{"host_name": name} for name in "aabb"]
    assert profiles.hosts_of(named, recorded) == ["a", "a", "b", "b"]
    assert profiles.hosts_of([{"host_name": "localhost"}] * 4, recorded) is None
    assert profiles.hosts_of([*named[:3], {}], recorded) is None


def test_clocks_that_differ_are_seen_before_they_are_aligned():
    recorded = ranks([(0, 2)], [(5, 7)])
    assert profiles.before_it_began(recorded) == (
        "rank 0 leaves collective 0, all_reduce, before rank 1 has entered it: their clocks differ"
    )
    assert profiles.before_it_began(ranks([(0, 6)], [(5, 7)])) is None
    assert profiles.before_it_began(ranks([(0, 2)], [(5, 7)], kind="broadcast")) is None


def test_origins_of_days_lose_no_microsecond():
    day = 86_400 * 10**9
    recorded = ranks([(0, 1e-6)], [(0, 1e-6)], origins=[day * 20_000, day * 20_000 + 7])
    least, most = profiles.shift_bounds(recorded)[1]
    assert (least + most) / 2 == pytest.approx(-7e-9)


def test_of_two_collectives_at_the_same_time_the_order_does_not_matter():
    # Two threads of gloo: rank 1 called a, then b, but b's thread was faster. Rank 0 entered b after a.
    a, b, later = (0, 3), (3.5, 6), (20, 22)
    called, seen = [(1, 3), (1.5, 6)], [(1.1, 6), (1.5, 3)]
    for other in (called, seen):
        recorded = ranks([a, b, later], [*other, later])
        assert profiles.before_it_began(recorded) is None
        assert profiles.shift_bounds(recorded)[1] == (max(0 - 3, 3.5 - 6, -2), min(3 - other[0][0], 2))


def test_traces_with_one_origin_keep_their_clocks():
    one, other = profiles.same_origin(ranks([(0, 1)], [(0, 1)], origins=[10**9, 0]))
    assert (one.origin, one.collectives[0].start) == (0, 1)
    assert (other.origin, other.collectives[0].start) == (0, 0)


def test_impossible_clocks_are_refused():
    recorded = ranks([(0, 1), (10, 11)], [(0, 1), (20, 21)])
    with pytest.raises(ValueError, match="no shift of rank 1's clock puts its collectives in order"):
        profiles.aligned(recorded)


@pytest.mark.parametrize(
    "one, other, said",
    [
        (["barrier"], [], "rank 0 has 1 collectives and rank 1 has 0: record whole steps"),
        (["barrier"], ["all_reduce"], "collective 0 is barrier on rank 0 and all_reduce on rank 1"),
    ],
)
def test_ranks_that_called_different_collectives_are_refused(one, other, said):
    recorded = [
        Recorded(rank, 2, 0, [], [], [Collective(kind, "", k, k + 1) for k, kind in enumerate(kinds)])
        for rank, kinds in enumerate((one, other))
    ]
    with pytest.raises(ValueError, match=said):
        profiles.matched(recorded)


# ---- blame ----


def test_the_late_rank_has_the_shortest_collective():
    recorded = ranks([(0, 10), (20, 22)], [(9, 10), (20, 22)], [(1, 10), (21, 22)], computing=[(0, 5)])
    assert profiles.last_to_enter(recorded) == [1, 2]
    assert profiles.straggler(recorded) == 1
    assert profiles.waits(recorded) == [[(0, 9), (20, 21)], [(20, 21)], [(1, 9)]]
    share = profiles.shares(recorded)[0]
    assert share == (0, 22, 5, 12, 7, 5, 10)
    assert profiles.straggler([profiles.shifted(one, 100 * one.rank) for one in recorded]) == 1


def test_equal_ranks_have_no_straggler():
    assert profiles.straggler(ranks([(0, 10)], [(1, 10)], [(2, 10)])) is None
    assert profiles.straggler(ranks([(0, 10)])) is None


@given(on_their_clocks())
def test_computing_exposed_and_other_are_the_whole(made):
    for share in profiles.shares(profiles.aligned(made[0])):
        assert share.computing + share.exposed + share.other == pytest.approx(share.whole)
        assert -1e-9 <= share.waiting <= share.exposed + 1e-9


# ---- files ----


@pytest.mark.parametrize("name", profiles.EXAMPLES)
def test_a_compact_trace_is_a_few_kilobytes_and_says_the_same(name):
    recorded = profiles.example(name)
    data = json.loads(json.dumps(profiles.packed(recorded, joined=0)))
    assert profiles.unpacked(data) == recorded
    assert len(json.dumps(data, separators=(",", ":"))) < 12_000
    assert profiles.before_it_began(recorded) is None
    assert [one.rank for one in recorded] == [0, 1, 2, 3]


def test_pauses_shorter_than_asked_for_are_left_out():
    recorded = [Recorded(0, 1, 0, [], [(0.0, 1.0), (1.00005, 2.0), (2.5, 3.0)], [])]
    (found,) = profiles.unpacked(profiles.packed(recorded, joined=100))
    assert found.computing == [(0, 2), (2.5, 3)]


def test_the_slow_rank_of_the_recorded_example_is_the_one_with_the_long_batch():
    assert profiles.straggler(profiles.example("slow rank")) == 2


def test_one_trace_of_all_ranks_has_a_process_for_each_of_theirs():
    traces = [
        trace(
            event("gloo:barrier", "user_annotation", 10 + 100 * rank, 5, thread=3),
            {"ph": "M", "name": "process_name", "pid": 100, "args": {"name": "python"}},
            {"ph": "s", "id": 4, "pid": 100, "tid": 1, "ts": 11, "name": "fwdbwd", "cat": "fwdbwd"},
            rank=rank,
            base=7000 * rank,
        )
        for rank in (1, 0)
    ]
    merged = profiles.chrome(traces)
    barriers = [one for one in merged["traceEvents"] if one["name"] == "gloo:barrier"]
    assert [one["ts"] for one in barriers] == pytest.approx([10, 10])
    assert [one["pid"] for one in barriers] == [0, 1000]
    names = [one["args"]["name"] for one in merged["traceEvents"] if one["name"] == "process_name"]
    assert names == ["rank 0 · python", "rank 1 · python"]
    assert len({one["id"] for one in merged["traceEvents"] if "id" in one}) == 2
    assert merged["baseTimeNanoseconds"] == 0
