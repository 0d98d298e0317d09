"""The ten mixed problems at the end of the parts on model parallelism and on combining it."""

from allranks import attention, hardware, memory, schedules, simulate, topology, transformer
from allranks.check import exercise
from allranks.check.answers import all_of, chosen, near
from allranks.check.layouts import BATCH, GPUS, LARGE, ROOM, fastest, legal, priced

TOKENS, DAY = 100e9, 24 * 3600
ONE_STEP = {"forward": 10, "input_grad": 11, "weight_grad": 8}  # milliseconds


@exercise
def plan(answer):
    """(tp, pp, dp, GB on the fullest GPU, days for 100 billion tokens) of the fastest layout that fits."""
    all_of(answer, 5, "tp, pp, dp, GB, days")
    *sizes, gigabytes, days = answer
    assert legal(*sizes), (
        f"tp, pp and dp should be whole numbers whose product is {GPUS}, and fit 128 sequences, 64 heads "
        "and 80 layers."
    )
    each = priced(*sizes)
    held, took = each.memory.total, each.parts
    assert held <= ROOM, f"It needs {held / 1e9:.0f} GB on a GPU; {ROOM / 1e9:.0f} GB may be filled."
    seconds, part = max((took.tensor, "tensor parallelism"), (took.bubble, "the bubble"))
    assert tuple(sizes) == fastest(), (
        f"It fits, but a step takes {each.seconds:.1f} s, and {part} takes {seconds:.1f} s of it. Another "
        "layout that fits is faster."
    )
    near(
        gigabytes,
        held / 1e9,
        {
            held / 2**30: "That is in GiB; memory is sold in GB of 10⁹ bytes.",
            each.memory.states / 1e9: "Those are the states. What does backward need from forward?",
            priced(*sizes, zero_stage=0).memory.total / 1e9: (
                "That leaves the optimizer states whole; ZeRO-1 shards them over dp."
            ),
            priced(*sizes, zero_stage=3).memory.total / 1e9: (
                "That shards all states; ZeRO-1 shards only the optimizer's."
            ),
        },
    )
    steps = TOKENS / (BATCH * LARGE.sequence)
    alone = transformer.training_seconds(
        transformer.parameters(LARGE), TOKENS, GPUS, 0.6 * hardware.peak("h100"), "none"
    )
    near(
        days,
        steps * each.seconds / DAY,
        {
            steps * took.compute / DAY: "That is computing alone; a step also waits for communication.",
            alone / DAY: "6ND counts neither the attention scores nor any communication.",
            0.6 * alone / DAY: "No product reaches the peak: `plan.price` takes 60 % of it.",
            steps * each.seconds / 3600: "That is in hours; give days.",
        },
    )
    return f"No pipeline: {held / 1e9:.1f} GB on each GPU, and {steps * each.seconds / DAY:.1f} days."


def idle(microbatches):
    """The shares of a step that the eight ranks of the pipeline in `waiting` are idle."""
    work = [1] * 7 + [1.25]  # the output layer is a quarter of a stage
    step = simulate.simulate(schedules.one_f_one_b(8, microbatches), work, work, work).makespan
    return [1 - 3 * microbatches * mine / step for mine in work]


@exercise
def waiting(cause):
    """Why seven ranks of eight keep waiting, however many micro-batches there are."""
    ends = idle(512)
    assert min(ends[:7]) > 0.2 > 0.02 > ends[7]
    slow = [simulate.simulate(schedules.one_f_one_b(8, m), transfer=0.3) for m in (32, 512)]
    assert min(each.bubble_of_total for each in slow) > 0.15  # on all ranks alike, as their work is equal
    chosen(
        cause,
        "C",
        {
            "A": (
                "With enough micro-batches the bubble vanishes on every rank; here it does so on only one."
            ),
            "B": "All ranks would wait for slow sends, but the last one is hardly ever idle.",
            "D": "GPipe's bubble is 1F1B's, alike on all ranks, and vanishes with more micro-batches.",
            "E": "Recomputing slows all ranks down. Which rank do the others wait for?",
        },
    )
    return "The last stage has the output layer too: give it fewer layers, and the others stop waiting."


