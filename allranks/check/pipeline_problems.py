"""The ten mixed problems on tensor and pipeline parallelism."""

import math

from allranks import claims, collectives, memory, schedules, simulate, topology, transformer
from allranks.check import exercise
from allranks.check.answers import all_of, chosen, near
from allranks.check.layouts import GPT3, MICROBATCHES, layout_bytes, layout_seconds

SMALL, HUGE = transformer.PRESETS["llama3-8b"], transformer.PRESETS["llama3-405b"]
ROOM = 72  # GB on each GPU of the plan
ORDERS = {"A": ("gpipe", 1), "B": ("one_f_one_b", 1), "C": ("interleaved", 2), "D": ("interleaved", 4)}
ORDERS.update({"E": ("zb_h1", 1), "F": ("zb_h2", 1)})
FREE, KEPT = 30, 3  # GB for activations on each rank, and what a micro-batch keeps there


@exercise
def plan(answer):
    """(tp, pp, GB on the fullest GPU, seconds of a step) for GPT-3 on 64 GPUs."""
    tp, pp, gigabytes, seconds = all_of(answer, 4, "tp, pp, GB, seconds")
    assert tp in (2, 4, 8, 16, 32) and tp * pp == 64, (
        "tp should be 2, 4, 8, 16 or 32, and tp times pp should be 64."
    )

    def waiting(pp):
        return 1 + schedules.bubble_of_ideal("one_f_one_b", pp, MICROBATCHES)

    def step(tp, pp):
        return waiting(pp) * sum(layout_seconds(tp, pp))

    held = layout_bytes(tp, pp)
    computing, sending = layout_seconds(tp, pp)
    assert held.total <= ROOM * 1e9, (
        f"The first stage's GPUs hold {held.total / 1e9:.0f} GB: the first of {pp} stages keeps {pp} "
        f"micro-batches, and each is divided by only {tp}."
    )
    assert tp <= 8, (
        f"It fits, but tp = {tp} leaves the node: its ranks send for {sending:.0f} s and compute for "
        f"{computing:.1f} s."
    )
    right = step(tp, pp)
    assert right <= step(8, 8), (
        f"It fits, but {pp} stages wait for longer than 8, and a step takes {right:.2f} s."
    )
    one = held.activations / pp
    near(
        gigabytes,
        held.total / 1e9,
        {
            held.states / 1e9: "Those are the states; the first stage also keeps eight micro-batches.",
            (held.states + one) / 1e9: (
                "That is for one micro-batch; the first of eight stages keeps eight."
            ),
            (held.states + MICROBATCHES * one) / 1e9: "Under 1F1B a stage never keeps all 64.",
        },
    )
    near(
        seconds,
        right,
        {
            computing + sending: "That leaves out the bubble: stages wait at both ends of a step.",
            computing * waiting(pp): (
                "That leaves out tp, which sends in every layer while nothing is computed."
            ),
            computing: "That is computing alone; add the sending and the bubble.",
            (computing / 2 + sending) * waiting(pp): "That is at the GPUs' peak; they reach half of it.",
        },
    )
    return f"tp 8 inside the nodes, pp 8 across them: {held.total / 1e9:.1f} GB and {right:.2f} s a step."


@exercise
def first_loss(answer):
    """Why the first loss is 8.76 with tp = 8, and 10.84 with tp = 1."""
    assert [round(math.log(51200 / ranks), 2) for ranks in (1, 8)] == [10.84, 8.76]
    chosen(
        answer,
        "B",
        {
            "A": "The logits are nearly equal, and so is the largest on each rank.",
            "C": "An untrained model gives a wrong target the same probability: ln 51,200.",
            "D": "The logits are near 0, so a missing one changes the loss little: ln 51,200.",
            "E": "Padding is 943 of the 51,200 entries: it changes the loss by 0.02.",
        },
    )
    return "ln 6,400 = 8.76: each rank divides by the sum over its own eighth of the vocabulary."


