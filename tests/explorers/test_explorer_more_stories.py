"""The steps of the other ten stories, held against the arithmetic as in test_explorer_stories.py."""

import pytest
from test_explorer_stories import state

from allranks import failures, inference, profiles, strategies
from allranks.collectives import bucketed_backward
from allranks.compression import METHODS, cost, elements_of, power_sgd_elements
from allranks.compression import seconds as compressed_seconds
from allranks.explorers import compression, decode, goodput, layout, roofline, serving
from allranks.hardware import LINKS
from allranks.local_updates import table_utilization
from allranks.memory import ddp_buckets
from allranks.precision import lost, number_format, spacing
from allranks.roofline import reached
from allranks.topology.experts import place_experts
from allranks.topology.placement import Level, place
from allranks.topology.tensor import tensor_calls, tensor_matrices
from allranks.transformer import PRESETS

# ---- tensor parallelism ----


def layer(title, **changed):
    given = {**state("tensor_parallel", title), **changed}
    asked = given["kind"], PRESETS[given["model"]], given["ranks"], given["microbatch"]
    return tensor_matrices(*asked, given["sequence_parallel"]), tensor_calls(
        *asked, given["sequence_parallel"]
    )


def test_tensor_parallel():
    matrices, calls = layer("By columns")
    assert [each.split for each in matrices] == ["none", "none", "columns", "columns", "none"]
    matrices, calls = layer("By rows")
    assert [each.split for each in matrices] == ["none", "columns", "rows", "partial", "none"]
    assert [call.operator for call in calls if call.phase == "forward" and call.sent] == ["g"]
    for title in ("The surprise", "By heads"):
        matrices, calls = layer(title)
        assert [each.split for each in matrices if each.name in "AYB"] == ["columns", "columns", "rows"]
        assert len([call for call in calls if call.sent]) == 2
    matrices, calls = layer("No copies")
    assert (matrices[0].split, matrices[-1].split) == ("rows", "rows")
    assert [call.operator for call in calls if call.collective == "all_gather"] == ["f", "g", "f"]
    sent = [sum(call.sent for call in layer("Your turn", sequence_parallel=on)[1]) for on in (False, True)]
    assert sent[1] > sent[0]


# ---- mesh ----


