"""The ten mixed problems at the end of the foundations."""

from allranks import collectives, hardware, memory, precision, transformer
from allranks.check import exercise
from allranks.check.answers import all_of, chosen, near
from allranks.check.layouts import CARD, GPT3, LARGE, NVLINK, computing_seconds, sending_seconds

XL, SMALL = transformer.PRESETS["gpt2-xl"], transformer.PRESETS["llama3-8b"]
SEQUENCES, ROOM = 64, 72  # in a step; GB for states on each GPU
LAYOUT = ("tp", "pp", "dp")
MEASURED = (3.01, 0.07, 0.02)  # seconds of tp, pp and dp in the profile
GROWN = {1024: 5.2, 512: 2.0}  # GB by which a batch of one sequence raises the memory


@exercise
def plan(answer):
    """(tp, pp, dp, GB of states, seconds of sending) for Llama 3 70B on 64 GPUs, pp at most 2."""
    tp, pp, dp, gigabytes, seconds = all_of(answer, 5, "tp, pp, dp, GB, seconds")
    powers = (1, 2, 4, 8, 16, 32, 64)
    assert tp in powers and dp in powers and pp in (1, 2) and tp * pp * dp == 64, (
        "tp, pp and dp should be powers of two whose product is 64, and pp should be 1 or 2."
    )
    parameters = transformer.parameters(LARGE)
    whole = memory.zero_bytes(parameters, 1, 0) / 1e9
    states = whole / (tp * pp)
    assert states <= ROOM, (
        f"With tp = {tp} and pp = {pp}, states take {states:.0f} GB on each GPU: dp copies the model "
        "but does not divide it."
    )

    def sending(*order):
        return sending_seconds(LARGE, {"tp": tp, "pp": pp, "dp": dp}, order, SEQUENCES // dp)

    def wrong(*order):
        return sum(sending(*order).values())

    here = sending(*LAYOUT)
    right = sum(here.values())
    assert tp <= 8, (
        f"It fits, but tp = {tp} is more than a node, so its all-reduces leave through the cards: the "
        f"GPUs send for {right:.1f} s."
    )
    near(
        gigabytes,
        states,
        {
            2 * parameters / (tp * pp) / 1e9: "Those are the weights. Gradients and Adam take 14 bytes more.",
            whole / 64: "That divides by dp too; dp copies the states, and only tp and pp divide them.",
            whole: "Those are the states of the whole model; tp and pp divide them.",
        },
    )
    computing = computing_seconds(LARGE, SEQUENCES)
    near(
        seconds,
        right,
        {
            wrong("dp", "tp", "pp"): "dp varies fastest there, and takes tp's place in the node.",
            wrong("pp", "tp", "dp"): "pp varies fastest there: tp extends over two nodes.",
            wrong("dp", "pp", "tp"): "tp is the slowest axis there: eight nodes share a layer.",
            here["tp"]: "That is tp alone; gradients and stage boundaries are sent as well.",
            (here["tp"] + here["pp"]) * dp / SEQUENCES + here["dp"]: (
                "That is for one micro-batch; tp and pp send in each of them."
            ),
            computing: "That is how long the GPUs compute.",
        },
    )
    return (
        f"tp 8 inside a node, pp 2, dp 4: {states:.1f} GB of states, and {right:.2f} s of sending; at "
        f"half their peak the GPUs compute for {computing:.1f} s."
    )


@exercise
def summed(answer):
    """Why SGD differs from one process and Adam does not."""
    chosen(
        answer,
        "C",
        {
            "A": "Then the first losses would differ as well, with either optimizer.",
            "B": "Without the all-reduce the ranks would drift apart under AdamW too.",
            "D": (
                "Four equal parts would give a gradient of less data; AdamW would also follow another curve."
            ),
            "E": "Rounding moves the last digits; it does not make a step four times as long.",
        },
    )
    return "The sum is four times the mean. Adam divides by the gradient's size, so the factor cancels."


@exercise
def bucket(answer):
    """GB of the smallest message with at most a tenth of latency, on a ring of 1,024 ranks."""
    right = 9 * 1024 * CARD.α / CARD.β / 1e9
    latency, all_of_it = (
        collectives.seconds("all_reduce", "ring", nbytes, 1024, CARD.α, CARD.β) for nbytes in (0, right * 1e9)
    )
    assert abs(latency / all_of_it - 0.1) < 1e-9
    near(
        answer,
        right,
        {
            right / 1024: "That holds for one message. A ring cuts the bucket into 1,024 parts, one a round.",
            right / 9 * 10: "Then latency is a tenth of the bytes' time; it should be a tenth of the whole.",
            right / 9: "There latency and bytes take equally long.",
            right * 8: "That is in bits. Links are sold by bits, but give the bucket in bytes.",
            right * 2: "The two halves of an all-reduce have twice the rounds, and also twice the bytes.",
            right * 1e3: "That is in megabytes; give gigabytes.",
        },
    )
    return f"{right:.2f} GB, or 246 of DDP's 25 MiB buckets: on a thousand ranks a ring needs large messages."


@exercise
def evaluation(answer):
    """Why memory grows by 5.2 GB with each batch of an evaluation."""
    for tokens, gigabytes in GROWN.items():
        kept = memory.kept_bytes(XL._replace(sequence=tokens), 1, dropout=False)
        assert round(kept / 1e9, 1) == gigabytes
    parameters = transformer.parameters(XL)
    chosen(
        answer,
        "E",
        {
            "A": f"That adds {2 * parameters / 1e9:.1f} GB once, whatever the length of a sequence.",
            "B": f"Adam's states come with the first step: {12 * parameters / 1e9:.1f} GB, once.",
            "C": "A sequence of 1,024 tokens is 8 kB.",
            "D": "Masks are only a part of what backward would need, and are kept only with the rest.",
        },
    )
    return "The sum of the losses holds every batch's graph, with all that its backward would need."


@exercise
def ones(answer):
    """What 512 ones sum to, on a ring in bf16."""

    right = 0.0
    for _ in range(512):
        right = precision.rounded("bf16", right + 1)
    near(
        answer,
        right,
        {
            512: "bf16 can hold 512, and the ring adds one rank after the other: what is 256 + 1 in bf16?",
            2048: "That is where fp16 stops, with ten mantissa bits; bf16 has seven.",
            128: "Below 256, the numbers of bf16 are at most one apart.",
        },
    )
    return (
        f"{right:g}: on every later rank, 256 + 1 rounds back to 256. A tree adds equal sums and reaches 512."
    )


@exercise
def moved(answer):
    """Why tp takes eight times and dp a ninth of the predicted time."""

    def seconds(order, **options):
        return sending_seconds(GPT3, {"tp": 8, "pp": 8, "dp": 8}, order, 32, **options)

    here, wanted = seconds(("dp", "pp", "tp")), seconds(LAYOUT)
    assert tuple(round(here[axis], 2) for axis in LAYOUT) == MEASURED
    double = seconds(LAYOUT, element_bytes=4)
    chosen(
        answer,
        "B",
        {
            "A": f"On a slower link inside the nodes dp would still take {wanted['dp']:.2f} s.",
            "C": f"That doubles tp, to {double['tp']:.2f} s, and doubles the bytes.",
            "D": "A network with too few links would make dp slower, not faster.",
            "E": "Other traffic would not make dp faster than the cards can send.",
        },
    )
    return "dp varies fastest and sits inside the nodes, so tp goes through the cards."


@exercise
def days(answer):
    """Days that Llama 3 8B takes for 15 trillion tokens, on 512 H100s with a utilisation of 40 %."""
    tokens, parameters = 15e12, transformer.parameters(SMALL)

    def takes(flops):
        return flops / (512 * 0.4 * hardware.peak("h100") * 86400)

    sequences = tokens / SMALL.sequence
    right = takes(sequences * transformer.step_flops(SMALL, 1))
    without = takes(transformer.training_flops(parameters, tokens))
    near(
        answer,
        right,
        {
            without: (
                "6ND leaves out attention's two products without weights, a fifth more at 8,192 tokens "
                "and h = 4,096."
            ),
            takes(
                sequences * transformer.step_flops(SMALL, 1, "full")
            ): "Model FLOPs count no recomputation.",
            takes(transformer.training_flops(parameters, tokens, "full")): "8ND counts a second forward.",
            takes(sequences * transformer.forward_flops(SMALL, 1)): (
                "That is the forward pass alone; backward takes twice as much."
            ),
            right * 0.4: "That is at the GPUs' peak; they reach 40 % of it.",
            right * 512: "That is on a single GPU.",
        },
    )
    return f"{right:.1f} days; 6ND alone gives {without:.1f}."


@exercise
def two_levels(answer):
    """Milliseconds of an all-reduce of Llama 3 8B's gradients in two levels, on 16 nodes of eight."""
    gradients = 2 * transformer.parameters(SMALL)
    levels = collectives.hierarchical_all_reduce(gradients, 8, 16)
    inside, between = levels.intra.seconds(NVLINK.α, NVLINK.β), levels.inter.seconds(CARD.α, CARD.β)
    right = 1e3 * (inside + between)

    def ring(ranks):
        return 1e3 * collectives.seconds("all_reduce", "ring", gradients, ranks, CARD.α, CARD.β)

    near(
        answer,
        right,
        {
            1e3 * between: (
                "That is between the nodes; before and after it, a node's ranks share the message over "
                "NVLink."
            ),
            1e3 * inside: "That is inside the nodes; each eighth then travels between them.",
            ring(128): "That is a single ring of 128 ranks, where one card of each node sends everything.",
            1e3 * inside + ring(16): "A rank sends only an eighth of the message to the other nodes.",
            2 * right: "A gradient has two bytes, not four.",
            right / 2: "That is a factor of two off: a gradient has two bytes.",
            1e3 * (inside / 2 + between): (
                "That leaves out a step inside the node: first a reduce-scatter, at the end an all-gather."
            ),
            right / 1e3: "That is in seconds; give milliseconds.",
        },
    )
    return (
        f"{right:.0f} ms, of which {1e3 * between:.0f} are between the nodes, although each card carries "
        "only an eighth of the message."
    )


@exercise
def microbatch(answer):
    """Sequences in the largest micro-batch of GPT-2 XL on 80 GB, nothing recomputed."""

    def most(size_of, capacity=0.9 * 80e9):
        return max(size for size in range(1, 200) if size_of(size) <= capacity)

    def held(size, **how):
        return memory.training_bytes(XL, microbatch=size, **how).total

    right = most(held)
    near(
        answer,
        right,
        {
            most(lambda size: size * memory.kept_bytes(XL, 1)): (
                "That leaves out the states, which take 25 GB."
            ),
            most(lambda size: held(size, recomputation="selective")): (
                "That leaves out attention's scores, kept in every layer: 1,024 × 1,024 numbers for each "
                "of 25 heads."
            ),
            most(lambda size: held(size, recomputation="full")): "That is with every layer recomputed.",
            most(held, 80e9): "That fills all of the memory; a tenth stays free.",
        },
    )
    return f"{right}: each sequence keeps {memory.kept_bytes(XL, 1) / 1e9:.1f} GB, and the states take 25 GB."


@exercise
def printed(answer):
    """The utilisation, in per cent, that 34 printed days mean for GPT-3 on 1,024 A100s."""
    possible = 1024 * 34 * 86400 * hardware.peak("a100-80gb")
    model = transformer.training_flops(175e9, 300e9) / possible
    again = transformer.training_flops(175e9, 300e9, "full") / possible
    right = 100 * model
    near(
        answer,
        right,
        {
            100 * again: (
                "That counts forward twice, because the run computes every layer again. The model needs "
                "six FLOPs for each parameter and token."
            ),
            100 * again * 8 / 6: "Leave the second forward out instead of counting it once more.",
            2 * right: "That is for another peak; the A100's in bf16 and fp16 is 312 TFLOP/s.",
            model: "That is right as a share; give it in per cent.",
        },
    )
    return (
        f"{right:.1f} %: the GPUs reach 45 % of their peak, but a quarter of that is the recomputed forward."
    )