@exercise
def sequences(answer):
    """How many times as long a sequence fits when sequence parallelism is added, the cores recomputed."""

    def kept(sequence_parallel, recomputation="selective"):
        return memory.layer_activation_bytes(GPT3, 1, 8, sequence_parallel, recomputation)

    right = kept(False) / kept(True)
    near(
        answer,
        right,
        {
            8: "tp divides 24 of the 34 bytes already. Only the other ten change.",
            kept(False, "none") / kept(True, "none"): (
                "The cores are recomputed, so the scores are not kept."
            ),
            kept(False, "none") / kept(True): "The cores are recomputed in both cases.",
            3.4: "Without sequence parallelism it is 10 + 24/t, and not 10.",
            34 / 24: "Of the 34 bytes, 24 are divided by t before, and all of them after.",
            1 / right: "That is the inverse: turn the fraction around.",
        },
    )
    return f"{right:.2f} times: the bytes fall from (10 + 24/8)·sbh to (34/8)·sbh."


def mesh_bytes(rows, columns, tokens=64 * 2048):
    """Bytes that a rank sends for a layer of GPT-3: its gradients, and its activations."""
    weights = 2 * transformer.layer_parameters(GPT3) / columns
    activations = 2 * tokens / rows * GPT3.hidden
    return (
        collectives.ring_all_reduce_bytes(weights, rows),
        4 * collectives.ring_all_reduce_bytes(activations, columns),
    )


