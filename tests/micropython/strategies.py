"""With which inputs are the functions compared? A strategy for each name that parameters usually have.

Inputs are Python source, which both interpreters evaluate: `memory.zero_bytes(7500000000.0, 64, 1)`.
"""

import re

from hypothesis import strategies as st


def source(strategy):
    """The source of what a strategy draws."""
    return strategy.map(repr)


def whole(low, high):
    """The source of a whole number."""
    return source(st.integers(low, high))


def amount(low, high):
    """The source of a number, whole or not."""
    return source(st.integers(int(low), int(high)) | st.floats(low, high, allow_subnormal=False))


def choice(*values):
    """The source of one of these values."""
    return source(st.sampled_from(values))


def key_of(table):
    """A key of one of the arithmetic's tables."""
    return st.deferred(lambda: choice(*table()))


def table(module, name):
    """A function that reads a table of the arithmetic when it is there."""
    return lambda: sorted(getattr(__import__(f"allranks.{module}", fromlist=[name]), name))


@st.composite
def model(draw):
    """The source of a decoder, small or of a preset."""
    if draw(st.booleans()):
        return f"transformer.PRESETS[{draw(key_of(table('transformer', 'PRESETS')))}]"
    heads = draw(st.sampled_from([1, 2, 4, 8]))
    hidden, layers = heads * draw(st.sampled_from([4, 8, 64, 128])), draw(st.sampled_from([1, 2, 4, 8, 32]))
    vocabulary, sequence = draw(st.integers(2, 130000)), draw(st.sampled_from([8, 64, 1024, 2048]))
    experts = draw(st.integers(1, 8))
    options = {
        "kv_heads": draw(st.sampled_from([heads, 1])),
        "gated": draw(st.booleans()),
        "tied": draw(st.booleans()),
        "biases": draw(st.booleans()),
        "learned_positions": draw(st.booleans()),
        "experts": experts,
        "active_experts": draw(st.integers(1, experts)),
    }
    listed = ", ".join(f"{name}={value!r}" for name, value in options.items())
    return f"transformer.decoder({layers}, {hidden}, {heads}, {vocabulary}, {sequence}, {listed})"


@st.composite
def schedule(draw):
    """The source of a schedule with two arguments that every kind accepts."""
    name = draw(st.sampled_from(["gpipe", "one_f_one_b", "pipedream", "zb_h1", "zb_h2", "zb_v", "dualpipe"]))
    stages, microbatches = draw(st.sampled_from([(2, 4), (2, 6), (4, 8)]))
    return f"schedules.{name}({stages}, {microbatches})"


TIMELINE = schedule().map(lambda made: f"simulate.simulate({made}, 1.0, 1.25, 0.75, 0.125)")
DURATION = choice(0.5, 1, 1.0, 1.5, 2, 0.125, 3.7)
PARALLEL = choice(1, 1, 2, 4, 8)

REQUESTS = st.tuples(choice(2, 9.5), whole(1, 9)).map(
    lambda drawn: (
        f"inference.requests(inference.poisson({drawn[0]}, 6, {drawn[1]}), "
        f"inference.lengths(1, 20, 6, {drawn[1]}), inference.lengths(1, 12, 6, {drawn[1]}))"
    )
)
ENGINE = choice(1, 2).map(
    lambda ranks: f"inference.engine(transformer.PRESETS['llama3-8b'], 'h100', {ranks}, overhead=0.05)"
)
SERVED = st.tuples(REQUESTS, ENGINE).map(
    lambda drawn: f"inference.serve({drawn[0]}, {drawn[1]}, pages=8, page=4)"
)


@st.composite
def recorded(draw):
    """The source of what two or three ranks recorded: the same collectives, entered at different times."""
    step, ranks = st.sampled_from([0.0, 0.125, 0.5, 1.25]), draw(st.integers(2, 3))
    kinds, clock, calls = draw(st.lists(st.sampled_from(["all_reduce", "barrier", "broadcast"]))), 0.0, []
    for kind in kinds:
        starts = [clock + draw(step) for _ in range(ranks)]
        clock = max(starts) + 0.25
        ends = [clock + draw(step) for _ in starts]
        both = zip(starts, ends)
        calls.append([f"profiles.Collective({kind!r}, '', {start}, {end})" for start, end in both])
        clock += 1.5
    made = [
        f"profiles.Recorded({rank}, {ranks}, {draw(st.integers(0, 9))}, "
        f"[profiles.Span('forward', 0.0, 1.5)], [({draw(step)}, 2.0), (2.5, {2.5 + draw(step)})], "
        f"[{', '.join(call[rank] for call in calls)}])"
        for rank in range(ranks)
    ]
    return f"[{', '.join(made)}]"


