"""The ten mixed problems at the end of the part on data parallelism and sharding."""

from allranks import collectives, hardware, memory, precision, transformer
from allranks.check import exercise
from allranks.check.answers import all_of, chosen, near

LARGE, RANKS = transformer.PRESETS["llama3-70b"], 64
SEQUENCES, CARD, USED = 8, 25e9, 0.9  # on each GPU, bytes a second, share of memory
PEAKS = {8: (26.0, 78.1), 64: (3.3, 55.3), 512: (0.4, 52.5)}  # GB after a step, and at the peak


def held(stage, microbatch):
    """The `Breakdown` of a GPU that trains Llama 3 70B on 64 GPUs, everything recomputed."""
    return memory.training_bytes(
        LARGE,
        microbatch=microbatch,
        microbatches=SEQUENCES // microbatch,
        data_parallel=RANKS,
        zero_stage=stage,
        recomputation="full",
        dropout=False,
        fused=True,
    )


def sent(stage, microbatch):
    """Bytes that a GPU sends in a step."""
    parameters = transformer.parameters(LARGE)
    return memory.zero_sent_bytes(parameters, RANKS, stage, microbatches=SEQUENCES // microbatch)


@exercise
def plan(answer):
    """(stage, sequences in a micro-batch, GB on each GPU, seconds of a step) for 70B on 64 GPUs."""
    stage, microbatch, gigabytes, seconds = all_of(answer, 4, "stage, sequences, GB, seconds")
    assert stage in (0, 1, 2, 3) and microbatch in (1, 2, 4, 8), (
        "Choose stage 0, 1, 2 or 3, and micro-batches of 1, 2, 4 or 8 sequences."
    )
    capacity = hardware.accelerator("h100").memory
    here = held(stage, microbatch)
    assert here.states <= USED * capacity, (
        f"In stage {stage} the states alone take {here.states / 1e9:.0f} GB on each GPU."
    )
    assert here.total <= USED * capacity, (
        f"The states take {here.states / 1e9:.1f} GB, but activations and whole layers bring each GPU to "
        f"{here.total / 1e9:.0f} GB."
    )
    peak = hardware.peak("h100") / 2
    computing = transformer.step_flops(LARGE, SEQUENCES, "full") / peak
    sending = sent(stage, microbatch) / CARD
    assert sending <= computing, (
        f"It fits, but a GPU sends for {sending:.0f} s and computes for {computing:.0f} s. "
        "How often does it gather each layer?"
    )
    without_layers, without_again, without_outputs = (
        (here.total - part) / 1e9
        for part in (here.buffers, here.recomputed, memory.output_activation_bytes(LARGE, microbatch))
    )
    near(
        gigabytes,
        here.total / 1e9,
        {
            here.states / 1e9: "Those are the states. What else is on a GPU in the middle of backward?",
            without_layers: "Two layers' weights and one layer's gradients are whole at the peak.",
            without_again: "Backward computes one layer again, and keeps what that layer needs.",
            without_outputs: "That leaves out the logits: 128,256 numbers of 32 bits for each token.",
        },
    )
    parameters = transformer.parameters(LARGE)
    tokens = SEQUENCES * LARGE.sequence
    near(
        seconds,
        computing,
        {
            sending: "That is what sending takes; computing takes longer and hides it.",
            sending + computing: (
                "That adds both; sending runs beside computing, so only the longer counts."
            ),
            computing / 2: "That is at the GPUs' peak; they reach half of it.",
            transformer.step_flops(LARGE, SEQUENCES)
            / peak: "That leaves out recomputing: every layer's forward is computed again in backward.",
            transformer.training_flops(parameters, tokens, "full")
            / peak: "With 8,192 tokens, attention's products without weights count too.",
        },
    )
    return (
        f"Stage 3 with micro-batches of two: {here.total / 1e9:.1f} GB on each GPU, and {computing:.1f} s "
        f"of computing hide {sending:.0f} s of sending."
    )


@exercise
def four_times(answer):
    """Why a step of four micro-batches sends four times what was predicted."""
    once = collectives.ring_all_reduce_bytes(2 * transformer.parameters(transformer.PRESETS["gpt2-xl"]), 64)
    assert [round(times * once / 1e9, 1) for times in (1, 4)] == [6.1, 24.5]
    chosen(
        answer,
        "C",
        {
            "A": f"That doubles the bytes to {2 * once / 1e9:.1f} GB, but with one micro-batch too.",
            "B": "Smaller buckets send the same bytes in more messages; that costs only latency.",
            "D": "That message has one number for each parameter tensor: hundreds, not billions.",
            "E": f"That adds {once / 2 / 1e9:.1f} GB once a step, however many micro-batches there are.",
        },
    )
    return "DDP decides in forward: with `no_sync` around backward alone, each micro-batch is averaged."


@exercise
def tied(answer):
    """Milliseconds that a step waits for the tied embedding of GPT-2, on 64 GPUs with 200 Gbit/s each."""
    model, link = transformer.PRESETS["gpt2"], hardware.link("infiniband-hdr")

    def ms(parameters, α=link.α, β=link.β):
        return 1e3 * collectives.seconds("all_reduce", "ring", 4 * parameters, 64, α, β)

    shared = model.vocabulary * model.hidden
    right = ms(shared)
    near(
        answer,
        right,
        {
            ms(transformer.parameters(model)): "Those are all gradients. Only one is not averaged yet.",
            ms(shared, α=0): "Messages have a latency: a ring of 64 takes 126 rounds.",
            right / 2: "In an all-reduce a ring passes everything on twice: first sums, then results.",
            ms(shared / 4): "A gradient in fp32 takes four bytes.",
            ms(shared / 2): "The gradients are in fp32: four bytes.",
            ms(shared, β=link.β / 8): "Links are sold by bits: 200 Gbit/s are 25 GB/s.",
            0: "The output layer's gradient is the first, but the embedding's part of the sum is the last.",
        },
    )
    return f"{right:.1f} ms: the first gradient of backward is complete only at its end."


@exercise
def beside_ddp(answer):
    """Billions of parameters with DDP and ZeroRedundancyOptimizer in fp32, on 16 GPUs with 40 GB."""
    states, buckets = memory.zero_bytes(1, 16, 1, "fp32"), memory.ddp_bucket_bytes(1, "fp32")
    right = 40 / (states + buckets)
    near(
        answer,
        right,
        {
            40 / states: "DDP averages in buckets, which hold all gradients a second time.",
            40 / (states + buckets / 16): "That shards the buckets, which are whole on every rank.",
            40 / memory.zero_bytes(1, 16, 0, "fp32"): "That shards nothing; the moments are sharded.",
            40 / (memory.zero_bytes(1, 16, 0, "fp32") + buckets): (
                "That leaves the moments whole; 16 ranks share them."
            ),
            40 / memory.zero_bytes(1, 16, 3, "fp32"): (
                "That shards everything; weights and gradients stay whole on every rank."
            ),
            40 / (memory.zero_bytes(1, 16, 1) + 2): "Everything is in fp32, and there is no copy in 16 bits.",
        },
    )
    return f"{right:.1f} billion: of 12.5 bytes a parameter, 12 are not sharded."


@exercise
def out_of_the_node(answer):
    """How many times the bytes leave a node with 128 shards, compared with 16 replicas of eight."""
    whole = 3 * collectives.flat_ring_node_bytes(1, 8, 16) / 2
    hybrid = 8 * collectives.ring_all_reduce_bytes(1 / 8, 16)
    right = whole / hybrid
    ranks = (
        "That compares what one rank sends. On the ring of 128 only one rank of a node sends out of it; "
        "with the mesh all eight do."
    )
    near(
        answer,
        right,
        {
            3 * collectives.ring_all_gather_bytes(1, 128) / (hybrid / 8): ranks,
            12: ranks,
            1.5: "Almost: on the ring of 128 a node passes on all but a 128th, and not all but a sixteenth.",
            2 * right: "That counts the all-reduce once; it passes each slice on twice.",
            right / 1.5: "Stage 3 gathers each weight twice, and reduces its gradient.",
            1 / right: "That is the inverse: turn the fraction around.",
        },
    )
    return (
        f"{right:.2f} times: with replicas a node sends {1 - 1 / right:.0%} less, and all eight of its "
        "GPUs share the sending."
    )


@exercise
def peak(answer):
    """Why the peak stays 52 GB above the shards on 8, 64 and 512 GPUs."""
    model = transformer.PRESETS["llama2-13b"]
    Ψ = transformer.parameters(model)
    whole = memory.unsharded_bytes(Ψ, prefetched=0)
    for ranks, gigabytes in PEAKS.items():
        shards = memory.zero_bytes(Ψ, ranks, 3)
        assert tuple(round(each / 1e9, 1) for each in (shards, shards + whole)) == gigabytes
    layer = 2 * transformer.layer_parameters(model) / 1e9
    chosen(
        answer,
        "B",
        {
            "A": "Activations shrink with the sequences, but shorter ones have changed nothing.",
            "C": f"Prefetching keeps one more layer whole: {layer:.1f} GB of weights.",
            "D": "Whole weights would be there after a step, too, and those bytes fall with the ranks.",
            "E": "After a step a GPU would then hold an eighth of the states, however many ranks there are.",
        },
    )
    return "All weights and gradients are whole at the end of backward: 4 bytes a parameter on any rank."


@exercise
def host(answer):
    """Billions of parameters on four GPUs with 60 GB each and one host of 384 GB, offloaded in stage 2."""
    recipe = memory.ZERO
    right = 384 / (recipe.gradients + recipe.optimizer)
    near(
        answer,
        right,
        {
            60 / recipe.weights: "That fills the GPUs, but the four slices of the rest share one host.",
            4 * right: "Each GPU has its own slice, but all four slices are in the same host.",
            384 / recipe.optimizer: "Gradients leave the GPU as well and wait on the host.",
            384 / recipe.bytes_per_parameter: "The 16-bit weights stay on the GPUs.",
            (384 + 4 * 60) / recipe.bytes_per_parameter: (
                "Host and GPUs are not one pool: each GPU holds all weights and no other states."
            ),
        },
    )
    return f"{right:.1f} billion: the host is full, and each GPU uses {recipe.weights * right:.0f} of 60 GB."


@exercise
def units(answer):
    """Milliseconds of latency that seven units a layer add to a step of Llama 3 8B on 64 ranks."""
    layers, α = transformer.PRESETS["llama3-8b"].layers, hardware.link("infiniband-ndr").α
    rounds = collectives.ring_all_gather(0, 64).rounds
    right = 1e3 * 6 * layers * 3 * rounds * α
    near(
        answer,
        right,
        {
            right * 7 / 6: "That is all of their latency. One unit a layer has a seventh of it.",
            right * 2 / 3: "Each unit is gathered twice, and then its gradients are reduced.",
            right / 3: "A unit has three collectives in a step, not one.",
            right * 2: "That is for all-reduces of 126 rounds; gathers and reductions take 63.",
            right / rounds: "A ring of 64 ranks takes 63 rounds, and each has its latency.",
            right / layers: "That is for one layer of 32.",
            right / 1e3: "That is in seconds; give milliseconds.",
        },
    )
    return f"{right:.0f} ms, unless computing hides them: the bytes are the same."


@exercise
def stopped(answer):
    """Why weights in bf16 stop changing when the learning rate has fallen."""
    weight = precision.rounded("bf16", 0.1)
    moved = [precision.rounded("bf16", weight - rate) != weight for rate in (1e-3, 1e-4)]
    assert moved == [True, False]
    chosen(
        answer,
        "D",
        {
            "A": "bf16 has the range of fp32, and none of the gradients is 0.",
            "B": "One process sums over no ranks, yet its weights stop as well.",
            "C": (
                "Nothing overflows, so no step is skipped, and a smaller scale would not move the weights."
            ),
            "E": "(10⁻⁴)² is far above the smallest number in bf16, and division by 0 would not be finite.",
        },
    )
    return "An update of 0.0001 is below 0.00024, half the spacing at 0.1, so the sum rounds back."


@exercise
def printed(answer):
    """Billions of parameters of 96 layers in stage 3 on 1,024 GPUs of 32 GB, whole layers counted."""

    def fit(ranks, layer):
        return 32 / (memory.zero_bytes(1, ranks, 3) + layer / 96)

    whole = memory.unsharded_bytes(1)
    right, on_64 = fit(1024, whole), fit(64, whole)
    near(
        answer,
        right,
        {
            fit(1024, 0): "Those are the states alone. Which layers are whole while one computes?",
            2000: "That is the printed number, with 16-way model parallelism and the states alone.",
            on_64: "Stage 3 divides by all 1,024 ranks here.",
            16 * on_64: "That is with 16-way model parallelism, which also divides whole layers.",
            fit(1024, 2): (
                "Besides the layer that computes, the next one is whole, and so are the new gradients."
            ),
            fit(1024, 4): "Two layers' weights and one layer's gradients are whole: six bytes a parameter.",
        },
    )
    return f"{right:.0f} billion: more ranks divide the states, but never the layer that is whole."