@exercise
def mesh(answer):
    """(ways to cut the layer, MB that a rank sends for it) for a layer of GPT-3 on 64 ranks."""
    columns, megabytes = all_of(answer, 2, "ways to cut the layer, MB")
    assert columns in (1, 2, 4, 8, 16, 32, 64), "The layer should be cut in 1, 2, 4, 8, 16, 32 or 64 ways."
    gradients, activations = mesh_bytes(64 // columns, columns)
    more = "gradients" if gradients > activations else "activations"
    assert columns == 4, (
        f"With {columns} ways, a rank sends {(gradients + activations) / 1e6:.0f} MB, most of it {more}."
    )
    near(
        megabytes,
        (gradients + activations) / 1e6,
        {
            gradients / 1e6: "Those are the gradients; the parts of the layer also sum activations.",
            activations / 1e6: "Those are the activations; the parts of the batch also sum gradients.",
            (gradients + 16 * activations) / 1e6: "Only a sixteenth of the tokens is in a group of four.",
            (4 * gradients + activations) / 1e6: "A rank has a quarter of the layer's gradients.",
            (gradients + activations / 2) / 1e6: "There are two all-reduces forward and two backward.",
            (gradients + activations) / 2e6: "An element has two bytes, and a ring passes it on twice.",
        },
    )
    return f"Four ways: {gradients / 1e6:.0f} MB of gradients and {activations / 1e6:.0f} MB of activations."


def cut_seconds(cut, microbatches=32):
    """The seconds of a 1F1B step of Llama 3 8B, cut into stages of so many layers, at one FLOP a second."""
    forward = [layers * transformer.layer_flops(SMALL) for layers in cut]
    forward[-1] += transformer.logits_flops(SMALL)
    order = schedules.one_f_one_b(len(cut), microbatches)
    return simulate.simulate(order, forward, forward, forward).makespan


@exercise
def last_stage(answer):
    """By how many per cent 8, 8, 8 and 8 layers take longer than the best cut of Llama 3 8B."""
    even, best = (cut_seconds(cut) for cut in ((8, 8, 8, 8), (9, 9, 7, 7)))
    more = transformer.logits_flops(SMALL) / (8 * transformer.layer_flops(SMALL))
    right = 100 * (even / best - 1)
    near(
        answer,
        right,
        {
            100 * more: "That is how much more the last stage computes than the others.",
            100 * (1 - best / even): "That is in per cent of the longer step; take the shorter one.",
            0: "The output layer of 128,256 entries computes as much as 1.8 layers.",
        },
    )
    return f"{right:.1f} %: 9, 9, 7 and 7 layers make room for the output layer, as some other cuts do."


@exercise
def two_copies(answer):
    """Why a pipeline with a shared embedding leaves the losses of one process after a step."""
    chosen(
        answer,
        "D",
        {
            "A": "Then the other model would differ as well.",
            "B": "The other model would apply them late as well.",
            "C": "A different mask would change the first loss, with either model.",
            "E": "That would change the first loss.",
        },
    )
    return "The first and the last stage hold a copy each, and each copy gets one part of the gradient."


@exercise
def order(answer):
    """(letter, GB, ms of idling) of the order that fits 30 GB and idles least, on eight ranks."""
    letter, gigabytes, idle = all_of(answer, 3, "a letter, GB, ms")
    letter = str(letter).strip().upper()
    assert letter in ORDERS, f"Start with one of the letters {', '.join(ORDERS)}, not with {letter!r}."

    def needs(letter):
        name, chunks = ORDERS[letter]
        times = {"forward": 10, "input_grad": 10, "weight_grad": 8}
        bubble = schedules.bubble_seconds(name, 8, chunks=chunks, microbatches=32, **times)
        return KEPT * max(schedules.peak_activations(name, 8, 32, chunks)), bubble

    held, bubble = needs(letter)
    assert held <= FREE, f"It holds {held:g} GB of activations on one rank."
    assert letter == "D", f"It holds {held:g} GB and idles for {bubble:g} ms. Another order idles for less."
    near(
        gigabytes,
        held,
        {
            KEPT * 8: "Interleaving holds more than 1F1B: a rank begins chunks of later micro-batches early.",
            KEPT * 8 / 4: "A quarter of the model keeps a quarter, but there are more of them.",
            needs("C")[0]: "That is with two chunks.",
        },
    )
    near(
        idle,
        bubble,
        {
            needs("B")[1]: "With chunks of a quarter, filling takes a quarter of the time.",
            needs("C")[1]: "That is with two chunks.",
            7 * 20 / 4: "That leaves out the weight gradients: backward has two parts, 10 and 8.",
        },
    )
    return f"Four chunks hold {held:g} GB and idle for {bubble:g} ms: less of both than two chunks."


@exercise
def boundary(answer):
    """GB that a rank in the middle of Llama 3 405B's pipeline sends to its neighbours in a step."""

    def sent(chunks=4, **options):
        traffic = topology.traffic(HUGE, {"tp": 8, "pp": 16}, 16, chunks=chunks, **options)
        return next(each.sent for each in traffic if each.axis == "pp") / 1e9

    right = sent()
    near(
        answer,
        right,
        {
            sent(chunks=1): "Each of a rank's four chunks has two neighbours.",
            right / 2: "That is forward alone; gradients go back as well.",
            sent(sharded_boundary=True): "Every tensor-parallel rank sends the whole boundary here.",
            right / 16: "That is for one micro-batch; a step has 16.",
            2 * right: "An element has two bytes, not four.",
        },
    )
    return f"{right:.1f} GB; with one chunk on each rank it would be {sent(chunks=1):.1f}."


@exercise
def long_sequences(answer):
    """Why 1F1B hangs with sequences of 8,192 tokens and not with 128."""
    chosen(
        answer,
        "A",
        {
            "B": "Then GPipe would hang as well, and short sequences with it.",
            "C": "A rank out of memory raises an error, and GPipe keeps even more.",
            "D": "The ranks are waiting for each other; more time would not help.",
            "E": "A buffer of the wrong size is an error, also with GPipe.",
        },
    )
    return "Two neighbours both send first. Short messages wait in a buffer; long ones wait for the receiver."


@exercise
def printed(answer):
    """Per cent more sequences a second that Table 5 of the zero-bubble paper promises for 28.3b-96."""
    one, none = (float(claims.find(f"zb-table5-28.3b-96-{name}").printed) for name in ("1f1b", "zb-2p"))
    right = 100 * ((1 - none) / (1 - one) - 1)
    near(
        answer,
        right,
        {
            100 * (one - none): "That is the share of a step that is saved. What is the rest of the step?",
            100 * one: "That is the share of 1F1B's step that is idle.",
            100 * (1 / (1 - one) - 1): "Almost: ZB-2p idles for 0.38 %.",
            100 * (1 - none / one): "That is the share of the bubble that is gone.",
            31: "That is what the abstract measured, at most. What do the two rates promise?",
            right / 100 + 1: "That is the ratio: how many per cent more is it?",
        },
    )
    return f"{right:.1f} %, if computing is equally fast in either order; the abstract measured at most 31 %."