@st.composite
def profiler_trace(draw, rank=0):
    """The source of a file of torch.profiler: operators, a phase and a collective of a CPU or of a GPU."""
    at, device = draw(st.sampled_from([0.5, 3.25, 1000.0])), draw(st.booleans())
    event = {"ph": "X", "pid": 7, "tid": 8, "dur": 2.5}
    events = [
        event | {"name": "aten::mm", "cat": "kernel" if device else "cpu_op", "ts": at},
        event | {"name": "forward", "cat": "user_annotation", "ts": at + draw(st.sampled_from([0.0, 4.0]))},
        event | {"name": "ncclDevKernel_AllReduce_Sum", "cat": "kernel", "ts": at + 9, "id": 3}
        if device
        else event | {"name": "gloo:all_reduce", "cat": "user_annotation", "tid": 9, "ts": at + 9},
        {"ph": "M", "name": "process_name", "pid": 7, "args": {"name": "python"}},
    ]
    made = {"traceEvents": events, "baseTimeNanoseconds": draw(st.integers(0, 10**6))}
    return repr(made | {"distributedInfo": {"rank": rank, "world_size": 2}})


INTERVALS = source(
    st.lists(st.tuples(st.sampled_from([0.0, 1.5, 2.0, 7.25]), st.sampled_from([0.0, 0.5, 3.0]))).map(
        lambda drawn: [(start, start + length) for start, length in drawn]
    )
)