@exercise
def tokens(answer):
    """Up to how many tokens tensor parallelism sends no more than data parallelism, Llama 3 70B's layer."""
    hidden, layer = LARGE.hidden, transformer.layer_parameters(LARGE)
    right = layer / (4 * hidden)
    alike = LARGE._replace(kv_heads=LARGE.heads)
    near(
        answer,
        right,
        {
            3 * hidden: "That is for a layer of 12h² parameters. How many does a layer of Llama 3 70B have?",
            transformer.layer_parameters(alike) / (4 * hidden): (
                "That is with 64 heads of keys; here 64 heads of queries share 8."
            ),
            right / 2: "That sends the gradients once; an all-reduce sends them nearly twice.",
            2 * right: "That sends the activations once; an all-reduce sends them nearly twice.",
            8 * right: (
                "A tensor-parallel rank communicates for all tokens of the step, not for an eighth of them."
            ),
        },
    )
    return f"{right:,.0f} tokens, {right / LARGE.sequence:.1f} sequences: a step usually has far more."


@exercise
def repeated(answer):
    """GB a rank sends for a layer of Llama 3 405B, tp = 8, sequence split, all of it recomputed."""
    model = transformer.PRESETS["llama3-405b"]

    def layer(split, recomputation):
        how = {"sequence_parallel": split, "recomputation": recomputation}
        return topology.traffic(model, {"tp": 8}, 1, **how)[0].sent / model.layers / 1e9

    right, once = layer(True, "full"), layer(True, "none")
    near(
        answer,
        right,
        {
            once: "That leaves out recomputing: a layer that is recomputed communicates again.",
            2 * once: "Only the forward pass is repeated, not the backward pass.",
            layer(False, "full"): (
                "That leaves out two gathers: backward needs two inputs of which a rank keeps only a part."
            ),
            layer(False, "none"): (
                "Those are four all-reduces. What do splitting the sequence and recomputing add?"
            ),
            right * 8 / 7: "A rank does not send its own eighth to itself.",
            right / 2: "That is a factor of two off: an element has two bytes.",
        },
    )
    return f"{right:.2f} GB: fourteen gathers and scatters; a layer that keeps everything has ten."


ONE, FRONT, BACK = [8192], [4096] + [512] * 8, [512] * 8 + [4096]


@exercise
def documents(cause):
    """Why the slowest of four context-parallel ranks is another one in every batch."""
    one, front, back = (attention.document_pairs(8192, 4, "zigzag", each) for each in (ONE, FRONT, BACK))
    assert len(set(one)) == 1 and 4.9 < front[3] / front[0] < 5.1 and back == front[::-1]
    first, *_, last = attention.rank_pairs(8192, 4, "contiguous", True)
    chosen(
        cause,
        "D",
        {
            "A": f"In contiguous parts, batch 3 would give rank 3 {last / first:.0f} times rank 0's work.",
            "B": (
                "A slow GPU is slow in every batch; here the slow one changes, and in batch 3 there is none."
            ),
            "C": "Each rank sends the same bytes in each batch, and in batch 3 none of them is late.",
            "E": "A rank with fewer tokens would send fewer keys, but all ranks send the same bytes.",
        },
    )
    return "Zig-zag balances only a plain causal mask; most pairs are in the longest document."


@exercise
def enough(answer):
    """The micro-batches with which 1F1B idles no longer a share than ZB-H1 with 24, on eight stages."""

    def least(share):
        m = 1
        while schedules.bubble_of_total("one_f_one_b", 8, m, **ONE_STEP) > share:
            m += 1
        return m

    right = least(schedules.bubble_of_total("zb_h1", 8, 24, **ONE_STEP))
    near(
        answer,
        right,
        {
            right - 1: "Round up: with one micro-batch fewer, 1F1B idles for a larger share.",
            72: "That is right if F, B and W take equally long; here they do not.",
            24: "That is the same number, but 1F1B also waits for W on every stage.",
            34: "Postponing W does more than end the wait for it: each W also fills a gap.",
            least(schedules.bubble_of_total("zb_h2", 8, 24, **ONE_STEP)): "That would match ZB-H2, which "
            "needs nearly twice the memory.",
        },
    )
    return f"{right} micro-batches: more than twice the batch, or postponed weight gradients."


