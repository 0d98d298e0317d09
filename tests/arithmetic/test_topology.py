"""Hops, cuts and placements are those of the graph and of the ranks, counted one by one."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allranks import hardware, topology, transformer
from allranks.topology import Level

BUILT = [
    (topology.fat_tree, topology.fat_tree_graph, (4,)),
    (topology.fat_tree, topology.fat_tree_graph, (6,)),
    (topology.fat_tree, topology.fat_tree_graph, (4, 2)),
    (topology.fat_tree, topology.fat_tree_graph, (8, 2)),
    (topology.rail, topology.rail_graph, (4, 2)),
    (topology.rail, topology.rail_graph, (3, 4)),
    (topology.rail, topology.rail_graph, (4, 4, 3)),
    (topology.rail, topology.rail_graph, (1, 8)),
    (topology.rail, topology.rail_graph, (4, 1)),
    (topology.rail, topology.rail_graph, (1, 1)),
    (topology.dragonfly, topology.dragonfly_graph, (2, 1, 1)),
    (topology.dragonfly, topology.dragonfly_graph, (4, 2, 2)),
    (topology.dragonfly, topology.dragonfly_graph, (4, 1, 1)),
    (topology.dragonfly, topology.dragonfly_graph, (2, 3, 2)),
    (topology.torus, topology.torus_graph, (5,)),
    (topology.torus, topology.torus_graph, (4, 4)),
    (topology.torus, topology.torus_graph, (3, 4, 2)),
    (topology.torus, topology.torus_graph, (2, 2, 2)),
    (topology.torus, topology.torus_graph, (1, 6)),
    (topology.torus, topology.torus_graph, (1,)),
]
built = pytest.mark.parametrize("formula, graph, sizes", BUILT, ids=lambda x: getattr(x, "__name__", str(x)))


def hosts_of(graph):
    return [node for node in graph if node[0] == "host"]


def minimal_hops(graph, source):
    """Breadth-first search of a dragonfly along routes of at most one global link."""
    hops = {(source, 0): 0}
    waiting = list(hops)
    for node, used in waiting:
        for other in graph[node]:
            after = used + (node[0] == other[0] == "router" and node[1] != other[1])
            if after <= 1 and (other, after) not in hops:
                hops[other, after] = hops[node, used] + 1
                waiting.append((other, after))
    return {node: min(hops.get((node, used), 99) for used in (0, 1)) for node, _ in hops}


@built
def test_hosts_switches_and_links_are_those_of_the_graph(formula, graph, sizes):
    network, links = formula(*sizes), graph(*sizes)
    assert network.hosts == len(hosts_of(links))
    assert network.switches == len(links) - network.hosts
    assert network.links == sum(map(len, links.values())) / 2


@built
def test_hops_are_those_of_a_breadth_first_search(formula, graph, sizes):
    network, links = formula(*sizes), graph(*sizes)
    search = minimal_hops if formula is topology.dragonfly else topology.distances
    hosts = hosts_of(links)
    hops = [search(links, one)[other] for one in hosts for other in hosts if one != other]
    assert network.diameter == max(hops, default=0)
    assert network.mean_hops == pytest.approx(sum(hops) / max(len(hops), 1))


def test_two_global_links_can_be_shorter_than_a_minimal_route():
    """A minimal route of a dragonfly is not always the shortest: two global links may meet at a router."""
    graph = topology.dragonfly_graph(4, 1, 2)
    hosts = hosts_of(graph)
    pairs = [(a, b) for a in hosts for b in hosts]
    assert any(topology.distances(graph, a)[b] < minimal_hops(graph, a)[b] for a, b in pairs)


def natural_half(graph):
    """Half of the hosts in the order of their names: pods, units, groups, planes."""
    hosts = sorted(hosts_of(graph))
    return set(hosts[: len(hosts) // 2])


def halves_of_groups(routers, hosts_per_router, global_links):
    """Half of a dragonfly: half of one group, and the groups that this half's global links lead to."""
    graph = topology.dragonfly_graph(routers, hosts_per_router, global_links)
    mine = {("router", 0, r) for r in range(routers // 2)}
    groups = {other[1] for r in mine for other in graph[r] if other[0] == "router" and other[1]}
    return {h for h in hosts_of(graph) if h[1] in groups or (h[1] == 0 and h[2] < routers // 2)}


@built
def test_the_bisection_is_what_has_to_be_cut_between_the_halves(formula, graph, sizes):
    network, links = formula(*sizes), graph(*sizes)
    if network.bisection is None:
        return
    if formula is topology.torus:  # the plane across the longest side
        axis = sizes.index(max(sizes)) + 1
        half = {host for host in links if host[axis] < max(sizes) // 2}
    else:
        half = halves_of_groups(*sizes) if formula is topology.dragonfly else natural_half(links)
    assert 2 * len(half) == network.hosts
    assert topology.cut(links, half) == network.bisection


@built
def test_no_other_halves_are_easier_to_cut(formula, graph, sizes):
    network, links = formula(*sizes), graph(*sizes)
    if network.bisection is None:
        return
    hosts = sorted(hosts_of(links))
    choose = random.Random(0)
    start = natural_half(links)
    for swaps in (0, 1, 2, 4, 8, 99):
        half = set(start)
        for _ in range(swaps):
            half.discard(choose.choice(sorted(half)))
            half.add(choose.choice([host for host in hosts if host not in half]))
        assert 2 * len(half) == len(hosts)
        assert topology.cut(links, half) >= network.bisection


def test_the_hosts_of_a_fat_tree_are_the_published_ones():
    """Al-Fares et al. 2008: 48-port switches reach 27,648 hosts, with (k/2)² core switches."""
    tree = topology.fat_tree(48)
    assert (tree.hosts, tree.switches, tree.oversubscription) == (27648, 5 * 48**2 // 4, 1)
    assert topology.fat_tree(48, 4).oversubscription == 4


@pytest.mark.parametrize(
    "gpus, switches",
    [
        (512, (16, 8)),
        (1024, (32, 16)),
        (2048, (64, 32)),
        (4096, (128, 128, 64)),
        (8192, (256, 256, 128)),
        (16384, (512, 512, 256)),
    ],
)
def test_a_superpod_has_the_published_switches(gpus, switches):
    """NVIDIA DGX SuperPOD (B200) reference architecture: leaf, spine and core switches of 64 ports."""
    assert topology.fat_tree_switches(gpus, 64) == switches


@given(half=st.integers(2, 12))
def test_a_full_fat_tree_has_the_switches_of_its_levels(half):
    tree = topology.fat_tree(2 * half)
    assert sum(topology.fat_tree_switches(tree.hosts, 2 * half)) == tree.switches


def test_routers_of_64_ports_make_a_large_dragonfly():
    """a = 2p = 2h (Kim et al. 2008, section 3) with p = 16 needs 63 ports; three hops between routers."""
    p = 16
    network = topology.dragonfly(2 * p, p, p)
    assert (p + 2 * p + p - 1 <= 64, network.hosts, network.diameter - 2) == (True, 262656, 3)
    assert topology.dragonfly(4, 2, 2).hosts == 72


def test_a_torus_of_a_tpu_pod():
    assert topology.torus(32, 32)[1:] == (1024, 0, 2048, 32, 16 * 1024 / 1023, 64)
    assert topology.torus(16, 16, 16).bisection == 512
    assert topology.torus(16, 16, 16).bisection_bandwidth(50e9) == pytest.approx(25.6e12)


@given(side=st.integers(2, 40))
def test_a_larger_torus_is_worse_connected(side):
    small, large = topology.torus(2 * side, 2 * side), topology.torus(2 * side + 2, 2 * side + 2)
    assert large.oversubscription > small.oversubscription
    assert large.mean_hops > small.mean_hops


SIZES = st.integers(1, 4)
MESHES = st.permutations(["tp", "cp", "pp", "dp"]).flatmap(
    lambda names: st.tuples(*(SIZES for _ in names)).map(lambda sizes: tuple(zip(names, sizes, strict=True)))
)


def size_of(mesh):
    count = 1
    for _, size in mesh:
        count *= size
    return count


@given(mesh=MESHES, axes=st.sets(st.sampled_from(["tp", "cp", "pp", "dp"]), min_size=1))
def test_the_groups_of_an_axis_are_the_ranks_that_differ_in_it_alone(mesh, axes):
    order = [axis for axis, _ in mesh]
    same = {}
    for rank in range(size_of(mesh)):
        place = topology.coordinates(rank, mesh)
        others = tuple(x for axis, x in zip(order, place, strict=True) if axis not in axes)
        same.setdefault(others, []).append(rank)
    assert sorted(topology.groups(mesh, axes)) == sorted(map(tuple, same.values()))


def test_the_groups_are_those_of_llama_3():
    """Grattafiori et al. 2024, figure 5: GPUs 0 and 1 share tp, 0 and 2 cp, 0 and 4 pp, 0 and 8 dp."""
    mesh = [("tp", 2), ("cp", 2), ("pp", 2), ("dp", 2)]
    assert [topology.groups(mesh, axis)[0] for axis, _ in mesh] == [(0, 1), (0, 2), (0, 4), (0, 8)]
    assert topology.coordinates(11, mesh) == (1, 1, 0, 1)


def levels(node=4, rack=8, pod=16, cluster=1024, over=1):
    return (
        Level("node", node, 1e-6, 400e9, 1),
        Level("rack", rack, 2e-6, 50e9, 1),
        Level("pod", pod, 3e-6, 50e9, 1),
        Level("cluster", cluster, 4e-6, 50e9, over),
    )


@given(mesh=MESHES, axis=st.sampled_from(["tp", "cp", "pp", "dp"]))
def test_a_group_spans_the_smallest_block_that_holds_it(mesh, axis):
    for group in topology.groups(mesh, axis):
        inside = [len({rank // level.ranks for rank in group}) == 1 for level in levels()]
        assert topology.spans(group, levels()) == inside.index(True)


def test_a_ring_over_whole_nodes_has_all_their_links():
    """Two nodes of four: one ring in rank order leaves each node, on each of four cards a quarter of it."""
    assert topology.ring_bandwidth([tuple(range(8))], levels()) == 4 * 50e9
    assert topology.ring_bandwidth([(0, 1), (2, 3)], levels()) == 400e9
    assert topology.ring_bandwidth([(0, 4), (1, 5), (2, 6), (3, 7)], levels()) == 50e9
    assert topology.ring_bandwidth([(0, 1, 4, 5), (2, 3, 6, 7)], levels()) == 2 * 50e9


@pytest.mark.parametrize("over", [1, 2, 7])
def test_oversubscription_is_felt_when_every_rank_leaves_its_pod(over):
    across = [(rank, rank + 16) for rank in range(16)]
    assert topology.ring_bandwidth(across, levels(over=over)) == pytest.approx(50e9 / over)
    within = [(rank, rank + 4) for rank in (*range(4), *range(8, 12))]
    assert topology.ring_bandwidth(within, levels(over=over)) == 50e9


def test_few_rings_leave_an_oversubscribed_pod_at_full_speed():
    """Pods of 16 and 2 rings of 16 over two pods: 2 rings leave each, on 16 links reduced by 4."""
    rings = [tuple(range(first, 32, 2)) for first in (0, 1)]
    assert topology.ring_bandwidth(rings, levels(over=4)) == pytest.approx(16 / 4 / 2 * 50e9)


MODEL = transformer.decoder(8, 64, 8, 100, 64)


@settings(max_examples=60)
@given(mesh=MESHES, microbatches=st.integers(1, 5))
def test_bytes_depend_on_the_sizes_and_not_on_the_order(mesh, microbatches):
    sizes = {"tp": 2, "cp": 2, "pp": 2, "dp": 2}
    mesh = [(axis, sizes[axis]) for axis, _ in mesh]
    placed = topology.place(mesh, levels(), MODEL, microbatches)
    assert [each.axis for each in placed] == [axis for axis, _ in mesh]
    sent = {each.axis: each.sent for each in placed}
    assert sent == {each.axis: each.sent for each in topology.traffic(MODEL, sizes, microbatches)}
    assert topology.layout_seconds(mesh, levels(), MODEL, microbatches) == pytest.approx(
        sum(each.seconds for each in placed)
    )


@given(t=st.sampled_from([2, 4, 8]), b=st.integers(1, 4), m=st.integers(1, 9))
def test_tensor_parallel_bytes_are_the_published_ones(t, b, m):
    """Narayanan et al. 2021, section 3.2: 8bsh(t-1)/t elements a layer, micro-batch and device."""
    sent = topology.traffic(MODEL, {"tp": t}, m, b)[0].sent
    assert sent == pytest.approx(m * 8 * 2 * 8 * b * 64 * 64 * (t - 1) / t)


@given(p=st.sampled_from([1, 2, 4, 8]), v=st.sampled_from([1, 2, 4]), m=st.integers(1, 5))
def test_pipeline_bytes_are_those_of_the_busiest_rank(p, v, m):
    """Every piece of the model but the last sends bsh forward, every one but the first sends it back."""
    if p * v > 8:
        return
    busiest = max(
        sum((piece < p * v - 1) + (piece > 0) for piece in range(rank, p * v, p)) for rank in range(p)
    )
    expected = m * busiest * 64 * 64 * 2 if p > 1 else 0
    assert topology.traffic(MODEL, {"pp": p}, m, chunks=v)[2].sent == expected
    sharded = topology.traffic(MODEL, {"pp": p, "tp": 2}, m, chunks=v, sharded_boundary=True)[2].sent
    assert sharded == expected / 2


@given(c=st.sampled_from([1, 2, 4]), d=st.integers(1, 5), t=st.sampled_from([1, 2]))
def test_gradients_are_summed_over_cp_and_dp(c, d, t):
    sent = topology.traffic(MODEL, {"cp": c, "dp": d, "tp": t}, 1, gradient_bytes=4)[3].sent
    assert sent == pytest.approx(2 * (c * d - 1) / (c * d) * 4 * transformer.parameters(MODEL) / t)


def test_keys_and_values_are_gathered():
    """Two collectives a layer of the K and V of 2 of 8 heads, of which c-1 of c parts are sent."""
    llama = transformer.decoder(4, 64, 8, 100, 64, kv_heads=2)
    sent = topology.traffic(llama, {"cp": 4, "tp": 2}, microbatches=3)[1].sent
    assert sent == 3 * 4 * 2 * (3 / 4) * (2 * 64 * 1 * 8 * 2)


def test_tensor_parallelism_belongs_into_the_node():
    """In the order of Llama 3 (section 3.3.2) tp stays in its node; in the reverse it costs 8 times more."""
    nvlink, roce = hardware.LINKS["nvlink-4"], hardware.LINKS["roce-400"]
    machine = (
        Level("node", 8, nvlink.α, nvlink.bandwidth, 1),
        Level("pod", 3072, roce.α, roce.bandwidth, 1),
        Level("cluster", 24576, roce.α, roce.bandwidth, 7),
    )
    mesh = (("tp", 8), ("pp", 16), ("dp", 128))
    right = topology.place(mesh, machine, transformer.PRESETS["llama3-405b"], 16)
    wrong = topology.place(mesh[::-1], machine, transformer.PRESETS["llama3-405b"], 16)
    assert [axis.level for axis in right] == ["node", "pod", "cluster"]
    assert [axis.on_rail for axis in right] == [False, True, True]
    assert right[0].groups == (("node", 2048), ("pod", 0), ("cluster", 0))
    assert wrong[2].seconds > 8 * right[0].seconds


@pytest.mark.parametrize(
    "wrong, complaint",
    [
        (lambda: topology.fat_tree(5), "ports must be a multiple of two = 2, not 5"),
        (lambda: topology.fat_tree(8, 3), "ports / 2 must be a multiple of oversubscription = 3, not 4"),
        (lambda: topology.fat_tree_switches(65537, 64), "hosts must be a whole number from 1 to 65536"),
        (lambda: topology.rail(0, 8), "nodes must be a whole number of at least 1, not 0"),
        (lambda: topology.rail(4, 8, 2), "nodes must be a multiple of ranks_per_node = 8, not 4"),
        (lambda: topology.dragonfly(3, 1, 1), "routers must be a multiple of two = 2, not 3"),
        (lambda: topology.torus(), "sides must hold at least one whole number"),
        (lambda: topology.torus(4, 2.0), "side must be a whole number"),
        (lambda: topology.coordinates(8, [("tp", 8)]), "rank must be a whole number from 0 to 7, not 8"),
        (lambda: topology.groups([("tp", 8)], "dp"), "the axis must be one of 'tp', not 'dp'"),
        (lambda: topology.groups([("tp", 2), ("tp", 2)], "tp"), "'tp' is there twice"),
        (lambda: topology.spans((0, 2000), levels()), "rank 2000 must be below 1024"),
        (lambda: topology.groups("nonsense", "tp"), "must be a list of pairs (axis, size), not 'nonsense'"),
        (lambda: topology.coordinates(0, [("tp", 2, 3)]), "must be a list of pairs (axis, size)"),
        (lambda: topology.place([("tp", 2)], "abc", MODEL, 1), "the levels must be a list of Level"),
        (lambda: topology.place([("tp", 2)], (), MODEL, 1), "levels must hold at least one Level"),
        (lambda: topology.place([("tp", 2)], levels(over=0.5), MODEL, 1), "cluster must be at least 1"),
        (lambda: topology.place([("tp", 2)], levels(rack=6), MODEL, 1), "a rack must hold a multiple of 4"),
        (lambda: topology.place([("ep", 2)], levels(), MODEL, 1), "must be one of 'tp', 'cp', 'pp', 'dp'"),
        (lambda: topology.place([("dp", 2000)], levels(), MODEL, 1), "from 1 to 1024, not 2000"),
        (lambda: topology.traffic(MODEL, {"tp": 3}, 1), "heads must be a multiple of tp = 3, not 8"),
        (lambda: topology.traffic(MODEL, {"pp": 11}, 1), "pp × chunks must be a whole number from 1 to 10"),
        (lambda: topology.traffic(MODEL, {}, 1, recomputation="some"), "recomputation must be one of"),
        (lambda: topology.traffic(MODEL, {}, 0), "microbatches must be a whole number of at least 1, not 0"),
        (lambda: topology.traffic(MODEL, {}, 1, element_bytes=float("nan")), "not nan"),
    ],
)
def test_bad_input_is_named(wrong, complaint):
    with pytest.raises(ValueError) as raised:
        wrong()
    assert complaint in str(raised.value)