def step_of(title, **changed):
    """Each axis of the step's mesh as `Axis`, by name."""
    given = {**state("mesh", title), **changed}
    sizes = [(name, given[name]) for name in given["order"].split()]
    nodes = -(-given["tp"] * given["cp"] * given["pp"] * given["dp"] // 8)
    inside, between = [LINKS[name] for name in given["links"].split()]
    levels = (
        Level("node", 8, inside.α, inside.bandwidth, 1),
        Level("network", 8 * nodes, between.α, between.bandwidth, 1),
    )
    shape = PRESETS[given["model"]]
    found = {each.axis: each for each in place(sizes, levels, shape, given["microbatches"])}
    if shape.experts > 1:
        found["ep"] = place_experts(sizes, levels, shape, given["ep"], given["microbatches"])[0]
    return found


def across(axis):
    """(groups inside a node, groups across nodes)"""
    return tuple(count for _, count in axis.groups)


def whole(found):
    return sum(each.seconds for each in found.values())


def test_mesh():
    first = step_of("Tensor groups")
    assert across(first["tp"])[1] == 0 and across(first["dp"])[0] == 0
    surprise = step_of("The surprise")
    assert across(surprise["tp"])[0] == 0 and whole(surprise) > 4 * whole(first)
    limit = step_of("The limit")
    assert across(limit["tp"])[1] == 0
    assert all(across(limit[axis])[0] == 0 for axis in ("cp", "pp", "dp"))
    experts = step_of("Experts")
    assert across(experts["ep"])[0] == 0
    assert experts["ep"].seconds == max(each.seconds for each in experts.values())
    assert whole(step_of("Your turn")) > 1 > whole(step_of("Your turn", order="tp cp pp dp"))


# ---- buckets ----


def overlap(title, **changed):
    given = {**state("buckets", title), **changed}
    sizes, cap = [given["gradient"]] * given["layers"], given["bucket"]
    made = ddp_buckets(sizes, 2**20 if given["small_first"] else cap, cap)
    links = given["world_size"], given["latency"] / 1e6, 1 / given["bandwidth"], given["algorithm"]
    return bucketed_backward(sizes, given["backward"] / 1000, made, *links)


SIZES = [1, *(mib * 2**20 for mib in (1, 2, 5, 10, 25, 50, 100, 200, 400)), 2**50]


def exposed(title, **changed):
    return [overlap(title, bucket=size, **changed).exposed for size in SIZES]


def test_buckets():
    one, each, between = overlap("All in one"), overlap("One per gradient"), overlap("In between")
    assert one.hidden == pytest.approx(0) and len(one.starts) == 1
    assert each.hidden > one.hidden and each.communication > one.communication
    assert len(each.starts) == state("buckets", "One per gradient")["layers"]
    assert between.exposed == min(exposed("In between"))
    surprise = exposed("The surprise")
    assert overlap("The surprise").exposed > 2 * min(surprise)
    assert SIZES[surprise.index(min(surprise))] > state("buckets", "The surprise")["bucket"]
    limit = overlap("The limit")
    assert limit.exposed > 0.8 * limit.end and min(exposed("The limit")) > 0.9 * limit.exposed
    rest = sum(start - end for start, end in zip(limit.starts[1:], limit.ends))
    assert rest < 0.02 * limit.end
    turn = [exposed("Your turn", latency=latency) for latency in (50, 200)]
    best = [row.index(min(row)) for row in turn]
    assert state("buckets", "Your turn")["bucket"] != SIZES[best[0]] and best[1] > best[0]


# ---- precision ----


def loses(title, **changed):
    """(as they are, scaled) of the step's gradients."""
    given = {**state("precision", title), **changed}
    asked = given["dtype"], given["middle"], given["spread"]
    return lost(*asked), lost(*asked, 2.0 ** given["scale"])


def test_precision():
    plain, _ = loses("Enough range")
    assert max(plain) < 1e-9
    plain, _ = loses("Half the bits")
    assert plain.zero + plain.subnormal > 0.5 and plain.zero > 0.01
    plain, scaled = loses("Loss scaling")
    assert sum(scaled) < 0.1 * sum(plain)
    _, scaled = loses("The limit")
    assert scaled.overflow == pytest.approx(0.5, abs=0.01)
    plain, _ = loses("The surprise")
    assert max(plain) < 1e-9
    bf16, fp16, fp32 = map(number_format, ("bf16", "fp16", "fp32"))
    assert bf16.exponent_bits == fp32.exponent_bits
    assert bf16.exponent_bits + bf16.mantissa_bits == fp16.exponent_bits + fp16.mantissa_bits
    assert spacing("bf16", 1.0) > spacing("fp16", 1.0)
    kept = {
        dtype: max(1 - sum(loses("Your turn", scale=scale, dtype=dtype)[1]) for scale in range(25))
        for dtype in ("fp8_e4m3", "fp8_e5m2")
    }
    assert kept["fp8_e5m2"] > kept["fp8_e4m3"] > 0.9 > 1 - sum(loses("Your turn")[0])


# ---- decode ----


def token(title, **changed):
    return decode.compute({**state("decode", title), **changed})


def test_decode():
    one, many = token("One sequence"), token("Shared weights")
    assert one.weights > one.seconds / 2 and one.arithmetic < 0.01 * one.seconds
    assert many.seconds < 1.5 * one.seconds
    assert token("Long contexts").bound == "cache"
    assert token("The surprise").seconds > one.seconds and token("The surprise").weights < one.weights
    assert token("The limit").bound == "arithmetic"
    given = state("decode", "The limit")
    assert decode.held(given) <= decode.capacity(given)
    given = state("decode", "Your turn")
    assert decode.held(given) > decode.capacity(given)
    given["ranks"] = 16
    assert decode.held(given) <= decode.capacity(given)
    assert (
        token("Your turn", ranks=64, algorithm="recursive_doubling").seconds
        < decode.compute(given).seconds / 2
    )


# ---- serving ----


def served(title, **changed):
    given = {**state("serving", title), **changed}
    count, seed = serving.COUNT, given["seed"]
    listed = inference.requests(
        inference.poisson(given["load"], count, seed),
        inference.lengths(*serving.PROMPT, count, seed),
        inference.lengths(*serving.OUTPUT, count, seed),
    )
    server = inference.engine(PRESETS[serving.MODEL], serving.DEVICE, efficiency=serving.EFFICIENCY)
    return inference.serve(listed, server, given["policy"], given["budget"], pages=given["pages"], page=16)


def test_serving():
    idle = served("Light load")
    waits = [each.phases[1][1] - each.phases[0][1] for each in idle.served]
    assert sum(wait < 1e-3 for wait in waits) > len(waits) / 2
    closed, joined, chunks = (
        serving.latencies(served(title)) for title in ("Static batches", "Continuous", "The surprise")
    )
    assert joined[0] < closed[0] / 2
    assert chunks[3] < joined[3] / 5 and joined[0] < chunks[0] < 1.3 * joined[0]
    few = served("The limit")
    assert sum(map(inference.preemptions, few.served)) == 1
    assert inference.percentile([inference.ttft(each) for each in few.served], 0.5) > 5 * joined[0]
    small, better = (serving.latencies(served("Your turn", budget=each)) for each in (128, 256))
    assert better[0] < small[0] / 4 and better[3] < 0.01


# ---- goodput ----


def share(title, **changed):
    return goodput.parts_at({**state("goodput", title), **changed})


def test_goodput():
    assert share("One node").trains > 0.99
    often, seldom, best = share("Too often"), share("Too seldom"), share("The best")
    assert often.repeats < 0.01 and often.writes == pytest.approx(1 / 3, abs=0.03)
    mean = goodput.mean_of(state("goodput", "Too seldom"))
    assert mean < 14_400 and seldom.repeats == pytest.approx(0.5, abs=0.02)
    assert best.writes == pytest.approx(best.repeats, rel=0.1)
    at = failures.best(30, mean)
    around = [share("The best", save="own", interval=at * times).trains for times in (0.5, 2)]
    assert all(best.trains - each < 0.03 for each in around)
    limit = share("The limit")
    assert limit.trains == pytest.approx(2 / 3, abs=0.03)
    assert limit.restarts == max(limit[1:])
    turn = share("Your turn")
    assert turn.writes < 0.05 and turn.trains < 0.9 < share("Your turn", restart=15, detect=10).trains


# ---- compression ----


def ways(title, **changed):
    """(seconds by part, bytes) of each method."""
    given = {**state("compression", title), **changed}
    layers, hidden = compression.MODELS[given["model"]]
    shapes = [(3 * hidden, hidden), (hidden, hidden), (4 * hidden, hidden), (hidden, 4 * hidden)] * layers
    elements = sum(map(elements_of, shapes))
    options = {
        "density": given["density"] / 10_000,
        "factors": power_sgd_elements(shapes, given["rank"]),
        "value_bytes": given["bits"] // 8,
    }
    network = given["latency"] / 1e6, given["link"] * compression.MEGABIT, given["rate"] * 10**9
    return {
        each: (
            compressed_seconds(each, elements, given["ranks"], *network, **options),
            cost(each, elements, given["ranks"], **options).nbytes,
        )
        for each in METHODS
    }


def fastest(made):
    return min(made, key=lambda each: sum(made[each][0]))


def test_compression():
    slow = ways("A slow link")
    assert slow["dense"][0][2] > 0.99 * sum(slow["dense"][0])
    assert all(sum(slow[each][0]) < sum(slow["dense"][0]) / 5 for each in METHODS[1:])
    fast = ways("A fast link")
    assert fastest(fast) == "dense"
    assert all(fast[each][0][0] > sum(fast["dense"][0]) / 2 for each in METHODS[1:])
    surprise = ways("The surprise")
    assert state("compression", "The surprise")["density"] == 10
    assert surprise["top_k"][1] > surprise["dense"][1]
    again = ways("Sums again")
    assert sum(again["power_sgd"][0]) < sum(again["dense"][0]) / 5
    assert fastest(ways("Your turn")) == "dense"
    assert fastest(ways("Your turn", link=1000)) != "dense" != fastest(ways("Your turn", rate=100))


# ---- local updates ----


def computing(title, **changed):
    given = {**state("local_updates", title), **changed}
    way = {key: given[key] for key in ("every", "delay", "bits")}
    return table_utilization(given["model"], given["link"] / 1000, size=given["size"] or None, **way)


def test_local_updates():
    assert computing("Every step") < 0.05
    assert computing("Seldom") > 0.5
    assert 0 < computing("In fragments") - computing("Seldom") < 0.1
    assert computing("The surprise") > 0.99
    assert computing("The limit") < 0.5 < 0.99 < computing("The limit", link=2000)
    assert computing("Your turn") < 0.5 and computing("Your turn", delay=5, bits=4) > 0.9


# ---- traces ----


def test_traces():
    made = {
        title: profiles.example(state("traces", title)["trace"])
        for title in ("Healthy", "A straggler", "The surprise", "No overlap", "Small messages", "Your turn")
    }
    shares = {title: profiles.shares(recorded) for title, recorded in made.items()}
    late = {title: profiles.straggler(recorded) for title, recorded in made.items()}
    assert late["Healthy"] is None and max(each.waiting / each.whole for each in shares["Healthy"]) < 0.11
    waits = [each.waiting / each.whole for each in shares["A straggler"]]
    assert late["A straggler"] == waits.index(min(waits)) and min(waits) < 0.01
    assert sorted(waits)[1] > 0.3
    assert max(each.waiting / each.whole for each in shares["The surprise"]) < 0.11
    assert min(each.other / each.whole for each in shares["The surprise"]) > 0.6
    assert all(each.exposed == pytest.approx(each.communicating) for each in shares["No overlap"])
    assert len(made["Small messages"][0].collectives) > 5 * len(made["Healthy"][0].collectives)
    assert late["Your turn"] is None
    assert sum(each.waiting > 0.2 * each.whole for each in shares["Your turn"]) == 2


# ---- layout ----


def priced(title, **changed):
    return layout.priced({**state("layout", title), **changed})


def test_layout():
    tensor = priced("Tensor groups")
    assert tensor.layout.tp == 8 and tensor.memory.optimizer > tensor.capacity and not tensor.fits
    stages = priced("Stages too")
    assert stages.fits and stages.parts.bubble > 0 and stages.layout.pp == 8
    far = priced("The surprise")
    assert far.layout.tp * far.layout.pp == stages.layout.tp * stages.layout.pp
    assert far.seconds > 2 * stages.seconds and far.parts.limit == "tensor"
    long = priced("The other way")
    assert long.communication.tensor < stages.communication.tensor / 2
    assert long.parts.bubble > 4 * stages.parts.bubble
    assert long.parts.imbalance > 4 * stages.parts.imbalance
    today = priced("Today")
    assert today.fits and today.seconds < stages.seconds
    assert today.memory.optimizer < stages.memory.optimizer / 8
    assert 0 < today.parts.exposed < today.communication.seconds
    assert today.parts.recomputation < stages.parts.recomputation / 8
    given = state("layout", "Your turn")
    assert not layout.priced(given).fits
    while found := layout.better(layout.priced(given), layout.moves(given)):
        name, value, _, _ = found[0]
        given = {**given, name: value}
    last = layout.priced(given)
    assert last.fits
    other = priced("Your turn", pipeline=4, chunks=4, recomputation="full")
    assert other.fits and other.seconds < last.seconds


# ---- roofline ----


def under_the_roof(title, **changed):
    given = {**state("roofline", title), **changed}
    sizes = [given[name] for name in ("model", "inner", "columns", "past")]
    one = roofline.counted(given["operation"], given["tokens"], roofline.DTYPES[given["dtype"]], *sizes)
    return reached(one, given["device"], given["dtype"])


def test_roofline():
    large, single = under_the_roof("A large product"), under_the_roof("One token")
    assert large.share == 1 and single.share < 0.01
    added = under_the_roof("The surprise")
    assert added.share < single.share
    assert added.share == pytest.approx(under_the_roof("The surprise", tokens=1).share)
    half, whole = under_the_roof("Half the bits"), under_the_roof("Half the bits", dtype="bf16")
    assert half.share == pytest.approx(whole.share, rel=1e-3) and half.share < 1
    assert half.seconds == pytest.approx(whole.seconds / 2)
    limit = under_the_roof("The limit")
    assert limit.share < 0.1 and limit.memory * 3.35e12 < 80e9
    assert under_the_roof("The limit", tokens=8192).share < 0.1
    assert under_the_roof("The limit", tokens=8192, past=128).share > 0.5
    assert under_the_roof("Your turn").share < 1


# ---- strategies ----


def test_strategies():
    shown = {title: state("strategies", title) for title in ("Data", "Sharded states", "Tensor", "Pipeline")}
    shown |= {title: state("strategies", title) for title in ("Sequence", "Experts")}
    assert [given["strategy"] for given in shown.values()] == list(strategies.STRATEGIES)
    made = {title: strategies.calls(given["strategy"]) for title, given in shown.items()}
    holds = {title: strategies.holds(given["strategy"], 1) for title, given in shown.items()}
    assert len(made["Data"]) == 1 and holds["Data"] == ((1,), ((0, 1, 2, 3),) * 4)
    for title in ("Sharded states", "Tensor", "Sequence"):
        assert holds[title][1] == ((1,),) * 4
    gathered = [call.phase for call in made["Sharded states"] if call.operation == "all_gather"]
    assert gathered == ["forward"] * 4 + ["backward"] * 4
    assert holds["Tensor"][0] == (0, 1, 2, 3)
    assert {call.carries for call in made["Tensor"]} == {"activations"}
    assert len(made["Pipeline"][0].pairs) == 1
    assert all(abs(a - b) == 1 for call in made["Pipeline"] for a, b in call.pairs)
    assert holds["Sequence"][0] == (1,)
    assert [call.operation for call in made["Sequence"][:2]] == ["all_gather", "reduce_scatter"]
    assert [call.operation for call in made["Experts"]] == ["all_to_all"] * 4
