"""Which states tell the story of the explorers of layouts? Tables of what `stories.Step` holds; see there."""

OF_LAYOUTS = {
    "tensor_parallel": (
        (
            "By columns",
            {"kind": "column", "step": 2},
            "Each rank needs all of X and computes its own columns of Y. No sum is needed, but Y is cut.",
        ),
        (
            "By rows",
            {"kind": "row", "step": 2},
            "Each rank needs only its part of Y, but computes a partial sum of Z: at g the ranks must add.",
        ),
        (
            "The surprise",
            {"step": 3},
            "Columns, then rows: the slice of Y that a rank computes is the one it needs. Nothing is sent.",
        ),
        (
            "By heads",
            {"kind": "attention", "step": 2},
            "Attention is cut the same way: a rank computes whole heads by itself, then the ranks add up.",
        ),
        (
            "No copies",
            {"sequence_parallel": True, "step": 1},
            "X and Z are cut by tokens too. f must gather X, and gather it again in the backward pass.",
        ),
        (
            "Your turn",
            {"kind": "attention", "ranks": 8, "model": "llama3-8b"},
            "Play the steps and count the messages. Then switch on sequence parallel: does a rank send more?",
        ),
    ),
    "mesh": (
        (
            "Tensor groups",
            {},
            "Ranks of one colour share the same layers. They sit side by side in a node with fast links.",
        ),
        (
            "Data groups",
            {"axis": "dp"},
            "The same ranks form other groups: these sum gradients, and every group crosses nodes.",
        ),
        (
            "The surprise",
            {"order": "dp pp cp tp"},
            "The same mesh in reverse order: tensor groups now cross nodes, and messages take far longer.",
        ),
        (
            "The limit",
            {"tp": 8, "cp": 4, "dp": 2, "axis": "cp"},
            "Tensor groups fill whole nodes. Every other axis, including context, must use the network.",
        ),
        (
            "Experts",
            {"model": "mixtral-8x7b", "axis": "ep"},
            "Experts lie along the data axis, across nodes: their all-to-all takes longest.",
        ),
        (
            "Your turn",
            {"order": "dp pp cp tp", "rank": 0},
            "Click ranks to see whom they talk to. Then bring the time below a second by the order alone.",
        ),
    ),
    "strategies": (
        (
            "Data",
            {},
            "Each rank holds all weights and a quarter of the tokens. Gradients are summed once a step.",
        ),
        (
            "Sharded states",
            {"strategy": "sharded"},
            "Each rank holds a quarter of each layer. A layer is gathered, used, dropped and gathered again.",
        ),
        (
            "Tensor",
            {"strategy": "tensor"},
            "The quarters are the same, but they stay. Every rank sees all tokens, and activations travel.",
        ),
        (
            "Pipeline",
            {"strategy": "pipeline", "step": 1},
            "Each rank holds one whole layer. At first only one rank can send, and only to its neighbour.",
        ),
        (
            "Sequence",
            {"strategy": "sequence"},
            "As in tensor parallelism, but tokens are cut too: gathered before each layer, cut after it.",
        ),
        (
            "Experts",
            {"strategy": "experts"},
            "The layers stand side by side. A token travels to the layer that processes it, and back.",
        ),
    ),
    "roofline": (
        (
            "A large product",
            {},
            "Many tokens share each weight: the point lies right of the ridge, under the flat roof.",
        ),
        (
            "One token",
            {"tokens": 1},
            "The same weights are read for a single token. Nearly all of the time, arithmetic waits.",
        ),
        (
            "The surprise",
            {"operation": "addition"},
            "Even for many tokens, the share is lower than a product's for one: no size helps an addition.",
        ),
        (
            "Half the bits",
            {"tokens": 128, "dtype": "fp8"},
            "The bytes halve and the peak doubles: the point and the ridge move alike, and the share stays.",
        ),
        (
            "The limit",
            {"operation": "decode", "model": "llama3-8b", "past": 8192, "tokens": 32},
            "Sequences share the weights, but not their caches: with long caches, decode stays far left.",
        ),
        (
            "Your turn",
            {"tokens": 64},
            "Find the fewest tokens that reach the flat roof. Then do the same on other devices.",
        ),
    ),
    "layout": (
        (
            "Tensor groups",
            {"pipeline": 1},
            "Eight devices share each matrix. The states of each device's part alone do not fit.",
        ),
        (
            "Stages too",
            {},
            "With eight stages too, the model fits, but the step waits for the pipeline to fill and drain.",
        ),
        (
            "The surprise",
            {"tensor": 32, "pipeline": 2},
            "The model has as many parts, but a step takes twice the time: tensor groups leave their node.",
        ),
        (
            "The other way",
            {"tensor": 2, "pipeline": 32},
            "Messages are short, the pipeline is long: the bubble grows, and uneven stages wait for others.",
        ),
        (
            "Today",
            {"stage": 1, "recomputation": "selective", "chunks": 2, "software": "today"},
            "ZeRO shards the optimizer states, only attention is recomputed, and some messages are hidden.",
        ),
        (
            "Your turn",
            {
                "model": "llama3-405b",
                "device": "h100",
                "devices": 16_384,
                "batch": 2048,
                "pipeline": 1,
                "stage": 1,
                "recomputation": "none",
                "software": "today",
            },
            "Keep taking the best change until none is left. Then find a layout that is faster still.",
        ),
    ),
}
