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
            "Ranks that have received send too: the same messages, in fewer than half of the rounds.",
        ),
        (
            "The surprise",
            {"pattern": "all_send", "ranks": 4},
            "Nothing is wrong with any of these calls, and yet not one of them ever returns.",
        ),
        (
            "The way out",
            {"pattern": "begin", "ranks": 4, "moment": 1},
            "Calls that only begin let each rank send and receive at once: a single round, without an order.",
        ),
        (
            "The limit",
            {"pattern": "forgets", "moment": 5},
            "One send is missing, and half of the ranks wait for ever, most of them for one that waits too.",
        ),
        (
            "Your turn",
            {"pattern": "even_send", "ranks": 4, "moment": 2},
            "Find numbers of ranks that take a round more, and the rank that delays nobody if it is late.",
        ),
    ),
    "averaging": (
        (
            "Before",
            {"step": 0},
            "All start from the same weights. Each rank's points call for a step of their own.",
        ),
        (
            "One model",
            {"step": 6},
            "All ranks take the mean of their steps, which is the step of one process, again and again.",
        ),
        (
            "Kept apart",
            {"way": "none", "step": 12},
            "Without averaging, each rank fits a line to its own points, and there are four models.",
        ),
        (
            "The surprise",
            {"extra": 6, "step": 12},
            "Unequal parts: all ranks still agree, but on other weights than one process finds.",
        ),
        (
            "The limit",
            {"way": "sum", "ranks": 8, "step": 4},
            "Nobody divides the sum: the steps are far too long, and the slope swings further out each time.",
        ),
        (
            "Your turn",
            {"ranks": 8, "extra": 6, "step": 6},
            "Bring the distance down to nothing, and give back none of the points that rank 0 has taken.",
        ),
    ),
}
