"""Which states tell the story of the explorers of costs? Tables of what `stories.Step` holds; see there."""

MIB = 2**20

OF_COSTS = {
    "buckets": (
        (
            "All in one",
            {"bucket": 2**50, "small_first": False},
            "One bucket is full when the backward pass is over: nothing is hidden, the step waits.",
        ),
        (
            "Each alone",
            {"bucket": 1},
            "Each gradient leaves at once. More is hidden, but each all-reduce pays its latencies.",
        ),
        (
            "In between",
            {"bucket": 10 * MIB},
            "Few enough latencies, and an early start: no other size leaves less exposed.",
        ),
        (
            "The surprise",
            {"bucket": 10 * MIB, "world_size": 256},
            "More ranks, more latencies: the size that was best is bad now, and larger buckets win.",
        ),
        (
            "The limit",
            {"bucket": 10 * MIB, "bandwidth": 5 * 10**8},
            "The network hardly rests and ends long after the backward pass. No size helps much.",
        ),
        (
            "Your turn",
            {"world_size": 32, "bandwidth": 10**10},
            "Click columns until least is exposed. Then raise the latency: which way does the best one move?",
        ),
    ),
    "precision": (
        (
            "Room enough",
            {"dtype": "fp32", "scale": 0},
            "With so many bits of exponent all gradients lie within the range: none becomes zero.",
        ),
        (
            "Half the bits",
            {"scale": 0},
            "In fp16 most of the same gradients lie below the normal range; the red ones become zero.",
        ),
        (
            "Loss scaling",
            {"scale": 12},
            "Multiplied before the backward pass, they move into the range: see the lower histogram.",
        ),
        (
            "The limit",
            {"scale": 24, "middle": -8},
            "Too large a scale pushes them out at the other end: half of them are too large.",
        ),
        (
            "The surprise",
            {"dtype": "bf16", "scale": 0},
            "No more bits than fp16, and no scale needed: the exponent is fp32's. Numbers lie further apart.",
        ),
        (
            "Your turn",
            {"dtype": "fp8_e4m3", "scale": 0},
            "Find the scale at which E4M3 keeps most. Why can E5M2 keep more, and what does it pay?",
        ),
    ),
    "decode": (
        (
            "One reader",
            {},
            "One sequence: most of the time goes into reading weights. Look for the sliver of arithmetic.",
        ),
        (
            "Shared weights",
            {"sequences": 64, "against": "sequences"},
            "Many sequences share each reading of the weights: all together wait little longer than one did.",
        ),
        (
            "Long texts",
            {"sequences": 32, "context": 16384},
            "Each sequence reads its own cache, which nobody shares. Now that takes longest.",
        ),
        (
            "The surprise",
            {"ranks": 64},
            "More ranks read less each, and yet the token comes later: messages go round the ring.",
        ),
        (
            "The limit",
            {"sequences": 1024, "context": 512, "against": "sequences"},
            "So many sequences that arithmetic takes longest: each further one makes all of them wait.",
        ),
        (
            "Your turn",
            {"model": "llama3-405b"},
            "This does not fit. Find the fewest ranks that hold it, then halve the time to the token.",
        ),
    ),
    "serving": (
        (
            "Little load",
            {"load": 1},
            "Most requests find the server idle: a prompt is computed when it comes, and tokens follow.",
        ),
        (
            "Closed batches",
            {"policy": "static"},
            "A batch runs to its last token. Whoever comes meanwhile waits: look at the thin lines.",
        ),
        (
            "Continuous",
            {},
            "A request joins at the next step. First tokens come early; the others pause for its prompt.",
        ),
        (
            "The surprise",
            {"policy": "chunked"},
            "Prompts in chunks: the longest pause all but vanishes, and first tokens come a little later.",
        ),
        (
            "The limit",
            {"pages": 192},
            "Too few pages: requests queue for memory, and one is thrown out and computed again.",
        ),
        (
            "Your turn",
            {"policy": "chunked", "load": 32, "budget": 128},
            "Choose the chunk so that half of the first tokens come early and no pause is long.",
        ),
    ),
    "goodput": (
        (
            "One node",
            {"nodes": 1},
            "One node fails so seldom that nearly all of the time trains.",
        ),
        (
            "Too often",
            {"save": "own", "interval": 60, "against": "interval"},
            "A checkpoint each minute: little is lost at a failure, but writing takes a third of the time.",
        ),
        (
            "Too seldom",
            {"save": "own", "interval": 14_400, "against": "interval"},
            "Hours between checkpoints: failures come sooner, and half of the time repeats lost steps.",
        ),
        (
            "The best",
            {"against": "interval"},
            "At the best interval, writing and repeating cost about the same. The curve is flat around it.",
        ),
        (
            "The limit",
            {"nodes": 16_384},
            "More nodes fail more often. Even at the best interval a third is lost, most of it in restarts.",
        ),
        (
            "Your turn",
            {"nodes": 16_384, "write": 1},
            "Checkpoints are nearly free now. Get nine tenths of the time to train: what else must shrink?",
        ),
    ),
    "compression": (
        (
            "A slow link",
            {"link": 1000},
            "Nearly all of the dense time is bytes on the link: whoever sends fewer is far faster.",
        ),
        (
            "A fast link",
            {"link": 200_000},
            "The bytes take little time now. Compressing takes longer than it saves, and dense is fastest.",
        ),
        (
            "The surprise",
            {"link": 1000, "ranks": 1024},
            "Top-k sends one gradient in a thousand, yet more bytes than dense: they cannot be added up.",
        ),
        (
            "Sums again",
            {"link": 1000, "ranks": 1024, "method": "power_sgd"},
            "PowerSGD's factors can be summed on the way: as many ranks, and it stays far ahead.",
        ),
        (
            "Your turn",
            {"link": 100_000, "rate": 1},
            "Nothing pays here. Find two controls, each of which alone makes one method pay.",
        ),
    ),
    "local_updates": (
        (
            "Every step",
            {"every": 1},
            "Data parallelism: ranks meet after each step. On this link they nearly always wait.",
        ),
        (
            "Seldom",
            {"size": 0},
            "They meet after a hundred steps instead: on the same link most of the time computes.",
        ),
        (
            "In fragments",
            {"size": 1},
            "A few layers at each meeting: as many bytes in smaller bursts. Utilisation rises only a little.",
        ),
        (
            "The surprise",
            {"delay": 1, "bits": 4},
            "The message travels in fewer bits while the next step computes: the link is hardly felt.",
        ),
        (
            "The limit",
            {"delay": 5, "bits": 4, "link": 200},
            "Overlap hides a message only while it is shorter than the steps that run meanwhile.",
        ),
        (
            "Your turn",
            {"model": 1e11, "link": 1000},
            "A hundred times the parameters, a fifth of the link: get nine tenths of the time to compute.",
        ),
    ),
    "traces": (
        (
            "Healthy",
            {"trace": "none"},
            "Four ranks enter their collectives at nearly the same time, and no rank stands out.",
        ),
        (
            "A straggler",
            {},
            "Three ranks wait in orange, one hardly does. Who never waits is whom the others wait for.",
        ),
        (
            "The surprise",
            {"trace": "data loader"},
            "The loader is slow, and yet hardly anyone waits for another rank: all are late together.",
        ),
        (
            "No overlap",
            {"trace": "no overlap"},
            "Collectives follow the backward pass instead of running beneath it: all of them are exposed.",
        ),
        (
            "Many small ones",
            {"trace": "small messages", "zoom": 8, "position": 40},
            "Look at the comb: far more collectives than before, each too short to be worth its latency.",
        ),
        (
            "Your turn",
            {"trace": "host sync", "zoom": 2},
            "No rank stands out, and yet they wait. Click places on the clock: for whom, and in which phase?",
        ),
    ),
}