@exercise
def ring(answer):
    """How many times Ulysses' bytes a ring sends for a layer of Llama 3 8B on eight ranks."""
    model = transformer.PRESETS["llama3-8b"]

    def both(kv_heads):
        sizes = model.sequence, 8
        there = attention.ring_bytes(*sizes, kv_heads, model.head_width)
        back = attention.ring_backward_bytes(*sizes, kv_heads, model.head_width)
        return there + back, attention.ulysses_bytes(*sizes, model.heads, kv_heads, model.head_width)

    (sent, traded), (alike, traded_alike) = both(model.kv_heads), both(model.heads)
    right = sent / (2 * traded)
    near(
        answer,
        right,
        {
            right * 2 / 3: "In backward, keys and values go around again, and so do their gradients.",
            alike / (2 * traded_alike): "That is with 32 heads of keys; Llama 3 8B has only 8.",
            2 * right: "That is forward alone for Ulysses; it exchanges as much in backward.",
            right * 5: (
                "Ulysses also exchanges queries and outputs, four times as large as keys and values."
            ),
            1 / right: "That is the inverse: turn the fraction around.",
        },
    )
    return f"{right:.1f} times: shared keys help the ring, but not enough on eight ranks."


@exercise
def experts(answer):
    """GB of states on a rank of Mixtral 8×7B with tp = 2, ep = 8, dp = 32 and ZeRO-1."""
    model = transformer.PRESETS["mixtral-8x7b"]
    sizes = {"tensor_parallel": 2, "data_parallel": 32}

    def states(expert_parallel=8, zero_stage=1):
        return memory.training_bytes(
            model, expert_parallel=expert_parallel, zero_stage=zero_stage, **sizes
        ).states

    right = states() / 1e9
    dense, own = memory.rank_parameters(model, 2, expert_parallel=8)
    everything = transformer.parameters(model)
    near(
        answer,
        right,
        {
            memory.zero_bytes(dense + own, 32, 1)
            / 1e9: "That counts 32 copies of an expert; only four replicas hold the same one.",
            states(expert_parallel=1) / 1e9: (
                "That counts all eight experts; a rank has one of them in each layer."
            ),
            states(zero_stage=0) / 1e9: "That leaves the optimizer states whole; ZeRO-1 shards them.",
            16 * everything / 64 / 1e9: (
                "That shards everything; ZeRO-1 leaves weights and gradients whole on every replica."
            ),
            2 * right: "That is without tensor parallelism, which halves the experts too.",
        },
    )
    experts = memory.zero_bytes(own, 4, 1) / 1e9
    return f"{right:.1f} GB, of which its half of one expert in each layer takes {experts:.1f}."


@exercise
def clipped(cause):
    """Why two stages leave the path of one process only where gradients are clipped."""
    chosen(
        cause,
        "A",
        {
            "B": "Then even the first loss would differ, and so it would with pp = 1.",
            "C": "Late updates would change the second loss even without clipping.",
            "D": "With pp = 1 both tp ranks hold these parameters too, and those runs agree.",
            "E": "Gradients that are too large would show even without clipping.",
        },
    )
    return "Clipping needs the norm of all stages: add the squares over pp before taking the root."


@exercise
def same_batch(answer):
    """Per cent of the peak on 2,240 GPUs with 280 sequences, from the printed value with 2,240."""
    printed = 54.2

    def stretched(microbatches, chunks=3):
        return 1 + schedules.bubble_of_ideal("interleaved", 35, microbatches, chunks=chunks)

    change = stretched(280) / stretched(35)
    right = printed * change
    near(
        answer,
        right,
        {
            printed: "That is printed for eight times as many sequences.",
            56.0 * change: "Start from the printed share for 2,240 GPUs.",
            printed / stretched(35): ("The printed share already includes a bubble, with 280 micro-batches."),
            printed * stretched(280, 1) / stretched(35, 1): (
                "That leaves out interleaving: each rank has three pieces of the model."
            ),
            printed / 8: (
                "A replica has an eighth of the micro-batches, but that makes only the bubble larger."
            ),
        },
    )
    return f"{right:.1f} %: a fifth of the printed share comes from the larger batch."
