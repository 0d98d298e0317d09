"""How is a layer drawn that ranks share? A lane for each rank, through matrices and the two operators."""

from .frame.svg import WIDE, circle, colour, legend, line, mark, number, path, rectangle, text
from .frame.words import fixed, scaled

TOP, LANE = 84, 50
ACTS = {
    "all_reduce": "an all-reduce",
    "all_gather": "an all-gather",
    "reduce_scatter": "a reduce-scatter",
    "copy": "a copy, nothing is sent",
    "slice": "a slice, nothing is sent",
}


def next_step(item, step, turns):
    """What goes to the next step in which an item takes part, and the words for it."""
    when = [turn for turn, items in enumerate(turns, 1) if item in items]
    later = [turn for turn in when if turn > step]
    turn = (later or when)[0]
    return f"step={turn}", f"go to step {turn}"


class Chain:
    """The layer from left to right: matrix, operator, matrices, operator, matrix, with their places."""

    def __init__(self, width, shape, matrices, calls, ranks):
        self.width, self.shape, self.ranks, self.calls = width, shape, ranks, calls
        self.mark = f"tensor-{width}"
        self.left = 84 if width == WIDE else 52
        self.narrow, self.broad, bar = (44, 80, 40) if width == WIDE else (20, 40, 22)
        self.items = [matrices[0], calls[0].operator] + list(matrices[1:-1])
        self.items += [calls[2].operator, matrices[-1]]
        self.widths = [bar if isinstance(each, str) else self.wide(each) for each in self.items]
        gap = (width - 2 - self.left - sum(self.widths)) / (len(self.items) - 1)
        self.gap = gap
        self.xs = [self.left + sum(self.widths[:i]) + i * gap for i in range(len(self.items))]
        self.bottom = TOP + LANE * ranks

    def wide(self, matrix):
        return self.narrow if matrix.columns == self.shape.hidden else self.broad

    def high(self, matrix):
        return 34 if not matrix.weight else 26 if matrix.rows == self.shape.hidden else 42

    def state(self, i, step, steps):
        """How item `i` looks after `step`: how it is split (None: not there yet), and if it is a gradient."""
        matrix, half = self.items[i], steps // 2
        if matrix.weight or not step:
            return matrix.split, False
        order = [0, 2] + [k for k in range(4, len(self.items)) if self.is_activation(k)]
        place = order.index(i)
        if step <= half:
            return (matrix.split if place <= step else None), False
        if place >= len(order) - 1 - (step - half):
            return matrix.gradient, True
        return matrix.split, False

    def is_activation(self, i):
        return not isinstance(self.items[i], str) and not self.items[i].weight

    def patterns(self):
        """Stripes on each rank's colour, for partial sums."""
        stripes = f'<path d="M0 6L6 0" style="stroke:{colour("paper")};stroke-opacity:.75;stroke-width:1.6"/>'
        made = []
        for rank in range(self.ranks):
            fill = colour(f"rank-{rank}")
            made.append(
                f'<pattern id="{self.mark}-rank-{rank}" width="6" height="6" patternUnits="userSpaceOnUse">'
                f'<rect width="6" height="6" style="fill:{fill}"/>{stripes}</pattern>'
            )
        return f"<defs>{''.join(made)}</defs>"

    def bands(self, active):
        """A ground behind the items that take part now."""
        if not active:
            return []
        x, end = self.xs[active[0]], self.xs[active[-1]] + self.widths[active[-1]]
        x, end = x - self.gap / 2, min(end + self.gap / 2, self.width)
        return [rectangle(x, TOP - 32, end - x, self.bottom - TOP + 34, "tint", "grid")]

    def heads(self, step, steps, active):
        """The names above the columns."""
        marks = []
        for i, each in enumerate(self.items):
            x = self.xs[i] + self.widths[i] / 2
            if isinstance(each, str):
                continue
            gradient = self.state(i, step, steps)[1]
            words = f"∂{each.name}" if gradient else each.name
            if self.width == WIDE and each.weight and len(each.widths) > 1:
                words += " = Q, K, V" if len(each.widths) == 3 else ", gate"
            marks.append(text(x, TOP - 12, words, "middle", bold=not active or i in active))
        return marks

    def lane(self, rank, step, steps, label):
        """One rank's matrices."""
        top = TOP + rank * LANE
        middle, fill = top + LANE / 2, f"rank-{rank}"
        marks = [line(0, top, self.width, top, "grid")] if rank else []
        marks.append(text(0, middle + (-3 if label else 4), f"rank {rank}", size=12, ink="ink-soft"))
        if label:
            word = f"heads {label}" if self.width == WIDE else label
            marks.append(text(0, middle + 13, word, size=11, ink="ink-soft"))
        for i, each in enumerate(self.items):
            if not isinstance(each, str):
                marks += self.matrix(i, each, self.state(i, step, steps)[0], rank, middle, fill)
        return marks + self.signs(middle)

    def matrix(self, i, matrix, split, rank, middle, fill):
        """A matrix in a lane: outlined as a whole, filled where the rank holds it."""
        x, wide, high = self.xs[i], self.widths[i], self.high(matrix)
        y, marks, blocks = middle - high / 2, [], len(matrix.widths)
        apart = 3 if blocks > 1 else 0
        room = wide - apart * (blocks - 1)
        for part in matrix.widths:
            across = room * part / matrix.columns
            if split is None:
                box = f"M{number(x)} {number(y)}h{number(across)}v{high}h-{number(across)}z"
                marks.append(path(box, "grid-strong", 1, None, "2 3"))
            elif split == "none":
                marks.append(rectangle(x, y, across, high, "grid-strong"))
            else:
                marks.append(rectangle(x, y, across, high, "paper", "grid-strong"))
            t = self.ranks
            if split == "columns":
                marks.append(rectangle(x + across * rank / t, y, across / t, high, fill))
            if split == "rows":
                marks.append(rectangle(x, y + high * rank / t, across, high / t, fill))
            if split == "partial":
                style = f"fill:url(#{self.mark}-{fill});stroke:{colour(fill)}"
                box = f'x="{number(x)}" y="{number(y)}" width="{number(across)}" height="{number(high)}"'
                marks.append(f'<rect {box} style="{style}"/>')
            x += across + apart
        return marks

    def slices(self, step, turns, element):
        """Places: what each rank holds of each matrix; a click goes to the next step that takes it.

        turns: the items that take part in each step.
        """
        marks = []
        for rank in range(self.ranks):
            middle = TOP + (rank + 0.5) * LANE
            for i in range(len(self.items)):
                matrix, high = (
                    self.items[i],
                    34 if isinstance(self.items[i], str) else self.high(self.items[i]),
                )
                if isinstance(matrix, str):
                    continue
                split, gradient = self.state(i, step, len(turns))
                words = f"rank {rank}: {self.part(matrix, split, gradient, rank, element)}"
                sets, after = next_step(i, step, turns)
                at = self.xs[i], middle - high / 2, self.widths[i], high
                marks.append(mark(*at, sets, f"{words}; {after}", f"r{rank}"))
        return marks

    def part(self, matrix, split, gradient, rank, element):
        """What a rank holds of a matrix, in words."""
        name, t = f"∂{matrix.name}" if gradient else matrix.name, self.ranks
        rows, columns = matrix.rows, matrix.columns
        if split is None:
            return f"no {name} yet"
        if split in ("none", "partial"):
            words = f"all of {name}" if split == "none" else f"a partial sum of {name}"
            return f"{words}, {scaled(rows * columns * element, 'B')}"
        size = scaled(rows * columns * element / t, "B")
        if split == "columns" and len(matrix.widths) > 1:
            return f"{fixed(columns / t, 0)} of the {fixed(columns, 0)} columns of {name}, {size}"
        every = (rows if split == "rows" else columns) // t
        return f"{split} {fixed(rank * every, 0)} to {fixed((rank + 1) * every - 1, 0)} of {name}, {size}"

    def talks(self, step, turns):
        """Places: the two operators; a click goes to the next step in which one acts."""
        marks = []
        for i in (1, len(self.items) - 2):
            calls = [each for each in self.calls if each.operator == self.items[i]]
            acts = ", ".join(f"{each.phase} {ACTS[each.collective]}" for each in calls)
            sets, after = next_step(i, step, turns)
            marks.append(
                mark(self.xs[i], TOP - 32, self.widths[i], 28, sets, f"{self.items[i]}: {acts}; {after}")
            )
        return marks

    def signs(self, middle):
        """What stands between the matrices of a product."""
        marks = []
        for i in range(1, len(self.items)):
            if isinstance(self.items[i], str) or isinstance(self.items[i - 1], str):
                continue
            sign = "×" if self.items[i].weight else "→"
            x = self.xs[i] - self.gap / 2
            marks.append(text(x, middle + 4, sign, "middle", 12 if self.width == WIDE else 11, "ink-soft"))
        return marks

    def operators(self, active, phase):
        """The bars of the two operators: solid where ranks talk, dashed where none does."""
        marks = []
        for at, i in ((0, 1), (2, len(self.items) - 2)):
            x, now = self.xs[i] + self.widths[i] / 2, i in active and len(active) == 3
            calls = [each for each in self.calls[at : at + 2] if not now or each.phase == phase]
            talks = any(each.sent for each in calls)
            stroke = "comm" if talks else "grid-strong"
            thick = (5 if now else 3) if talks else 1.5
            marks.append(line(x, TOP, x, self.bottom - 4, stroke, thick, None if talks else "3 4"))
            marks += self.letter(x, calls[0].operator, stroke)
            for rank in range(self.ranks if now else 0):
                y, ahead = TOP + (rank + 0.5) * LANE, 1 if phase == "forward" else -1
                x1, x2 = x - 9 * ahead, x + 9 * ahead
                marks.append(line(x1, y, x2, y, "ink", 1.5))
                marks.append(path(f"M{number(x2)} {number(y)}l{-6 * ahead}-4v8z", None, 0, "ink"))
        return marks

    def letter(self, x, operator, stroke):
        """An operator's name above its bar."""
        if len(operator) > 1:
            return [text(x, TOP - 12, operator, "middle", 11, "ink", True)]
        disc = [circle(x, TOP - 16, 10, "comm" if stroke == "comm" else "grid-strong")]
        return disc + [text(x, TOP - 12, operator, "middle", 13, "paper", True)]

    def key(self):
        """How to read a matrix."""
        entries = [("rank-0", "its slice", False), ("grid-strong", "all of it", False)]
        entries.append(("rank-0", "partial sum", True))
        marks, height = legend(0, self.bottom + 26, self.width, entries, self.mark)
        solid = "bar: solid where ranks talk, else dashed"
        x, y = (0, self.bottom + 26 + height) if self.width != WIDE else (364, self.bottom + 26)
        marks.append(text(x, y, solid, size=12, ink="ink-soft"))
        return marks, y + 30
