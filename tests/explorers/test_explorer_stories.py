"""Each step of a story shows what its sentence says: held against the arithmetic, never against words."""

import pytest

from allranks import attention, collectives, explorers, memory
from allranks.experts import dispatch, empty_slots, expert_capacity, lost_tokens, route_ranks
from allranks.explorers.frame import controls
from allranks.explorers.stories import STORIES, frames
from allranks.hardware import ACCELERATORS
from allranks.memory.phases import zero_phases
from allranks.memory.training import training_bytes
from allranks.schedules import SCHEDULES
from allranks.simulate import simulate
from allranks.transformer import PRESETS


def state(name, title):
    """The settings of the step `title`, complete."""
    step = next(step for step in STORIES[name] if step.title == title)
    return controls.settings(explorers.explorer(name).CONTROLS, step.settings)


# ---- the frame ----


@pytest.mark.parametrize("name", explorers.NAMES)
def test_a_figure_asks_a_question_and_shows_at_most_three_controls(name):
    frame = frames.frame(name)
    assert frame.question.endswith("?") and len(frame.question) <= 80
    made = {control.name for control in explorers.explorer(name).CONTROLS}
    assert 1 <= len(frame.primary) <= 3 and set(frame.primary) <= made


@pytest.mark.parametrize("name", STORIES)
def test_a_story_has_four_to_six_different_states_that_can_be_drawn(name):
    steps = STORIES[name]
    assert 4 <= len(steps) <= 6
    states = [state(name, step.title) for step in steps]
    assert all(states.count(each) == 1 for each in states)
    for step, settings in zip(steps, states):
        shown = explorers.draw(name, settings)
        assert settings[_played(name)] < shown["steps"] if _played(name) else True
        assert step.words.endswith((".", "?")) and len(step.title) <= 18 and len(step.words.split()) <= 25
        value, what = shown["result"]
        assert value and what and shown["insight"].endswith(".")


def _played(name):
    made = explorers.explorer(name).CONTROLS
    return next((control.name for control in made if isinstance(control, controls.Steps)), None)


def test_the_python_of_a_page_carries_no_stories():
    from allranks_book.explorers import python_files

    assert not [path for path in python_files("pipeline") if "stories" in path or "frames" in path]


# ---- pipeline ----


def timelines(title):
    """The step's schedules on the clock: its own, and the one beside it."""
    given = state("pipeline", title)
    times = {name: given[name] for name in ("forward", "input_grad", "weight_grad", "transfer")}
    found = []
    for name in filter(None, (given["schedule"], given["beside"])):
        more = {"interleaved": [given["chunks"]], "zero_bubble": [given["memory_limit"]]}.get(name, [])
        words = times if name == "zero_bubble" else {}
        found.append(
            simulate(SCHEDULES[name](given["stages"], given["microbatches"], *more, **words), **times)
        )
    return found


def test_pipeline():
    (one,) = timelines("One micro-batch")
    assert one.bubble_of_total == 1 - 1 / 4
    (more,) = timelines("More micro-batches")
    assert more.makespan - more.ideal == one.makespan - one.ideal
    ours, gpipe = timelines("The surprise")
    assert ours.makespan == gpipe.makespan
    assert max(ours.peak_activations) < max(gpipe.peak_activations)
    interleaved, plain = timelines("Shorter stages")
    assert interleaved.makespan - interleaved.ideal == (plain.makespan - plain.ideal) / 2
    assert max(interleaved.peak_activations) > max(plain.peak_activations)
    searched, plain = timelines("The limit")
    assert searched.makespan > plain.makespan
    assert max(searched.peak_activations) < 4
    (turn,) = timelines("Your turn")
    assert turn.bubble_of_total > 0.1
    assert simulate(SCHEDULES["one_f_one_b"](8, 64)).bubble_of_total < 0.1


# ---- all-reduce ----


def test_all_reduce():
    half = state("all_reduce", "Halfway")
    held = collectives.contributions("ring", half["world_size"], half["step"])
    assert [sum(len(chunk) == half["world_size"] for chunk in row) for row in held] == [1] * 4
    sent = [collectives.cost("all_reduce", "ring", 1, p).nbytes for p in (4, 16)]
    assert sent[1] / sent[0] == pytest.approx(1.25)
    small = state("all_reduce", "The limit")
    α, β = small["latency"] / 1e6, 1 / small["bandwidth"]
    rounds = collectives.cost("all_reduce", "ring", small["nbytes"], 16).rounds
    assert rounds * α > 0.99 * collectives.seconds("all_reduce", "ring", small["nbytes"], 16, α, β)
    assert rounds > collectives.cost("all_reduce", small["beside"], small["nbytes"], 16).rounds
    levels = collectives.hierarchical_all_reduce(1, 4, 4)
    assert levels.inter.nbytes < collectives.cost("all_reduce", "ring", 1, 16).nbytes


# ---- ZeRO ----


def phases(title):
    given = state("zero", title)
    made = zero_phases(
        given["parameters"], given["ranks"], given["stage"], given["dtypes"], units=given["layers"]
    )
    return made, made[given["phase"]]


def test_zero():
    sent = {}
    for title in ("Full copies", "Stage 1", "The surprise", "Stage 3"):
        made, now = phases(title)
        sent[title] = sum(each.sent for each in made)
        fewer = now.optimizer * 4 == phases("Full copies")[1].optimizer
        assert fewer == (title != "Full copies")
    assert sent["Full copies"] == sent["Stage 1"] == sent["The surprise"]
    assert sent["Stage 3"] == pytest.approx(1.5 * sent["Full copies"])
    assert phases("Stage 1")[1].name == "update" and phases("Stage 3")[1].name == "gather"
    _, now = phases("The limit")
    assert now.whole_weights + now.whole_gradients > now.device / 2
    largest = max(each.memory for each in ACCELERATORS.values())
    given = state("zero", "Your turn")
    shape = given["parameters"], given["ranks"]
    assert max(each.device for each in zero_phases(*shape, 1, units=32)) > largest
    assert max(each.device for each in zero_phases(given["parameters"], 64, 3, units=32)) < largest


