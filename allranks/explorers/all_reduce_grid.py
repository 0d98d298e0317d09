"""What do the ranks hold in an all-reduce, and what do they send? The picture of one round.

A row for each rank and a column for each chunk; left of each column runs a lane for the arrows.
"""

from .frame.handles import moving
from .frame.svg import WIDE, mark, number, path, text


def lanes(moves):
    """The arrows of a round: (source, target, first, last, both ways), an exchange being one arrow."""
    known = [(move.target, move.source, move.first, move.last) for move in moves]
    arrows = []
    for move in moves:
        twice = (move.source, move.target, move.first, move.last) in known
        if not twice or move.source < move.target:
            arrows.append((move.source, move.target, move.first, move.last, twice))
    return arrows


class Grid:
    """Where ranks and chunks stand in a picture of some width; arrows: the most there are in a round."""

    def __init__(self, width, ranks, chunks, arrows):
        self.wide, self.p, self.chunks = width == WIDE, ranks, chunks
        self.left, self.top = (54 if self.wide else 34), 72
        self.row = 34 if ranks <= 8 else 26
        self.column = (width - self.left) / chunks
        self.lane = 14 * arrows if chunks == 1 else max(7, min(20, self.column * 0.28))
        self.body = self.column - self.lane - 2
        self.bottom = self.top + ranks * self.row
        longest = "+".join(str(rank) for rank in range(1, ranks))
        self.names = 6.9 * len(longest) + 6 <= self.body

    def cells(self, held):
        """Every rank's chunks: what their sums have so far."""
        marks = [text(0, self.top - 6, "rank", size=11, ink="ink-soft")]
        if self.chunks > 1:
            for chunk in range(self.chunks):
                word = f"chunk {chunk}" if self.body > 50 else str(chunk)
                x = self.left + chunk * self.column + self.lane + self.body / 2
                marks.append(text(x, self.top - 6, word, "middle", 11, "ink-soft"))
        open_, bars, complete, words = [], [], [], []
        high = self.row - 4
        for rank, row in enumerate(held):
            y = self.top + rank * self.row
            word = f"rank {rank}" if self.wide else rank
            marks.append(text(self.left - 8, y + self.row / 2 + 2, word, "end", 12, "ink-soft"))
            for chunk, ranks in enumerate(row):
                x = self.left + chunk * self.column + self.lane
                middle = x + self.body / 2
                if len(ranks) == self.p:
                    complete.append(f"M{number(x)} {y}h{number(self.body)}v{high}h-{number(self.body)}z")
                    words.append(text(middle, y + self.row / 2 + 3, "Σ", "middle", 13, "paper", True))
                    continue
                open_.append(f"M{number(x)} {y}h{number(self.body)}v{high}h-{number(self.body)}z")
                each = self.body / self.p
                for first, many in runs(ranks):
                    at = f"M{number(x + first * each)} {y + high - 3}h{number(many * each)}"
                    bars.append(at)
                word = "+".join(str(rank) for rank in ranks) if self.names else len(ranks)
                words.append(text(middle, y + self.row / 2 - 1, word, "middle", 12 if self.wide else 11))
        marks.append(path("".join(open_), None, fill="idle"))
        marks.append(path("".join(bars), "forward", 6))
        marks.append(path("".join(complete), None, fill="forward"))
        return marks + words

    def places(self, moves):
        """(x, y of source, y of target, both ways) of each arrow, in the lane of one of its chunks."""
        placed, used = [], {}
        for source, target, first, last, twice in lanes(moves):
            turn = used.get(first, 0)
            used[first] = turn + 1
            x = self.left + (turn * 14 + 7 if self.chunks == 1 else self.lane / 2)
            x += self.column * (first + turn % (last - first)) if self.chunks > 1 else 0
            y1, y2 = (self.top + (rank + 0.5) * self.row - 2 for rank in (source, target))
            placed.append((x, y1, y2, twice))
        return placed

    def arrows(self, moves):
        """The messages of one round, and what they reach."""
        lines, heads, reached = [], [], []
        for x, y1, y2, twice in self.places(moves):
            down = 1 if y2 > y1 else -1
            lines.append(f"M{number(x)} {number(y1 + (5 * down if twice else 0))}V{number(y2 - 5 * down)}")
            heads.append(f"M{number(x)} {number(y2)}l-3.5 {-7 * down}h7z")
            if twice:
                heads.append(f"M{number(x)} {number(y1)}l-3.5 {7 * down}h7z")
            else:
                heads.append(f"M{number(x - 3)} {number(y1 - 1.5)}h6v3h-6z")
        for move in moves:
            y = self.top + move.target * self.row
            for chunk in range(move.first, move.last):
                x = self.left + chunk * self.column + self.lane
                reached.append(f"M{number(x)} {y}h{number(self.body)}v{self.row - 4}h-{number(self.body)}z")
        return [
            path("".join(reached), "comm", 2),
            path("".join(lines), "comm", 1.5),
            path("".join(heads), None, fill="comm"),
        ]

    def travelling(self, rounds, step):
        """The messages of this round where they have come, and those of the next where they leave from."""
        things = []
        for turn in (step - 1, step):
            for move in rounds[turn].moves if 0 <= turn < len(rounds) else ():
                rank = move.target if turn < step else move.source
                x = self.left + move.first * self.column + self.lane
                wide = (move.last - move.first - 1) * self.column + self.body
                key = f"{turn}-{move.source}-{move.target}-{move.first}"
                things.append(moving(key, x, self.top + rank * self.row, wide, self.row - 4))
        return things

    def rounds(self, step, many):
        """The ranks as places: a click plays the next round."""
        after = step + 1 if step < many else 0
        words = f"play round {after} of {many}" if after else "back to the start"
        row, wide = self.row, self.chunks * self.column
        return [
            mark(
                0,
                self.top + rank * row,
                self.left + wide,
                row - 4,
                f"step={after}",
                f"rank {rank}: {words}",
                f"r{rank}",
            )
            for rank in range(self.p)
        ]

    def key(self):
        """How to read a cell."""
        what = "names: ranks summed so far" if self.names else "number: ranks summed so far"
        first, second = f"{what} · bar: which of 0 to {self.p - 1}", "Σ: all · arrows and frames: this round"
        parts = ((0, 16, first), (0, 33, second))
        if self.wide:
            parts = ((self.left, 16, f"{first} · {second}"),)
        return [text(x, self.bottom + y, words, size=11, ink="ink-soft") for x, y, words in parts]


def runs(ranks):
    """(first, how many) of each run of consecutive numbers in a sorted tuple."""
    found = []
    for rank in ranks:
        if found and sum(found[-1]) == rank:
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((rank, 1))
    return found
