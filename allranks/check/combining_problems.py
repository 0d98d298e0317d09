"""The ten mixed problems at the end of the parts on model parallelism and on combining it."""

from allranks import attention, hardware, memory, schedules, simulate, topology, transformer
from allranks import plan as planner
from allranks.check import exercise
from allranks.check.answers import all_of, chosen, near

LARGE, H100 = transformer.PRESETS["llama3-70b"], hardware.ACCELERATORS["h100"]
LINKS = {"inside": hardware.LINKS["nvlink-4"], "between": hardware.LINKS["infiniband-ndr"]}
GPUS, BATCH, TOKENS, ROOM, DAY = 64, 128, 100e9, 0.9 * H100.memory, 24 * 3600
ONE_STEP = {"forward": 10, "input_grad": 11, "weight_grad": 8}  # milliseconds


def priced(tp, pp, dp, zero_stage=1):
    """The `plan.Plan` of Llama 3 70B on 64 H100s, one sequence in each micro-batch."""
    sizes = {"tp": tp, "pp": pp, "dp": dp, "zero_stage": zero_stage}
    layout = planner.layout(**sizes, microbatches=BATCH // dp)
    return planner.price(LARGE, layout, H100, dropout=False, fused=True, **LINKS)


def legal(tp, pp, dp):
    """Whether `priced` has an answer for these sizes."""
    sizes = tp, pp, dp
    if not all(isinstance(size, int) and size > 0 for size in sizes) or tp * pp * dp != GPUS or BATCH % dp:
        return False
    return planner.illegal(LARGE, planner.layout(tp=tp, pp=pp, dp=dp)) is None


def fastest():
    """(tp, pp, dp) of the fastest layout that leaves a tenth of the memory free."""
    sizes = planner.divisors(GPUS)
    tried = [(tp, pp, GPUS // tp // pp) for tp in sizes for pp in sizes if GPUS % (tp * pp) == 0]
    fitting = [each for each in tried if legal(*each) and priced(*each).memory.total <= ROOM]
    return min(fitting, key=lambda each: priced(*each).seconds)


@exercise
def plan(answer):
    """(tp, pp, dp, GB on the fullest GPU, days for 100 billion tokens) of the fastest layout that fits."""
    all_of(answer, 5, "tp, pp, dp, GB, days")
    *sizes, gigabytes, days = answer
    assert legal(*sizes), (
        f"tp, pp and dp have to be whole numbers whose product is {GPUS}, and fit 128 sequences, 64 heads "
        "and 80 layers."
    )
    each = priced(*sizes)
    held, took = each.memory.total, each.parts
    assert held <= ROOM, f"It needs {held / 1e9:.0f} GB on a GPU, and {ROOM / 1e9:.0f} GB may be filled."
    seconds, part = max((took.tensor, "tensor parallelism"), (took.bubble, "the bubble"))
    assert tuple(sizes) == fastest(), (
        f"It fits, but a step takes {each.seconds:.1f} s, of which {part} takes {seconds:.1f} s. "
        "Another layout that fits is faster."
    )
    near(
        gigabytes,
        held / 1e9,
        {
            held / 2**30: "These are GiB; memory is sold in GB of 10⁹ bytes.",
            each.memory.states / 1e9: "Those are the states. What does backward need from forward?",
            priced(*sizes, zero_stage=0).memory.total / 1e9: "ZeRO-1 shards the optimizer states over dp.",
            priced(*sizes, zero_stage=3).memory.total / 1e9: "Only the optimizer states are sharded here.",
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
            steps * took.compute / DAY: "That is the computing alone; a step waits for communication, too.",
            alone / DAY: "6ND counts neither the attention scores nor any communication.",
            0.6 * alone / DAY: "No product reaches the peak: `plan.price` takes 60 % of it.",
            steps * each.seconds / 3600: "These are hours.",
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
            "A": "With enough micro-batches the bubble vanishes on every rank, and here it does on one only.",
            "B": "All ranks would wait for slow sends, and the last one is hardly ever idle.",
            "D": "GPipe has the bubble of 1F1B, on all ranks alike, and it vanishes with more micro-batches.",
            "E": "Recomputing takes all ranks longer. Which of them do the others wait for?",
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
            transformer.layer_parameters(alike) / (4 * hidden): "Its 64 heads of queries share 8 of keys.",
            right / 2: "An all-reduce of the gradients sends them nearly twice.",
            2 * right: "An all-reduce of activations sends them nearly twice.",
            8 * right: "A tensor-parallel rank sends for all tokens of the step, not for an eighth of them.",
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
            once: "A layer that is computed again communicates again.",
            2 * once: "Only the forward pass is repeated, not the backward pass.",
            layer(False, "full"): "Backward needs two inputs of which a rank has kept only its part.",
            layer(False, "none"): "Those are four all-reduces. What do a split sequence and recomputing add?",
            right * 8 / 7: "A rank does not send its own eighth to itself.",
            right / 2: "An element has two bytes.",
        },
    )
    return f"{right:.2f} GB: fourteen gathers and scatters, where a layer that keeps everything has ten."


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
            "B": "A slow GPU is slow in every batch; here it is another one, and in batch 3 none.",
            "C": "Each rank sends the same bytes in each batch, and in batch 3 none of them is late.",
            "E": "A rank with fewer tokens would send fewer keys, and all ranks send the same bytes.",
        },
    )
    return "Zig-zag is fair under a causal mask alone; most pairs are in the longest document."


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
            right - 1: "Round up: a micro-batch fewer, and 1F1B is idle for a larger share.",
            72: "It would be three times as many if F, B and W took equally long.",
            24: "1F1B waits for W as well, on every stage.",
            34: "Putting W off does more than end the wait for it: each W also fills a gap.",
            least(schedules.bubble_of_total("zb_h2", 8, 24, **ONE_STEP)): "That would match ZB-H2, which "
            "needs nearly twice the memory.",
        },
    )
    return f"{right} micro-batches: more than twice the batch, or the weight gradients put off."


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
            right * 2 / 3: "Backward, keys and values go around again, and so do their gradients.",
            alike / (2 * traded_alike): "Llama 3 8B has 32 heads of queries, but only 8 of keys.",
            2 * right: "Ulysses trades backward as much as forward.",
            right * 5: "Queries and outputs, four times as large as keys and values, are traded, too.",
            1 / right: "Turn the fraction around.",
        },
    )
    return f"{right:.1f} times: shared keys help the ring, but on eight ranks not enough."


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
            / 1e9: "Of the 32 replicas, only four hold the same expert.",
            states(expert_parallel=1) / 1e9: "A rank has one expert of the eight in each layer.",
            states(zero_stage=0) / 1e9: "ZeRO-1 shards the optimizer states.",
            16 * everything / 64 / 1e9: "ZeRO-1 leaves weights and gradients whole, on every replica.",
            2 * right: "Tensor parallelism halves the experts, too.",
        },
    )
    return (
        f"{right:.1f} GB, of which the one expert in each layer has {memory.zero_bytes(own, 4, 1) / 1e9:.1f}."
    )


@exercise
def clipped(cause):
    """Why two stages leave the path of one process only where gradients are clipped."""
    chosen(
        cause,
        "A",
        {
            "B": "Then the first loss would differ already, and with pp = 1, too.",
            "C": "Late updates would change the second loss without clipping, too.",
            "D": "With pp = 1 both tp ranks hold these parameters, too, and those runs agree.",
            "E": "Gradients that are too large would show without clipping, too.",
        },
    )
    return "Squares have to be added over pp before the root: clipping needs the norm of all stages."


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
            printed / stretched(35): "The printed share has a bubble already, of 280 micro-batches.",
            printed * stretched(280, 1) / stretched(35, 1): "Each rank has three pieces of the model.",
            printed / 8: "A replica has an eighth of the micro-batches, but only the bubble grows with that.",
        },
    )
    return f"{right:.1f} %: a fifth of the printed share comes from the larger batch."