# ---- memory ----


def trained(title, **changed):
    """What the step's training holds by the papers, and whether it fits."""
    given = {**state("memory", title), **changed}
    shape = PRESETS[given["model"]]
    if given["sequence"]:
        shape = shape._replace(sequence=given["sequence"])
    held = training_bytes(
        shape, data_parallel=given["data"], context_parallel=given["context"], zero_stage=given["stage"],
        sequence_parallel=False, recomputation=given["recomputation"], dropout=not shape.gated,
        fused=given["tiles"], microbatch=given["microbatch"], tensor_parallel=given["tensor"],
        pipeline_parallel=given["pipeline"],
    )  # fmt: skip
    parts = (held.weights, held.gradients, held.optimizer, held.activations, held.recomputed, held.buffers)
    return held, sum(parts) <= ACCELERATORS[given["device"]].memory


def test_memory():
    device = ACCELERATORS[state("memory", "One device")["device"]].memory
    one, fits = trained("One device")
    assert one.weights + one.gradients + one.optimizer > device and not fits
    sharded, fits = trained("Shard the states")
    assert fits and sharded.optimizer * 8 == pytest.approx(one.optimizer)
    assert sharded.activations > max(sharded.weights, sharded.gradients, sharded.optimizer)
    scores, fits = trained("The surprise")
    assert not fits and scores.activations > 2 * sharded.activations
    again, fits = trained("Recompute")
    assert fits and again.activations + again.recomputed < again.weights
    long, fits = trained("The limit")
    assert not fits and long.activations > device
    assert trained("The limit", context=8)[1]
    assert not trained("Your turn")[1]
    assert trained("Your turn", data=64, stage=3, recomputation="full")[1]
    assert memory.zero_bytes(1, 1, 0) == 16


# ---- experts ----


def routed(title, **changed):
    given = {**state("experts", title), **changed}
    routes = route_ranks(*(given[each] for each in ("ranks", "tokens", "experts", "top_k", "skew", "seed")))
    capacity = expert_capacity(given["tokens"], given["experts"], given["top_k"], given["factor"])
    made = [dispatch(each, given["experts"], capacity) for each in routes]
    choices = given["ranks"] * given["tokens"] * given["top_k"]
    drops = sum(sum(each.wanted) - sum(each.taken) for each in made) / choices
    return drops, empty_slots(made, capacity), sum(map(lost_tokens, made))


def test_experts():
    assert routed("No favourites")[0] > 0
    drops, empty, _ = routed("The surprise")
    assert drops == pytest.approx(empty) and drops > 0
    assert routed("Favourites")[2] > 0
    drops, empty, _ = routed("The limit")
    assert drops == 0 and empty > 1 / 2
    assert routed("Your turn")[2] > 0 and routed("Your turn", factor=4)[2] == 0


# ---- context parallelism ----


def hops(title):
    given = state("context_parallel", title)
    setting = given["sequence"], given["context_parallel"], given["split"], given["causal"]
    return attention.ring_pairs(*setting), attention.ring_efficiency(*setting), given


def test_context_parallel():
    made, _, _ = hops("Contiguous")
    work = [sum(hop[rank] for hop in made) for rank in range(4)]
    assert work == sorted(work) and work[-1] == max(work) > work[-2]
    made, _, given = hops("One hop")
    hop = given["step"] - 1
    assert [pairs == 0 for pairs in made[hop]] == [(rank - hop) % 4 > rank for rank in range(4)]
    assert any(pairs == 0 for pairs in made[hop])
    made, efficiency, _ = hops("The surprise")
    assert all(len(set(hop)) == 1 for hop in made) and efficiency == 1
    made, efficiency, _ = hops("No mask")
    assert len({pairs for hop in made for pairs in hop}) == 1
    found = [attention.ring_efficiency(2**17, p, "contiguous", True) for p in (2, 4, 8, 16, 64)]
    assert found == sorted(found, reverse=True) and 0.5 < found[-1] < 0.51
    assert hops("The limit")[1] == found[2]


# ---- what is said of any state ----


def test_waiting_that_more_micro_batches_do_not_change():
    for microbatches in (1, 8, 32):
        timeline = simulate(SCHEDULES["one_f_one_b"](4, microbatches))
        assert timeline.makespan - timeline.ideal == 3 * (1 + 1 + 1)
    assert "a smaller share" in explorers.draw("pipeline", {"beside": ""})["insight"]
    slow = explorers.draw("pipeline", {"beside": "", "transfer": 0.5})["insight"]
    assert "share" not in slow


@pytest.mark.parametrize("nbytes, reason", [(1000, "fewer rounds"), (4 * 10**8, "fewer bytes")])
def test_why_one_all_reduce_is_faster(nbytes, reason):
    assert explorers.draw("all_reduce", {"nbytes": nbytes})["insight"].endswith(f"{reason}.")


def test_one_of_a_thing_is_said_in_the_singular():
    words = explorers.draw("pipeline", {"beside": "", "stages": 1, "microbatches": 1})["text"]
    assert words.startswith("1F1B on 1 rank with 1 micro-batch takes 3 units of time")
