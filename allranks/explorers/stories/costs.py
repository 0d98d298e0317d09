"""Which states tell the story of the explorers of costs? Tables of what `stories.Step` holds; see there."""

MIB = 2**20

OF_COSTS = {
    "buckets": (
        (
            "All in one",
            {"bucket": 2**50, "small_first": False},
            "One bucket is full only when the backward pass is over: nothing is hidden, and the step waits.",
        ),
        (
            "One per gradient",
            {"bucket": 1},
            "Each gradient is sent at once. More is hidden, but every all-reduce pays its own latency.",
        ),
        (
            "In between",
            {"bucket": 10 * MIB},
            "This size starts early and pays few latencies: no other leaves less exposed.",
        ),
        (
            "The surprise",
            {"bucket": 10 * MIB, "world_size": 256},
            "More ranks mean more latency: the best size is now a bad one, and larger buckets win.",
        ),
        (
            "The limit",
            {"bucket": 10 * MIB, "bandwidth": 5 * 10**8},
            "The network is hardly ever idle and finishes long after the backward pass. No size helps much.",
        ),
        (
            "Your turn",
            {"world_size": 32, "bandwidth": 10**10},
            "Click columns to expose the least. Then raise the latency: which way does the best one move?",
        ),
    ),
    "precision": (
        (
            "Enough range",
            {"dtype": "fp32", "scale": 0},
            "With so many exponent bits, all gradients lie within the range and none becomes zero.",
        ),
        (
            "Half the bits",
            {"scale": 0},
            "In fp16 most of the same gradients lie below the normal range; the red ones become zero.",
        ),
        (
            "Loss scaling",
            {"scale": 12},
            "Scaling the loss before the backward pass moves gradients into range: see the lower histogram.",
        ),
        (
            "The limit",
            {"scale": 24, "middle": -8},
            "Too large a scale pushes them out at the other end: half of the gradients overflow.",
        ),
        (
            "The surprise",
            {"dtype": "bf16", "scale": 0},
            "With fp32's exponent in as many bits as fp16, it needs no scale. Its numbers lie further apart.",
        ),
        (
            "Your turn",
            {"dtype": "fp8_e4m3", "scale": 0},
            "Find the scale at which E4M3 keeps the most. Why can E5M2 keep more, and at what price?",
        ),
    ),
    "decode": (
        (
            "One sequence",
            {},
            "For one sequence, most of the time is spent reading weights. Look for the sliver of arithmetic.",
        ),
        (
            "Shared weights",
            {"sequences": 64, "against": "sequences"},
            "Many sequences share one read of the weights: all together wait little longer than one did.",
        ),
        (
            "Long contexts",
            {"sequences": 32, "context": 16384},
            "Each sequence reads a cache of its own, which it cannot share. That now takes longest.",
        ),
        (
            "The surprise",
            {"ranks": 64},
            "With more ranks, each reads less, yet the token comes later: messages must go round the ring.",
        ),
        (
            "The limit",
            {"sequences": 1024, "context": 512, "against": "sequences"},
            "With so many sequences, arithmetic takes longest: each further one makes all of them wait.",
        ),
        (
            "Your turn",
            {"model": "llama3-405b"},
            "This model does not fit. Find the fewest ranks that hold it, then halve the time to a token.",
        ),
    ),
    "serving": (
        (
            "Light load",
            {"load": 1},
            "Most requests find the server idle: a prompt is computed when it arrives, and tokens follow.",
        ),
        (
            "Static batches",
            {"policy": "static"},
            "A batch runs to its last token. Requests that arrive meanwhile wait: look at the thin lines.",
        ),
        (
            "Continuous",
            {},
            "A request joins at the next step. First tokens come early, but the others pause for its prompt.",
        ),
        (
            "The surprise",
            {"policy": "chunked"},
            "With prompts in chunks, the longest pause all but vanishes; first tokens come a little later.",
        ),
        (
            "The limit",
            {"pages": 192},
            "With too few pages, requests queue for memory, and one is preempted and recomputed.",
        ),
        (
            "Your turn",
            {"policy": "chunked", "load": 32, "budget": 128},
            "Choose the chunk size so that half of the first tokens come early and no pause is long.",
        ),
    ),
    "goodput": (
        (
            "One node",
            {"nodes": 1},
            "One node fails so seldom that nearly all of the time is spent training.",
        ),
        (
            "Too often",
            {"save": "own", "interval": 60, "against": "interval"},
            "With a checkpoint every minute, a failure loses little, but writing takes a third of the time.",
        ),
        (
            "Too seldom",
            {"save": "own", "interval": 14_400, "against": "interval"},
            "With hours between checkpoints, failures come first: half of the time is spent redoing steps.",
        ),
        (
            "The best",
            {"against": "interval"},
            "At the best interval, writing and redoing cost about the same. The curve is flat around it.",
        ),
        (
            "The limit",
            {"nodes": 16_384},
            "More nodes fail more often. Even at the best interval a third is lost, most of it to restarts.",
        ),
        (
            "Your turn",
            {"nodes": 16_384, "write": 1},
            "Checkpoints are nearly free now. Spend nine tenths of the time training: what else must shrink?",
        ),
    ),
    "compression": (
        (
            "A slow link",
            {"link": 1000},
            "The dense all-reduce spends nearly all its time on bytes: sending fewer is far faster.",
        ),
        (
            "A fast link",
            {"link": 200_000},
            "The bytes take little time now. Compressing takes longer than it saves, and dense is fastest.",
        ),
        (
            "The surprise",
            {"link": 1000, "ranks": 1024},
            "Top-k sends one gradient in a thousand, yet more bytes than dense: choices cannot be summed.",
        ),
        (
            "Sums again",
            {"link": 1000, "ranks": 1024, "method": "power_sgd"},
            "PowerSGD's factors can be summed on the way, so it stays far ahead on as many ranks.",
        ),
        (
            "Your turn",
            {"link": 100_000, "rate": 1},
            "No method pays here. Find two controls, each of which alone makes one method pay.",
        ),
    ),
    "local_updates": (
        (
            "Every step",
            {"every": 1},
            "In data parallelism, ranks meet after every step. On this link they wait nearly all the time.",
        ),
        (
            "Seldom",
            {"size": 0},
            "They meet every hundred steps instead: on the same link, most of the time is spent computing.",
        ),
        (
            "In fragments",
            {"size": 1},
            "A few layers at each meeting send as many bytes in smaller bursts. Utilisation rises a little.",
        ),
        (
            "The surprise",
            {"delay": 1, "bits": 4},
            "The message is sent in fewer bits while the next step computes: ranks hardly wait for the link.",
        ),
        (
            "The limit",
            {"delay": 5, "bits": 4, "link": 200},
            "Overlap hides a message only while it is shorter than the steps that run meanwhile.",
        ),
        (
            "Your turn",
            {"model": 1e11, "link": 1000},
            "The model is a hundred times larger, the link a fifth as fast: compute nine tenths of the time.",
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
            "Three ranks wait (orange), one hardly does: it is the one that the others wait for.",
        ),
        (
            "The surprise",
            {"trace": "data loader"},
            "The data loader is slow, yet hardly any rank waits for another: all are late together.",
        ),
        (
            "No overlap",
            {"trace": "no overlap"},
            "Collectives run after the backward pass instead of during it, so all of them are exposed.",
        ),
        (
            "Small messages",
            {"trace": "small messages", "zoom": 8, "position": 40},
            "Look at the comb: far more collectives run than before, each too short to be worth its latency.",
        ),
        (
            "Your turn",
            {"trace": "host sync", "zoom": 2},
            "No rank stands out, yet they wait. Click on the rows: for whom do they wait, in which phase?",
        ),
    ),
}