# The first pattern that matches the whole name of a parameter says what it is given.
NAMES = {
    "model": model(),
    "schedule": schedule(),
    "timeline": TIMELINE,
    "stages": choice(1, 2, 2, 4, 4),
    "microbatches": choice(1, 2, 4, 4, 8, 8, 12, 16),
    "chunks": whole(1, 3),
    "group": choice(None, 4, 8),
    "rank|stage": whole(0, 3),
    "world_size|ranks|devices": choice(1, 2, 3, 4, 7, 8, 16, 64, 1000, 1024),
    "layers": choice(1, 2, 3, 12, 96),
    "hidden|head_width|feed_forward": choice(8, 64, 768, 12288),
    "heads|kv_heads": choice(1, 2, 4, 8, 16),
    "vocabulary": whole(2, 200_000),
    "sequence|context|tokens": choice(1, 8, 64, 2048, 8192),
    "batch|microbatch|global_batch": choice(1, 1, 2, 4, 8, 64),
    "experts": choice(8, 4),
    "active_experts": choice(1, 2),
    "parameters": amount(1, 10**12),
    "nbytes|.*_bytes|elements": amount(0, 10**12),
    "zero_stage": whole(0, 3),
    ".*_parallel|tp|pp|dp|cp|ep": PARALLEL,
    "recomputation": choice("none", "selective", "full"),
    "recipe": key_of(table("memory", "RECIPES")),
    "element": choice(1, 2, 4, 0.5),
    "held": choice(1, 2, 4, 1.75),
    "sequences|prefetched": whole(0, 64),
    "units": choice(1, 2, 96),
    "sizes": source(st.lists(st.integers(0, 10**8), max_size=12)),
    "first|cap|bucket": choice(2**20, 25 * 2**20),
    "latent|rotary|rows|row_elements": choice(1, 64, 512, 513),
    "optimizer|weights": choice("device", "cpu", "nvme"),
    "intensity": source(st.floats(1, 1e6)),
    "state": choice("weights", "optimizer", "checkpoints"),
    "interval": choice(1, 2, 8),
    "efficiency": source(st.floats(0.01, 0.99)),
    "unit_parameters": amount(0, 10**9),
    "α|.*latency": source(st.floats(0, 1e-3)),
    "β": source(st.floats(1e-13, 1e-8)),
    ".*bandwidth": source(st.floats(1e8, 1e13)),
    "memory_limit": whole(1, 12),
    "forward|input_grad|weight_grad|transfer|forward_and_backward": DURATION,
    "durations": st.fixed_dictionaries({"forward": DURATION, "input_grad": DURATION}),
    "peak|flops_per_second": source(st.floats(1e12, 1e16)),
    "seconds|.*_seconds": source(st.floats(1e-6, 1e6)),
    "collective": choice("all_reduce", "all_reduce", "broadcast"),
    "algorithm|one|other": choice(
        "ring", "binomial_tree", "binomial_tree", "double_tree", "scatter_all_gather"
    ),
    "pieces|parts|element_size": choice(1, 1, 2, 5),
    "α_intra|α_inter": source(st.floats(0, 1e-3)),
    "β_intra|β_inter": source(st.floats(1e-13, 1e-8)),
    "nodes": choice(1, 2, 4, 8, 16),
    "ranks_per_node": choice(1, 2, 4, 8),
    "sends": choice("posted", "paired", "blocking"),
    "dtype": choice("bf16", "fp16", "fp32", "fp8"),
    "mesh": choice(
        (("tp", 2), ("cp", 1), ("pp", 4), ("dp", 8)),
        (("tp", 8), ("cp", 2), ("pp", 2), ("dp", 1)),
        (("dp", 4), ("pp", 2), ("tp", 4)),
    ),
    "levels": choice(8, 4).map(
        lambda node: (
            f"(topology.Level('node', {node}, 1e-6, 3e11, 1), topology.Level('rack', 32, 5e-6, 5e10, 1.5), "
            "topology.Level('pod', 1024, 1e-5, 2.5e10, 7.0))"
        )
    ),
    "accelerator": key_of(table("hardware", "ACCELERATORS")),
    "link": key_of(table("hardware", "LINKS")),
}
# A parameter that means something else in one function: "module.function.parameter".
HERE = {
    "deepspeed_config.*.config": choice(
        {
            "train_batch_size": 4032000,
            "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
        },
        {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 3, "fp16": {"enabled": True}},
        '{"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 3}}',
    ),
    "framework_config.(torchtitan|megatron|accelerate|deepspeed).world_size": choice(8, 16, 64),
    "framework_config.torchtitan.parallelism": choice(
        {"tensor_parallel_degree": 2, "expert_parallel_degree": 4},
        {"data_parallel_shard_degree": 4, "data_parallel_replicate_degree": 2},
        {"pipeline_parallel_degree": 3},
    ),
    "framework_config.megatron.flags": choice(
        "--tensor-model-parallel-size 2 --expert-model-parallel-size=4",
        "--pipeline-model-parallel-size 2 --use-tp-pp-dp-mapping --use-distributed-optimizer",
        "--context-parallel-size 3",
    ),
    "framework_config.accelerate.parallelism": choice(
        {}, {"tp_size": 2, "dp_shard_size": 4}, {"parallelism_config_cp_size": 8, "sp_size": 2}
    ),
    "framework_config.deepspeed.config": choice(
        {"zero_optimization": {"stage": 1}},
        {"tensor_parallel": {"autotp_size": 2}},
        {"data_parallel_size": 4},
    ),
    "framework_config.deepspeed.stages": choice(1, 2),
    "framework_config.group_of.setup": st.just(
        "framework_config.megatron('--tensor-model-parallel-size 2', 8)"
    ),
    "framework_config.group_of.axis": choice("tp", "dp", "ep", "pp", "sp"),
    "hardware.by_name.records": st.just("[hardware.LINKS['nvlink-4'], hardware.LINKS['pcie-5']]"),
    "hardware.(accelerator|called|peak|ridge).name": key_of(table("hardware", "ACCELERATORS")),
    "hardware.link.name": key_of(table("hardware", "LINKS")),
    "hardware.(pcie|network).(generation|gigatransfers|gigabits)": whole(1, 800),
    "hardware.(pcie|network).(name|source|date)": choice("2024", "a card"),
    "collectives.Cost.then.other": st.just("collectives.ring_all_gather(1000, 4)"),
    "collectives.(all_reduce_.*|contributions).algorithm": choice(
        "ring", "binomial_tree", "recursive_doubling", "halving_doubling", "two_level"
    ),
    "collectives.(all_reduce_.*|contributions).world_size": choice(1, 2, 4, 7, 8, 16),
    "collectives.(all_reduce_.*|contributions).ranks_per_node": choice(1, 2, 4),
    "collectives.contributions.rounds": whole(0, 20),
    "collectives.round_cost.one_round": st.just("collectives.all_reduce_rounds('ring', 4)[0]"),
    "collectives.round_cost.chunks": choice(4, 1),
    "collectives.crossover.collective": choice("all_reduce"),
    "collectives.crossover.(one|other)": choice(
        "ring", "binomial_tree", "recursive_doubling", "halving_doubling", "central", "double_tree"
    ),
    "collectives.meeting.(one|other)": choice((1e-5, 1e-9), (3e-5, 5e-10), (1e-6, 2e-9)),
    "collectives.*.links": choice("infiniband-ndr", "nvlink-4").map(
        lambda name: f"hardware.protocols({name})"
    ),
    "collectives.flat_rings.rings": choice(1, 1, 2, 4),
    "hardware.protocols.name": key_of(table("hardware", "LINKS")),
    "collectives.overlapped.ready": choice([0.5, 1.0, 2.25]),
    "collectives.(overlapped|bucketed_backward).buckets": choice([[0], [1, 2]], [[0, 1], [2]]),
    "collectives.overlapped.all_reduces": choice([0.25, 1.5], [2.0, 0.5], [0.0, 1e-3], [2.0]),
    "collectives.bucketed_backward.sizes": choice([10**6, 2 * 10**6, 5]),
    "collectives.bucketed_backward.backward": choice(0.05, 1),
    "collectives.bucketed_backward.algorithm": choice("ring", "double_tree"),
    "collectives.(beside_a_product|decomposed).(communication|product)": choice(0.25, 1.5, 3),
    "dispatchers.*.routes": choice([[[0, 3], [1, 2]], [[2, 3]], [[0, 1]], []]),
    "dispatchers.*.experts": choice(4, 8),
    "dispatchers.*.ranks": choice(4),
    "dispatchers.*.per_node": choice(1, 2, 4),
    "topology.traffic.sizes": choice({"tp": 2, "pp": 2}, {"tp": 4, "cp": 2, "dp": 3}, {}),
    "topology.fat_tree_switches.ports": choice(64, 48),
    # Graphs are small: MicroPython's hash of a tuple is a sum, so a dict of n nodes takes it about n² steps.
    "topology.fat_tree_graph.ports": choice(4, 6, 6, 5),
    "topology.fat_tree_graph.oversubscription": choice(2, 3, 1, 2),
    "topology.fat_tree.*.(ports|oversubscription)": choice(4, 8, 2, 1),
    "topology.fat_tree_switches.hosts": choice(16, 128, 27648),
    "topology.(rail|rail_graph).units": choice(1, 2),
    "topology.rail_graph.(nodes|ranks_per_node)": choice(1, 2, 4),
    "topology.dragonfly_graph.(routers|hosts_per_router|global_links)": choice(2, 1, 3),
    "topology.dragonfly.(routers|hosts_per_router|global_links)": choice(2, 4, 1, 3),
    "topology.torus_graph.sides": st.lists(whole(1, 3), min_size=1, max_size=3),
    "topology.torus.*.sides": st.lists(whole(1, 4), min_size=1, max_size=3),
    "topology.groups.axes": choice("tp", "pp", ("tp", "dp"), "dp"),
    "topology.(place|layout_seconds).options": st.fixed_dictionaries({"sequence": choice(8)}),
    "topology.(place|layout_seconds).mesh": choice(
        (("tp", 2), ("cp", 1), ("pp", 1), ("dp", 8)), (("tp", 4), ("pp", 2), ("dp", 3))
    ),
    "topology.ring_bandwidth.all_groups": choice([(0, 1), (2, 3)], [(0, 8, 16), (1, 9, 17)]),
    "topology.spans.group": choice((0, 1), (0, 8), (5, 100)),
    "topology.(cut|distances).graph": st.just("topology.torus_graph(2, 2)"),
    "topology.distances.source": choice(("host", 0, 0), ("host", 1, 0)),
    "topology.cut.one_half": st.just("[('host', 0, 0), ('host', 0, 1)]"),
    ".*kept_for_weight_grad": choice(0, 0.5, 1.0),
    "precision.*.dtype": choice("fp32", "tf32", "bf16", "fp16", "fp8_e4m3", "fp8_e5m2"),
    "precision.*.x": source(st.floats(1e-12, 60000) | st.floats(-500, 500)),
    "precision.*.middle": source(st.floats(-30, 5)),
    "precision.*.spread": choice(1, 2.5, 4, 8),
    "precision.*.scale": choice(1, 8, 1024, 2.0**16, 0.3),
    "precision.*.low": whole(-20, -15),
    "precision.*.high": whole(-14, 0),
    "attention.document_*.split": choice("contiguous", "zigzag", "documents"),
    "attention.*.split": choice("contiguous", "zigzag"),
    "attention.(document_spans|document_hops|document_pairs|attended).sequence": choice(16),
    "attention.*.sequence": choice(16, 64, 4096, 65536),
    "attention.*.context_parallel": choice(1, 2, 4, 8),
    "attention.*.documents": choice([16], [3, 13], [3, 1, 12]),
    "attention.*.causal": choice(False, True),
    "attention.*.(rank|hop)": choice(0, 0, 1, 3),
    "attention.*.(queries|keys)": choice((0, 8), (4, 12), (8, 16), (32, 33)),
    "experts.*.tokens": choice(1, 4, 8, 64),
    "experts.*.experts": choice(2, 4, 8),
    "experts.*.top_k": choice(1, 2),
    "experts.*.factor": choice(1, 1.25, 0.5, 2),
    "experts.*.skew": choice(0, 0.5, 1, 2.0),
    "experts.*.seed": whole(0, 2**32 - 1),
    "experts.*.ranks": choice(1, 2, 4, 8),
    "experts.*.capacity": whole(1, 8),
    "experts.*.routes": st.just("experts.route(16, 4, 2, 1.0)"),
    "experts.*.count": whole(0, 9),
    "experts.*.hidden": choice(64, 4096),
    "experts.*.loads": choice([1, 2, 3], [0, 0], [7]),
    "experts.*.dispatches": st.just("[experts.dispatch(experts.route(16, 8, 2, 1.0), 8, 5)] * 2"),
    "experts.*.dispatched": whole(1, 9).map(
        lambda capacity: f"experts.dispatch(experts.route(16, 4, 2, 1.0), 4, {capacity})"
    ),
    "plan.*.model": choice("running", "gpt2", "mixtral-8x7b").map(
        lambda name: f"transformer.PRESETS[{name}]"
    ),
    "plan.*.(layout|each)": choice(
        "tp=2, pp=2, dp=2, microbatches=4, chunks=2",
        "tp=4, cp=2, dp=4, ep=4, zero_stage=3, microbatch=2, recomputation='full'",
        "pp=3, dp=2, zero_stage=0, microbatches=5, recomputation='selective'",
        "tp=2, pp=3, dp=2, zero_stage=2, microbatches=4, chunks=2",
    ).map(lambda sizes: f"plan.layout({eval(sizes)})"),
    "plan.(collective_seconds|bus_bandwidth).(inside|between)": choice("nvlink-4", "infiniband-ndr"),
    "plan.(collective_seconds|bus_bandwidth).op": choice("all_reduce", "all_gather", "reduce_scatter"),
    "plan.(collective_seconds|bus_bandwidth).(ranks|nodes)": choice(1, 2, 8),
    "plan.(collective_seconds|bus_bandwidth).nbytes": whole(1, 10**9),
    "plan.(collective_seconds|bus_bandwidth).switch": choice(False, True),
    "interleaving.*.work": choice(0.0, 1.5, 3),
    "strategies.*.strategy": choice("data", "sharded", "tensor", "pipeline", "sequence", "experts"),
    "strategies.*.(tokens|hidden|neurons)": choice(4, 16, 48),
    "strategies.*.layers": choice(4, 8),
    "strategies.*.ranks": choice(2, 4),
    "strategies.*.rank": choice(0, 1),
    "strategies.*.element": choice(2, 4),
    "strategies.sent_bytes.sizes": st.fixed_dictionaries({"tokens": choice(4, 32)}),
    "averaging.*.points": source(
        st.lists(st.tuples(st.floats(-3, 3), st.floats(-3, 3)), min_size=4, max_size=6)
    ),
    "averaging.split.(count|ranks|extra)": choice(0, 1, 2, 3, 8, 16),
    "averaging.*.sizes": choice([2, 2], [1, 3]),
    "averaging.*.way": choice("mean", "weighted", "sum", "none"),
    "averaging.*.gradients": choice([(0.5, 0.1), (-1.25, 0.3)], [(0.1, 0.2), (0.2, 0.7)]),
    "averaging.*.(weights|by|start)": source(st.tuples(st.floats(-3, 3), st.floats(-3, 3))),
    "averaging.*.rate": choice(0.05, 0.2, 1),
    "averaging.descend.steps": whole(0, 6),
    "averaging.apart.(path|alone)": choice([[(0.5, 0.1)], [(0.25, 0.2)]], [[(0.1, 0.1)], [(0.7, 1.2)]]),
    "averaging.added.values": choice([0.1, 0.2, 0.3], [1e16, 1.0, -1e16], []),
    "roofline.product.(m|k|n|times)": whole(1, 4096),
    "roofline.addition.elements": whole(1, 10**9),
    "roofline.(product|addition).element": choice(0.5, 1, 2, 4),
    "roofline.reached.operation": choice("product(2048, 12288, 49152, 2)", "addition(64, 2)").map(
        lambda made: f"roofline.{eval(made)}"
    ),
    "roofline.reached.accelerator": choice("h100", "b200", "a100-80gb"),
    "roofline.reached.dtype": choice("bf16", "fp8", "fp32"),
    "plan.beside.mesh": choice((("tp", 2), ("dp", 4)), (("tp", 1), ("cp", 3), ("dp", 2), ("pp", 4))),
    "plan.beside.axis": choice("tp", "dp", "pp"),
    "plan.kernels.accelerator": st.just("hardware.ACCELERATORS['h100']"),
    "plan.kernels.dtype": choice("bf16", "fp8", "fp4"),
    "plan.(kernels|paths|parts|priced|plans|price).rates": st.just("plan.rates('dgxc', 'h100')"),
    "plan.rates.stack": choice("dgxc", "playbook", "narayanan"),
    "plan.rates.generation": choice("a100", "h100", "gb200", "mi300x"),
    "plan.rates.width": choice("16", "8", "mx"),
    "plan.rates.(experts|chunked)": choice(False, True),
    "plan.rates.card": choice(None, "h100-500w"),
    "plan.rates.constants": st.just("plan.reached.FITTED"),
    "plan.*.accelerator": key_of(table("hardware", "ACCELERATORS")).map(
        lambda name: f"hardware.ACCELERATORS[{name}]"
    ),
    "plan.*.(inside|between)": key_of(table("hardware", "LINKS")).map(lambda name: f"hardware.LINKS[{name}]"),
    "plan.plans.devices": choice(1, 2, 3, 4),  # 6 devices have hundreds of plans, which `layouts` lists
    "plan.plans.batch": choice(1, 4),
    "plan.*.devices": choice(1, 2, 4, 6),
    "plan.*.batch": choice(1, 4, 6),
    "plan.*.number": whole(1, 5000),
    "plan.*.devices_per_node": choice(1, 2, 4, 8),
    "plan.*.(overlap|attended)": choice(0.0, 0.5, 1.0),
    "plan.(memory_of|price|plans).loss": choice(4, 10),
    "plan.*.capacity": choice(8e10, 10**9),
    "plan.*.order": choice(("tp", "cp", "dp", "pp"), ("tp", "cp", "pp", "dp")),
    "plan.*.axes": choice(("tp",), ("dp",), ("cp", "dp")),
    "plan.*.known": st.just("{}"),
    "plan.*.at_most": choice({"tp": 2}, {"cp": 1}),
    "plan.*.zero_stages": choice((0, 1), (1, 2, 3)),
    "plan.*.recomputations": choice(("none",), ("full", "none")),
    "plan.(plans|price|parts).options": st.fixed_dictionaries(
        {
            "inside": st.just("hardware.LINKS['nvlink-4']"),
            "between": st.just("hardware.LINKS['infiniband-ndr']"),
        }
    ),
    "schedules.*.name": choice(
        "gpipe", "one_f_one_b", "interleaved", "pipedream", "zb_h1", "zb_v", "dualpipe"
    ),
    "memory.*.rank": choice(0, 0, 1, 3),
    "memory.in_flight.schedule": choice("1f1b", "gpipe"),
    "memory.kept_bytes.(first|last)": choice(False, True),
    "articles.with_article.name": choice("lock", "int", "ndarray", "H100", "B200", "L4", "A", "Error", "_α"),
    "inputs.*.name|inputs.*.of_name": choice("stages", "α"),
    "inputs.(whole|multiple).value": whole(-5, 20),
    "inputs.quantity.value": source(st.floats() | st.integers(-3, 3)),
    "inputs.one_of.value": whole(0, 4),
    "inputs.one_of.allowed": choice((1, 2, 3), ("a", 1)),
    "inputs.multiple.of": whole(1, 4),
    "inputs.whole.at_least|inputs.whole.at_most": whole(0, 9),
    "batches.*.(local|mean|noise|least|base_rate)": source(st.floats(1e-3, 1e3)),
    "batches.*.(per_rank|base_batch)": choice(1, 2, 4, 8),
    "batches.noise_scale(_of_run)?.measured": source(
        st.lists(st.tuples(st.floats(1, 9), st.floats(0.5, 1)), min_size=5, max_size=9)
    ),
    "batches.least_steps.measured": whole(1, 999),
    "batches.*.window": choice(5, 2),
    "local_updates.table_.*.parameters": choice(1e9, 10e9, 100e9, 2e9),
    "local_updates.*.gbits": choice(0.5, 20, 300),
    "local_updates.table_.*.way": st.fixed_dictionaries({"every": choice(3, 10), "size": choice(3, 6)}),
    "local_updates.*.(layers)": choice(6, 12),
    "local_updates.*.size": choice(3, 2),
    "local_updates.*.every": choice(1, 10),
    "local_updates.*.fragments": choice(1, 4),
    "local_updates.*.delay": choice(0, 1, 2),
    "local_updates.*.rounds": choice(1, 3),
    "local_updates.*.(step|message|target)": choice(0.5, 0.8, 2),
    "local_updates.*.(layer_bits|link|parameters)": choice(1e9, 2.5e8),
    "local_updates.*.bits": choice(4, 16),
    "local_updates.seconds.sent": choice([[0, 1], []], [[], [0], [1, 2]]),
    "local_updates.last_below.utilizations": choice([0.1, 0.6, 0.9], [0.9], []),
    "compression.*.(density|share|warm_up)": source(st.floats(1e-4, 1)),
    "compression.*.method": choice("dense", "top_k", "one_bit", "power_sgd"),
    "compression.*.(factors|rate)": amount(1, 10**9),
    "compression.*.bandwidth": source(st.floats(1e6, 1e12)),
    "compression.*.options": st.fixed_dictionaries({"density": choice(0.01), "factors": choice(0, 1000)}),
    "compression.*.(bits|of)": choice(1, 4, 16),
    "compression.elements_of.shape": choice((64,), (16, 64), (8, 3, 3, 3), ()),
    "compression.power_sgd_elements.shapes": choice([(64,), (16, 64)], [(8, 3, 3, 3)], []),
    "compression.power_sgd_elements.rank": whole(1, 4),
    "parameter_server.sent_bytes.slices": choice([8, 0, 0], [2.5, 2.5, 3], [1, 1, 1, 5]),
    "parameter_server.sent_bytes.workers": choice([1, 2], [0, 1, 2], []),
    "parameter_server.*.workers": choice(2, 3, 8, 64),
    "parameter_server.best_slices.spare": whole(0, 2),
    "parameter_server.staleness.turns": source(st.lists(st.integers(1, 4), max_size=12)),
    "parameter_server.most_staleness.pushes": whole(64, 999),
    "parameter_server.largest_rate.staleness": whole(0, 99),
    "failures.between.(machines|rate)": whole(1, 9999),
    "failures.*.(write|restart|detect)": whole(0, 300),
    "failures.restart_for.share": source(st.floats(0.01, 0.99)),
    "failures.(best|best_interval).write": whole(1, 300),
    "failures.*.interval": whole(1, 9999),
    "failures.*.mean": whole(5000, 99999),
    "failures.simulate.work": whole(1, 99999),
    "failures.simulate.seed": whole(0, 99),
    "muon.*.sizes": choice([64, 64, 256], [7], []),
    "muon.*.holders": choice([1, 2, 2], [2], [1]),
    "muon.*.costs": choice([7, 7, 6, 6, 5], [1.5, 2]),
    "muon.*.(rows|columns|dimension)": whole(1, 64),
    "muon.*.(tokens|copies|rank|steps)": whole(1, 64),
    "muon.needs.optimizer": choice("AdamW", "Muon", "Shampoo", "Dion"),
    "inference.*.model": choice("gpt2", "llama3-8b", "served").map(
        lambda name: f"transformer.PRESETS[{name}]"
    ),
    "inference.*.(new|past)": choice(1, 7, 2048),
    "inference.(step|weight_bytes|largest_batch|decode_.*|next_token).(sequences|tokens)": choice(1, 3, 512),
    "inference.*.ranks": choice(1, 2, 4, 16),
    "inference.generation_groups.parts": choice(1, 2, 3),
    "inference.reshard.way": choice("all ranks", "same groups", "regrouped"),
    "inference.reshard.(tensor|pipeline|replicas|generation_.*)": choice(1, 2, 4, 8),
    "inference.*.(senders|receivers)": choice(1, 2, 4),
    "inference.(moved_bytes|recompute_flops|.*break_even.*).tokens": choice(1, 33, 8192),
    "inference.moved_bytes.page": choice(1, 16),
    "inference.*.(flops|computing|moving)": amount(0.001, 10**15),
    "inference.mooncake_break_even.(groups|attention|dense)": choice(1, 4, 8),
    "inference.cache_link.name": choice("nvlink-4", "ethernet-25"),
    "inference.serve_(split|replicas).requests": REQUESTS,
    "inference.serve_(split|replicas).(engine|decoder)": ENGINE,
    "inference.serve_replicas.policy": choice("static", "continuous", "chunked"),
    "inference.serve_replicas.options": st.fixed_dictionaries({"budget": choice(5, 64), "page": choice(4)}),
    "inference.serve_(split|replicas).(servers|prefills|decodes)": choice(1, 2, 7),
    "inference.exponential_lengths.(prompt|output)": choice(5, 20.5),
    "inference.exponential_lengths.longest": choice(64, 300),
    "inference.exponential_lengths.count": choice(1, 7),
    "inference.memory_shares.requests": REQUESTS,
    "inference.memory_shares.places": choice(48, 64, 20),
    "inference.memory_shares.policy": choice("max", "pow2", "oracle", "paged"),
    "inference.memory_shares.longest": choice(32),
    "inference.memory_shares.page": choice(4, 8),
    "inference.serve_split.link": choice((0.0, 0.0), (0.25, 0.125)),
    "inference.serve_split.(budget|slots|page)": choice(2, 5, 64),
    "inference.serve_split.pages": choice(None, 8, 30),
    "inference.*.(x|y|together)": choice(1, 2, 8),
    "inference.*.layout": choice("1D", "2D", "gathered"),
    "inference.(decode_seconds|next_token).algorithm": choice("ring", "recursive_doubling"),
    "inference.batch_knee.most": choice(1, 100, 1024),
    "inference.batch_knee.options": st.fixed_dictionaries({"ranks": choice(1, 2), "past": choice(128, 4096)}),
    "inference.*.capacity": amount(0, 10**12),
    "inference.*.absorbed": choice(False, True),
    "inference.*.width": choice(64, 128),
    "inference.serve.requests": REQUESTS,
    "inference.serve.engine": ENGINE,
    "inference.serve.policy": choice("static", "continuous", "chunked"),
    "inference.serve.(budget|slots|page)": choice(2, 5, 64),
    "inference.serve.pages": choice(None, 8, 30),
    "inference.*.run": SERVED,
    "inference.*.served": SERVED.map(lambda run: f"{run}.served[0]"),
    "inference.*.(first|later)": choice(0.5, 2),
    "inference.(mean|percentile).values": choice([1.5, 0.5, 3], [2], [0.25, 7, 1], [4, 4], [9.5, 1e-3], []),
    "inference.percentile.share": choice(0, 0.5, 0.99, 1),
    "inference.engine.tensor_parallel": choice(1, 2, 8),
    "inference.engine.overhead": choice(0, 0.001),
    "inference.constant.seconds": choice(0.5, 2),
    "inference.*.rate": choice(0.5, 3, 12.5),
    "inference.*.variation": choice(0.5, 1, 3),
    "inference.(evenly|poisson|gamma|lengths).count": choice(1, 2, 20),
    "inference.*.(seed|low)": whole(1, 9),
    "inference.*.high": choice(9, 64),
    "inference.*.arrivals": choice([0.5, 1], [0.25, 3.5]),
    "inference.*.(prompts|outputs)": choice(3, [4, 5], [1]),
    "inference.(mean_wait|prefill|.*_prefill).seconds": choice(0.05, 0.1, 0.3),
    "inference.*.speed_up": choice(1, 1.5, 4),
    "inference.*.(acceptance|cost)": choice(0.0, 0.3, 0.8, 1),
    "inference.*.guesses": choice(0, 1, 5),
    "inference.Engine.seconds.(tokens|pairs|cached)": whole(0, 9000),
    "profiles.*.(intervals|holes)": INTERVALS,
    "profiles.shifted.recorded": recorded().map(lambda ranks: f"{ranks}[0]"),
    "profiles.*.recorded": recorded(),
    "profiles.*.hosts": choice(None),
    "profiles.hosts_of.traces": st.just("[{'host_name': 'a'}, {'host_name': 'a'}, {'host_name': 'b'}]"),
    "profiles.shifted.seconds": choice(0.5, -1.25),
    "profiles.read.trace": profiler_trace(),
    "profiles.chrome.traces": st.tuples(profiler_trace(1), profiler_trace()).map(
        lambda pair: f"[{', '.join(pair)}]"
    ),
    "profiles.packed.joined": choice(0, 100),
    "profiles.unpacked.data": recorded().map(lambda ranks: f"profiles.packed({ranks})"),
    "profiles.straggler.share": choice(0.5, 0.9),
    "profiles.example.name": choice("none", "slow rank", "fast rank"),
    "lowering.lower.(forward|input_grad|weight_grad)": choice(0.5, 1, 1.0, 2, [1, 2, 1, 3.5], [0.25, 1]),
    "lowering.consumer.result": source(
        st.tuples(st.sampled_from("FB"), st.integers(0, 9), st.integers(0, 9))
    ),
    "lowering.check.program": st.tuples(st.sampled_from(["lower", "unbatched"]), schedule()).map(
        lambda chosen: f"lowering.{chosen[0]}({chosen[1]})"
    ),
    "streams.Judge.*.number": whole(0, 3),
    "streams.Judge.*.group": choice("pp", "dp"),
    "streams.Judge.*.members": choice((0, 1, 2, 3)),
    "streams.Judge.*.parts": choice(
        [("send", 1, "3 × float32", 12, None)],
        [("recv", 0, "", 4, None)],
        [("all_reduce", None, "2", 8, None)],
    ).map(lambda parts: f"[streams.Part(*part) for part in {parts}]"),
    "transformer.llama.options": st.fixed_dictionaries(
        {"experts": choice(4, 8), "active_experts": choice(2)}
    ),
    "transformer.llama.sequence": choice(8, 8192),
}
# What a method is called on: "module.Class".
OBJECTS = {
    "simulate.Timeline": TIMELINE,
    "schedules.Schedule": schedule(),
    "collectives.Cost": st.just("collectives.ring_all_reduce(1000, 4)"),
    "collectives.Overlap": st.just("collectives.overlapped([0.5, 1.0, 2.25], [[0], [1, 2]], [0.25, 1.5])"),
    "collectives.Levels": st.just("collectives.hierarchical_all_reduce(1000, 4, 2)"),
    "inference.Engine": ENGINE,
    "inference.NextToken": choice((0.5, 0.25, 1.5, 2, 0), (1, 2, 0.5, 0, 0)).map(
        lambda parts: f"inference.NextToken(*{parts})"
    ),
    "inference.Step": st.just("inference.step(transformer.PRESETS['llama3-8b'], 1, 100, 7)"),
    "streams.Judge": choice(0, 64).map(lambda buffered: f"streams.Judge(4, {buffered})"),
    "topology.Network": st.just("topology.fat_tree(8, 2)"),
    "strategies.Call": st.just("strategies.calls('data')[0]"),
    "roofline.Operation": st.just("roofline.Operation(24, 48)"),
    "roofline.Reached": st.just("roofline.Reached(0.5, 1.0, 2.0, 100.0)"),
    "plan.Communication": st.just("plan.Communication(1.0, 0.0, 0.5, 0.25, 2.0)"),
    "plan.Parts": choice(0.0, 0.5, 3.0).map(
        lambda tensor: f"plan.Parts(3.25, 1.0, 0.0, {tensor}, 0.0, 0.0, 0.25, 2.0, 0.125, 0.0)"
    ),
}
# Bad arguments; and the parameters whose parts are read in order, about which Python itself complains.
SPOILED = ["0", "-1", "2.5", "True", "None", "'nonsense'", "float('nan')"]

