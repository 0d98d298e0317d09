"""Which states tell the stories of single ranks? Tables of what `stories.Step` holds; see there."""

OF_RANKS = {
    "waiting": (
        (
            "One by one",
            {"pattern": "in_turn", "moment": 7},
            "Rank 0 sends to one rank after another, and the last one waits until all others are served.",
        ),
        (
            "A tree",
            {},
            "Ranks that have received also send: the same messages take fewer than half of the rounds.",
        ),
        (
            "The surprise",
            {"pattern": "all_send", "ranks": 4},
            "Nothing is wrong with any of these calls, and yet not one of them ever returns.",
        ),
        (
            "The way out",
            {"pattern": "begin", "ranks": 4, "moment": 1},
            "Non-blocking calls let each rank send and receive at once: one round is enough, in any order.",
        ),
        (
            "The limit",
            {"pattern": "forgets", "moment": 5},
            "One send is missing, and half of the ranks wait for ever, most of them for one that also waits.",
        ),
        (
            "Your turn",
            {"pattern": "even_send", "ranks": 4, "moment": 2},
            "Find numbers of ranks that take one more round, and the rank that delays nobody when late.",
        ),
    ),
    "averaging": (
        (
            "Before",
            {"step": 0},
            "All ranks start from the same weights. Each rank's points call for a different step.",
        ),
        (
            "One model",
            {"step": 6},
            "Every time, all ranks take the mean of their steps, which is the step that one process takes.",
        ),
        (
            "Kept apart",
            {"way": "none", "step": 12},
            "Without averaging, each rank fits a line to its own points, and you get four models.",
        ),
        (
            "The surprise",
            {"extra": 6, "step": 12},
            "With unequal parts, all ranks still agree, but not on the weights that one process finds.",
        ),
        (
            "The limit",
            {"way": "sum", "ranks": 8, "step": 4},
            "The sum is not divided: the steps are far too long, and the slope swings further out each time.",
        ),
        (
            "Your turn",
            {"ranks": 8, "extra": 6, "step": 6},
            "Bring the distance down to zero without giving back any of the points that rank 0 has taken.",
        ),
    ),
}
