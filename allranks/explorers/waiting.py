"""Who waits for whom? Small programs of sends and receives in space and time, an arrow a message.

Time runs to the right, in rounds: a message takes one. Pale arrows are still to come; red ones say who waits
for whom once nothing moves any more. `allranks.ranks` runs the programs, as it runs those of the chapters.
"""

from ..ranks.patterns import chain, circle, play, rounds, stuck
from .frame.controls import Choice, Integer, Steps
from .frame.handles import handle, handles_over, playhead
from .frame.lettering import legible
from .frame.svg import marks_over, picture, text
from .waiting_rows import Now, Rows, called, calls, several

TITLE = "Ranks in space and time"

WORDS = (
    ("in_turn", "one after another"),
    ("tree", "tree"),
    ("forgets", "tree, one send missing"),
    ("token", "ring: a token"),
    ("all_send", "ring: all send first"),
    ("all_receive", "ring: all receive first"),
    ("even_send", "ring: even send first"),
    ("begin", "ring: isend and irecv"),
    ("pairs_send", "pairs: both send first"),
    ("pairs", "pairs: one sends first"),
)
NAMED = dict(WORDS)
LATEST = 3
CONTROLS = (
    Choice("pattern", "pattern", WORDS, "tree"),
    Integer("ranks", "ranks p", 2, 8, 8),
    Steps("moment", "rounds", 3),
    Integer("rank", "rank selected", 0, 7, 1),
    Integer("late", "starts late by", 0, LATEST, 0),
)


def draw(width, *, pattern, ranks, moment, rank, late):
    """The world up to a moment, what comes after it in pale, and the calls of one rank."""
    rank = min(rank, ranks - 1)
    played, on_time = play(pattern, ranks, rank, late), play(pattern, ranks)
    end = int(rounds(on_time)) + LATEST  # of the axis, so that it does not move with the late rank
    last = end if stuck(played) else int(rounds(played))
    moment = min(moment, last)
    now = Now(played, moment)
    rows = Rows(width, now, end)
    head = f"{NAMED[pattern]}, {ranks} ranks: after {several(moment, 'round')}"
    marks = [text(0, 14, head, bold=True)] + rows.key() + rows.lines(rank, late)
    marks += rows.waits() + rows.messages() + rows.stuck() + [rows.at_now()]
    boxes, over, bottom = calls(width, rows.bottom + 24, now, rank)
    begins = [(each, rows.x(each)) for each in range(LATEST + 1)]
    words = f"{several(late, 'round')} late" if late else "with the others"
    held = (
        playhead(width, "moment", "time", rows.left, rows.x(last), last + 1, moment, rows.rail, head),
        handle(width, "late", f"rank {rank} starts", "x", begins, late, rows.y(rank), words),
    )
    return {
        "svg": legible(picture(width, bottom, marks, boxes), width),
        "text": said(pattern, now, rank, late),
        "marks": marks_over(width, bottom, rows.ranks(rank) + rows.gaps() + rows.halves() + over),
        "handles": handles_over(width, bottom, held),
        "result": result(played),
        "insight": insight(pattern, played, rank, late, on_time),
        "steps": last + 1,
        "idle": [],
    }


def arrows(ranks):
    """`0 → 1 → 2`."""
    return " → ".join([str(rank) for rank in ranks])


def listed(ranks):
    """`rank 1`, `ranks 1, 3 and 5`."""
    names = [str(rank) for rank in ranks]
    if len(names) == 1:
        return f"rank {names[0]}"
    return f"ranks {', '.join(names[:-1])} and {names[-1]}"


def result(played):
    """How many rounds it takes; or who waits for whom, for ever."""
    p, ends = played.world.size, circle(played)
    if ends:
        return "deadlock", f"{arrows(ends)}: each waits for the next"
    if stuck(played):
        longest = max([chain(played, rank) for rank in stuck(played)], key=len)
        return "no end", f"{arrows(longest)}: waiting for ever for a rank that has returned"
    sent = several(len(played.world.events), "message")
    return several(rounds(played), "round"), f"until all {p} ranks have returned, after {sent}"


INSIGHTS = {
    "in_turn": "Rank 0 sends all the time, and the others wait for their turn: each takes one round.",
    "tree": "Every rank that has the message sends it on, so each round doubles their number.",
    "token": "Each rank waits for the one before it: at any time, one message is in flight.",
    "even_send": "Every send finds its receiver; with an odd number of ranks, two neighbours send first.",
    "begin": "Both calls only begin, so each rank sends and receives in the same round, in any order.",
    "pairs": "One rank of a pair sends while the other receives, and then they swap.",
}


def insight(pattern, played, rank, late, on_time):
    """Why it takes so long, or does not end, in a sentence."""
    waiting = stuck(played)
    if circle(played):
        first = "send before they receive" if pattern != "all_receive" else "receive before they send"
        who = "Both ranks of a pair" if pattern == "pairs_send" else "All ranks"
        return (
            f"{who} {first}: each call waits for a partner that is itself waiting. One must change its order."
        )
    if waiting:
        who = f"{listed(waiting)} wait{'s' * (len(waiting) == 1)}"
        return f"Rank 0 forgot one send, and {who} for ever: a rank that waits keeps others waiting."
    if late:
        clocks = zip(played.world.clock, on_time.world.clock)
        behind = sum([ours > theirs and each != rank for each, (ours, theirs) in enumerate(clocks)])
        more = rounds(played) - rounds(on_time)
        words = (
            f"Rank {rank} starts {several(late, 'round')} late and delays {behind or 'none'} of the others; "
        )
        return words + (
            f"the end comes {several(more, 'round')} later." if more else "the end is not delayed."
        )
    return INSIGHTS[pattern]


def said(pattern, now, rank, late):
    """The numbers of the picture in words."""
    played, world = now.played, now.world
    sent = [event for event in world.events if event.end <= now.moment]
    words = f"{NAMED[pattern]}, on {now.p} ranks"
    words = words[0].upper() + words[1:]
    words += f"; rank {rank} starts {several(late, 'round')} late" if late else ""
    arrived = f"{len(sent)} of {several(len(world.events), 'message')} have arrived"
    arrived = arrived if world.events else "no message has left"
    words += f". After {several(now.moment, 'round')}, {arrived}"
    busiest = max([now.waited(each) for each in range(now.p)])
    words += f"; a rank has waited up to {several(busiest, 'round')}. "
    ends, waiting = circle(played), stuck(played)
    if ends:
        words += f"Nothing can move: deadlock, {arrows(ends)}. "
    elif waiting:
        verb = "wait" if len(waiting) > 1 else "waits"
        words += f"{listed(waiting)} {verb} for ever. ".replace("rank", "Rank", 1)
    else:
        words += f"All ranks have returned after {several(now.still, 'round')}. "
    program = " then ".join([called(call) for call in played.programs[rank]]) or "nothing"
    return words + f"Rank {rank} calls: {program}."