NOT_SPOILED = ("self", "mesh", "levels", "sizes", "one_round", "ready", "buckets", "all_reduces", "links")
NOT_SPOILED += (
    "result",
    "program",
    "members",
    "parts",
    "loads",
    "routes",
    "dispatches",
    "dispatched",
    "queries",
    "keys",
    "requests",
    "engine",
    "run",
    "served",
    "values",
    "arrivals",
    "points",
    "weights",
    "gradients",
    "start",
    "by",
    "path",
    "alone",
)


def find(patterns, name):
    """The strategy of the first pattern that matches all of `name`."""
    return next((given for pattern, given in patterns.items() if re.fullmatch(pattern, name)), None)


def strategy(function, parameter):
    """The strategy for one parameter of the function called `function`; None if there is none."""
    if parameter.name == "self":
        return find(OBJECTS, function.rpartition(".")[0])
    given = find(HERE, f"{function}.{parameter.name}")
    if given is None:
        given = find(NAMES, parameter.name)
    if given is None and isinstance(parameter.default, bool):
        return choice(False, True)
    return given


def missing(function, signature):
    """The parameters without a strategy."""
    parameters = signature.parameters.values()
    return [each.name for each in parameters if strategy(function, each) is None]


@st.composite
def call(draw, function, signature):
    """The source of a call: defaults are often left out, one call in eight has a bad one."""
    positional, named, owner = [], [], None
    parameters = list(signature.parameters.values())
    scalars = [each for each in parameters if each.name not in NOT_SPOILED]
    spoiled = draw(st.sampled_from(scalars)) if scalars and draw(st.integers(0, 7)) == 0 else None
    for parameter in parameters:
        if parameter.default is not parameter.empty and parameter is not spoiled and draw(st.booleans()):
            continue
        value = draw(strategy(function, parameter))
        if parameter.name == "self":
            owner = value
        elif parameter.kind is parameter.VAR_POSITIONAL:
            positional += value
        elif parameter.kind is parameter.VAR_KEYWORD:
            named += [f"{name}={each}" for name, each in value.items()]
        else:
            value = draw(st.sampled_from(SPOILED)) if parameter is spoiled else value
            simple = parameter.default is parameter.empty and parameter.kind is not parameter.KEYWORD_ONLY
            positional.append(value) if simple else named.append(f"{parameter.name}={value}")
    name = f"{owner}.{function.rpartition('.')[2]}" if owner else function
    return f"{name}({', '.join(positional + named)})"
